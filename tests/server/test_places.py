"""Which of a listener's connections are closed for new ones, in virtual time and without sockets."""

import asyncio

import pytest

from autoscaler.server.places import Place, PlaceLimits, Places, Stage, peer_of
from autoscaler.server.settings import RESERVED_DESCRIPTORS, Address, ServerSettings
from tests.controller.virtual_time import on_virtual_time


class Hall:
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

    def hear(self, place: Place, size: int) -> None:
        self.places.hear(place, size)


@on_virtual_time
async def test_a_head_has_ten_seconds_from_its_first_byte() -> None:
    hall = Hall()
    place = hall.taken("a")
    await asyncio.sleep(9)
    hall.move(place, Stage.SERVED, Stage.IDLE)
    await asyncio.sleep(60)
    hall.hear(place, 1)
    await asyncio.sleep(9)
    hall.hear(place, 1)
    assert hall.closed == []
    await asyncio.sleep(2)
    assert hall.closed == ["a"]
    assert len(hall.places) == 0


@on_virtual_time
async def test_a_tls_handshake_and_a_request_head_have_separate_time_limits() -> None:
    hall = Hall()
    place = hall.taken("a")
    await asyncio.sleep(9)
    hall.move(place, Stage.HEAD)
    await asyncio.sleep(9)
    assert hall.closed == []
    await asyncio.sleep(2)
    assert hall.closed == ["a"]


@on_virtual_time
async def test_a_body_has_no_time_limit_here_and_does_not_extend_others() -> None:
    hall = Hall()
    body = hall.taken("body")
    hall.move(body, Stage.BODY)
    hall.taken("head")
    await asyncio.sleep(11)
    assert hall.closed == ["head"]
    hall.taken("late")
    await asyncio.sleep(11)
    assert hall.closed == ["head", "late"]


@pytest.mark.case(
    "many and long headers, and heads that never end",
    topic="Hostile input",
    source="CWE-770; CWE-400",
)
@on_virtual_time
async def test_the_bytes_of_all_incomplete_heads_are_bounded() -> None:
    hall = Hall(heads_together=100)
    first, second, third = (hall.taken(name) for name in "abc")
    hall.hear(first, 50)
    hall.hear(second, 20)
    hall.hear(second, 30)
    hall.move(second, Stage.SERVED)
    hall.hear(third, 50)
    assert hall.closed == []
    hall.hear(third, 1)
    assert hall.closed == ["a"]
    hall.hear(second, 1_000)  # a body of a served request, which has its own limits
    hall.hear(third, 49)
    assert hall.closed == ["a"]


@on_virtual_time
async def test_a_peer_at_its_limit_closes_its_own_connection() -> None:
    hall = Hall()
    hall.taken("other")
    served = hall.taken("mine-0", "me")
    hall.move(served, Stage.SERVED)
    hall.taken("mine-1", "me")
    hall.taken("mine-2", "me")
    assert hall.closed == []
    hall.taken("mine-3", "me")
    assert hall.closed == ["mine-1"]


@on_virtual_time
async def test_the_oldest_unfinished_requests_are_closed_first_and_then_idle_connections() -> None:
    hall = Hall()
    idle = hall.taken("idle")
    hall.move(idle, Stage.SERVED, Stage.IDLE)
    hall.move(hall.taken("served"), Stage.SERVED)
    body = hall.taken("body")
    await asyncio.sleep(1)
    hall.taken("head")
    await asyncio.sleep(1)
    hall.move(body, Stage.BODY)
    for name in "123":
        hall.move(hall.taken(name), Stage.SERVED)
    assert hall.closed == ["body", "head", "idle"]


@on_virtual_time
async def test_no_connection_is_closed_if_all_are_being_served() -> None:
    hall = Hall()
    places = [hall.taken(name) for name in "abcd"]
    for place in places:
        hall.move(place, Stage.SERVED)
    assert hall.take("e") is None
    hall.places.leave(places[3])
    hall.places.leave(places[3])
    assert hall.take("e") is not None
    assert len(hall.places) == 4
    assert hall.closed == []


@on_virtual_time
async def test_a_closed_connection_is_no_longer_counted() -> None:
    """The last callbacks of a connection may come after it was closed."""
    hall = Hall(heads_together=100)
    place = hall.taken("a")
    hall.hear(place, 60)
    hall.places.leave(place)
    hall.move(place, Stage.HEAD, Stage.IDLE)
    hall.hear(place, 60)
    hall.hear(hall.taken("b"), 100)
    await asyncio.sleep(9)
    assert (hall.closed, len(hall.places)) == ([], 1)


@on_virtual_time
async def test_connections_that_stay_open_at_the_end_are_closed() -> None:
    hall = Hall()
    leaving, _ = hall.taken("a"), hall.taken("b")
    asyncio.get_running_loop().call_later(1, hall.places.leave, leaving)
    await hall.places.empty(patience=2)
    assert hall.closed == ["b"]


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
