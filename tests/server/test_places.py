"""Which of a listener's connections are closed for new ones, in virtual time and without sockets."""

import asyncio

import pytest

from autoscaler.model.identifiers import Address
from autoscaler.server.listening.places import Place, PlaceLimits, Places, Stage, peer_of
from autoscaler.server.listening.settings import RESERVED_DESCRIPTORS, ServerSettings
from tests.controller.virtual_time import on_virtual_time


class PlacesUnderTest:
    """Places of connections, and the connections that were closed."""

    def __init__(self, **limits: int) -> None:
        self.places = Places(PlaceLimits(**{"connections": 4, "head": 10, **limits}))
        self.closed: list[str] = []

    def take(self, name: str, peer: str = "") -> Place | None:
        return self.places.take(peer or name, lambda: self.closed.append(name))

    def taken(self, name: str, peer: str = "") -> Place:
        place = self.take(name, peer)
        assert place is not None
        return place

    def move(self, place: Place, *stages: Stage) -> None:
        for stage in stages:
            self.places.move(place, stage)

    def count_bytes(self, place: Place, size: int) -> None:
        self.places.count_bytes(place, size)


@on_virtual_time
async def test_a_head_has_ten_seconds_from_its_first_byte() -> None:
    tested = PlacesUnderTest()
    place = tested.taken("a")
    await asyncio.sleep(9)
    tested.move(place, Stage.SERVED, Stage.IDLE)
    await asyncio.sleep(60)
    tested.count_bytes(place, 1)
    await asyncio.sleep(9)
    tested.count_bytes(place, 1)
    assert tested.closed == []
    await asyncio.sleep(2)
    assert tested.closed == ["a"]
    assert len(tested.places) == 0


@on_virtual_time
async def test_a_tls_handshake_and_a_request_head_have_separate_time_limits() -> None:
    tested = PlacesUnderTest()
    place = tested.taken("a")
    await asyncio.sleep(9)
    tested.move(place, Stage.HEAD)
    await asyncio.sleep(9)
    assert tested.closed == []
    await asyncio.sleep(2)
    assert tested.closed == ["a"]


@on_virtual_time
async def test_a_body_has_no_time_limit_here_and_does_not_extend_others() -> None:
    tested = PlacesUnderTest()
    body = tested.taken("body")
    tested.move(body, Stage.BODY)
    tested.taken("head")
    await asyncio.sleep(11)
    assert tested.closed == ["head"]
    tested.taken("late")
    await asyncio.sleep(11)
    assert tested.closed == ["head", "late"]


@pytest.mark.case(
    "many and long headers, and heads that never end",
    topic="Hostile input",
    source="CWE-770; CWE-400",
)
@on_virtual_time
async def test_the_bytes_of_all_incomplete_heads_are_bounded() -> None:
    tested = PlacesUnderTest(heads_together=100)
    first, second, third = (tested.taken(name) for name in "abc")
    tested.count_bytes(first, 50)
    tested.count_bytes(second, 20)
    tested.count_bytes(second, 30)
    tested.move(second, Stage.SERVED)
    tested.count_bytes(third, 50)
    assert tested.closed == []
    tested.count_bytes(third, 1)
    assert tested.closed == ["a"]
    tested.count_bytes(second, 1_000)  # a body of a served request, which has its own limits
    tested.count_bytes(third, 49)
    assert tested.closed == ["a"]


@on_virtual_time
async def test_the_peer_with_most_unread_bytes_loses_its_oldest_connections() -> None:
    tested = PlacesUnderTest(connections=100, answers_together=1000)
    honest = tested.taken("honest", "10.0.0.1")
    tested.places.count_answer(honest, 300)
    for number in range(3):
        tested.places.count_answer(tested.taken(f"evil {number}", "10.0.0.2"), 200)
    assert tested.closed == []
    tested.places.count_answer(tested.taken("evil 3", "10.0.0.2"), 200)
    assert tested.closed == ["evil 0"]
    tested.places.count_answer(tested.taken("other", "10.0.0.3"), 200)
    assert tested.closed == ["evil 0", "evil 1"]


@on_virtual_time
async def test_the_bytes_of_an_answer_count_until_the_next_request_or_the_end() -> None:
    tested = PlacesUnderTest(connections=100, answers_together=1000)
    kept, left = tested.taken("kept"), tested.taken("left")
    for place in (kept, left):
        tested.move(place, Stage.SERVED, Stage.IDLE)
        tested.places.count_answer(place, 500)
    tested.count_bytes(kept, 1)
    tested.places.leave(left)
    tested.places.count_answer(left, 500)
    tested.move(kept, Stage.SERVED, Stage.IDLE)
    tested.places.count_answer(kept, 1000)
    assert tested.closed == []
    tested.places.count_answer(tested.taken("more"), 1)
    assert tested.closed == ["kept"]


@on_virtual_time
async def test_the_head_of_a_request_counts_until_its_body_has_arrived() -> None:
    tested = PlacesUnderTest(heads_together=100)
    slow, complete = tested.taken("a"), tested.taken("b")
    await asyncio.sleep(1)
    late = tested.taken("c")
    tested.count_bytes(slow, 50)
    tested.count_bytes(complete, 50)
    tested.move(slow, Stage.BODY)
    tested.move(complete, Stage.BODY)
    tested.count_bytes(slow, 1_000)  # of a body
    tested.move(complete, Stage.SERVED)
    tested.count_bytes(late, 50)
    assert tested.closed == []
    tested.count_bytes(late, 1)
    assert tested.closed == ["a"]
    tested.count_bytes(late, 49)
    assert tested.closed == ["a"]


@on_virtual_time
async def test_a_peer_at_its_limit_closes_its_own_connection() -> None:
    tested = PlacesUnderTest()
    tested.taken("other")
    served = tested.taken("mine-0", "me")
    tested.move(served, Stage.SERVED)
    tested.taken("mine-1", "me")
    tested.taken("mine-2", "me")
    assert tested.closed == []
    tested.taken("mine-3", "me")
    assert tested.closed == ["mine-1"]


@on_virtual_time
async def test_the_oldest_unfinished_requests_are_closed_first_and_then_idle_connections() -> None:
    tested = PlacesUnderTest()
    idle = tested.taken("idle")
    tested.move(idle, Stage.SERVED, Stage.IDLE)
    tested.move(tested.taken("served"), Stage.SERVED)
    body = tested.taken("body")
    await asyncio.sleep(1)
    tested.taken("head")
    await asyncio.sleep(1)
    tested.move(body, Stage.BODY)
    for name in "123":
        tested.move(tested.taken(name), Stage.SERVED)
    assert tested.closed == ["body", "head", "idle"]


@on_virtual_time
async def test_no_connection_is_closed_if_all_are_being_served() -> None:
    tested = PlacesUnderTest()
    places = [tested.taken(name) for name in "abcd"]
    for place in places:
        tested.move(place, Stage.SERVED)
    assert tested.take("e") is None
    tested.places.leave(places[3])
    tested.places.leave(places[3])
    assert tested.take("e") is not None
    assert len(tested.places) == 4
    assert tested.closed == []


@on_virtual_time
async def test_a_closed_connection_is_no_longer_counted() -> None:
    """The last callbacks of a connection may come after it was closed."""
    tested = PlacesUnderTest(heads_together=100)
    place = tested.taken("a")
    tested.count_bytes(place, 60)
    tested.places.leave(place)
    tested.move(place, Stage.HEAD, Stage.IDLE)
    tested.count_bytes(place, 60)
    tested.count_bytes(tested.taken("b"), 100)
    await asyncio.sleep(9)
    assert (tested.closed, len(tested.places)) == ([], 1)


@on_virtual_time
async def test_connections_that_stay_open_at_the_end_are_closed() -> None:
    tested = PlacesUnderTest()
    leaving, _ = tested.taken("a"), tested.taken("b")
    loop = asyncio.get_running_loop()
    loop.call_later(1, tested.places.leave, leaving)
    began = loop.time()
    await tested.places.empty(patience=2)
    assert (tested.closed, loop.time() - began) == (["b"], 2)


@pytest.mark.parametrize(
    ("host", "peer"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
    ],
)
def test_an_ipv6_network_is_one_peer(host: str, peer: str) -> None:
    """An attacker has 2^64 addresses in one IPv6 network."""
    assert peer_of(host) == peer


@pytest.mark.case(
    "one address takes every connection, or the process runs out of descriptors",
    topic="Hostile input",
    source="CWE-770",
)
@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("descriptors", [300, 1_024, 4_096, 1_048_576])
def test_connections_stay_below_the_descriptor_limit(descriptors: int, alone: bool) -> None:
    here = Address("127.0.0.1", 0)
    settings = ServerSettings(here, here if alone else None).within(descriptors)
    both = settings.max_connections + (settings.webhook_max_connections if alone else 0)
    assert both <= descriptors - RESERVED_DESCRIPTORS
    assert settings.max_connections <= 10_000
    assert settings.webhook_max_connections <= 1_024
    if descriptors == 1_048_576:
        assert settings == ServerSettings(here, here if alone else None)


def test_the_webhooks_own_listener_gets_a_quarter_of_few_descriptors() -> None:
    here = Address("127.0.0.1", 0)
    settings = ServerSettings(here, here).within(RESERVED_DESCRIPTORS + 400)
    assert (settings.webhook_max_connections, settings.max_connections) == (100, 300)


def test_a_replica_that_passes_requests_on_needs_two_descriptors_for_each_connection() -> None:
    here = Address("127.0.0.1", 0)
    descriptors = RESERVED_DESCRIPTORS + 800
    assert ServerSettings(here).within(descriptors).max_connections == 800
    assert ServerSettings(here).within(descriptors, forwards=True).max_connections == 400
