"""/healthz, /readyz and /metrics say what they are told."""

import pytest

from tests.server.fakes import Caller


async def test_well_and_ready(caller: Caller) -> None:
    healthy, ready = await caller.get("/healthz"), await caller.get("/readyz")
    assert (healthy.status, healthy.json) == (200, {"healthy": True, "reasons": []})
    assert (ready.status, ready.json) == (200, {"ready": True, "reasons": []})


async def test_unhealthy_says_why(caller: Caller) -> None:
    caller.behind.unhealthy = ["the loop has not turned for 31 s"]
    reply = await caller.get("/healthz")
    assert reply.status == 503
    assert reply.json == {"healthy": False, "reasons": ["the loop has not turned for 31 s"]}
    assert (await caller.get("/readyz")).status == 200


async def test_unready_says_every_reason(caller: Caller) -> None:
    caller.behind.unready = ["ledger not loaded", "GitHub has not answered yet"]
    reply = await caller.get("/readyz")
    assert reply.status == 503
    assert reply.json["reasons"] == ["ledger not loaded", "GitHub has not answered yet"]
    assert (await caller.get("/healthz")).status == 200


async def test_metrics_are_passed_on(caller: Caller) -> None:
    reply = await caller.get("/metrics")
    assert (reply.status, reply.body) == (200, b"up 1\n")
    assert reply.headers["Content-Type"] == "text/plain; v=1"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_they_are_for_reading(caller: Caller, path: str) -> None:
    assert (await caller.post(path)).status == 405
