"""/healthz, /readyz and /metrics answer with what the controller reports."""

from collections.abc import Iterator

import pytest

from autoscaler.server.health import METRICS_AGE, PIECE_BYTES, joined
from tests.server.fakes import Backstage, Caller, running

TOKEN = "0123456789abcdef" * 2


async def test_a_healthy_controller_answers_200(caller: Caller) -> None:
    healthy, ready = await caller.get("/healthz"), await caller.get("/readyz")
    assert (healthy.status, healthy.json) == (200, {"healthy": True, "reasons": []})
    assert (ready.status, ready.json) == (200, {"ready": True, "reasons": []})


async def test_an_unhealthy_controller_answers_with_its_reason(caller: Caller) -> None:
    caller.behind.unhealthy = ["the control loop has made no pass for 31 s"]
    reply = await caller.get("/healthz")
    assert reply.status == 503
    assert reply.json == {
        "healthy": False,
        "reasons": ["the control loop has made no pass for 31 s"],
    }
    assert (await caller.get("/readyz")).status == 200


async def test_a_controller_that_is_not_ready_answers_with_every_reason(caller: Caller) -> None:
    caller.behind.unready = ["ledger not loaded", "GitHub has not answered yet"]
    reply = await caller.get("/readyz")
    assert reply.status == 503
    assert reply.json["reasons"] == ["ledger not loaded", "GitHub has not answered yet"]
    assert (await caller.get("/healthz")).status == 200


async def test_metrics_are_served(caller: Caller) -> None:
    reply = await caller.get("/metrics")
    assert (reply.status, reply.body) == (200, b"up 1\n")
    assert reply.headers["Content-Type"] == "text/plain; v=1"


def test_the_metrics_of_a_large_fleet_are_made_with_pauses_between_their_pieces() -> None:
    steps = []

    def pieces() -> Iterator[bytes]:
        for size in (PIECE_BYTES - 1, 1, 1, 3 * PIECE_BYTES, 7):
            steps.append(size)
            yield b"#" * size

    assert len(joined(pieces(), lambda: steps.append(0))) == 4 * PIECE_BYTES + 8
    assert steps == [PIECE_BYTES - 1, 1, 0, 1, 3 * PIECE_BYTES, 0, 7]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_health_answers_are_not_cached(caller: Caller, path: str) -> None:
    assert (await caller.get(path)).headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_health_endpoints_refuse_post(caller: Caller, path: str) -> None:
    assert (await caller.post(path)).status == 405


@pytest.mark.case(
    "strangers request the metrics, or request them all the time",
    topic="Hostile input",
    source="CWE-400; RFC 6750",
)
@pytest.mark.parametrize(("age", "scrapes"), [(3600.0, 1), (0.0, 20)])
async def test_metrics_are_rendered_at_most_once_in_their_cache_time(
    age: float, scrapes: int
) -> None:
    """A client that requests metrics constantly does not slow down deliveries."""
    behind = Backstage(metrics=((), age))
    async with running(behind) as caller:
        replies = [await caller.get("/metrics") for _ in range(20)]
    assert {reply.body for reply in replies} == {b"up 1\n"}
    assert behind.scrapes == scrapes
    assert METRICS_AGE == 1.0


@pytest.mark.case(
    "strangers request the metrics, or request them all the time",
    topic="Hostile input",
    source="CWE-400; RFC 6750",
)
@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer other"}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Authorization": f"Bearer {TOKEN}"}, 200),
    ],
)
async def test_metrics_need_the_configured_token(given: dict[str, str], status: int) -> None:
    async with running(Backstage(metrics=((b"old", TOKEN.encode()), 1.0))) as caller:
        reply = await caller.get("/metrics", headers=given)
        assert reply.status == status
        assert (reply.body == b"up 1\n") is (status == 200)
        assert reply.headers.get("WWW-Authenticate") == ("Bearer" if status == 401 else None)
        assert (await caller.get("/healthz")).status == 200
        assert (await caller.get("/readyz")).status == 200
