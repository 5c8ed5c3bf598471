"""docs/bootstrap.md over real HTTP: every refusal, and the requests that never reach the port."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.ports.bootstrap import (
    BootstrapRefusedError,
    NotKnownYetError,
)
from autoscaler.controller.ports.store import StoreError
from autoscaler.server.bodies import BodyRefusedError
from autoscaler.server.machines.requests import Refusal, refusal_of
from tests.server.doubles import MACHINE, NONCE
from tests.server.fakes import (
    ATTESTATION,
    STEPS,
    Caller,
)


def counted(caller: Caller) -> dict[tuple[str, str], int]:
    return dict(caller.behind.telemetry.steps)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (400, "malformed"),
        (401, "signature"),
        (401, "nonce"),
        (403, "launch_time"),
        (409, "second_assignment"),
        (409, "expired"),
        (410, "ended"),
        (426, "protocol"),
        (429, "slow_down"),
    ],
)
@pytest.mark.parametrize("step", ["attest", *STEPS])
async def test_a_refusal_is_answered_counted_and_logged(
    caller: Caller, step: str, status: int, reason: str
) -> None:
    caller.behind.bootstrap.error = BootstrapRefusedError(status, reason)
    with capture_logs() as logs:
        reply = await (
            caller.post("/bootstrap/attest", json=ATTESTATION)
            if step == "attest"
            else caller.send_step(step, STEPS[step])
        )
    assert (reply.status, reply.json) == (status, {"error": reason})
    assert ("Retry-After" in reply.headers) == (status == 429)
    assert counted(caller) == {(step, reason): 1}
    assert {line["event"] for line in logs} == {"bootstrap_request_refused"}
    (line,) = logs
    assert (line["step"], line["status"], line["reason"]) == (step, status, reason)
    assert line["machine"] == (None if step == "attest" else MACHINE)
    assert NONCE not in repr(logs)
    assert ATTESTATION["proof"] not in repr(logs)


@pytest.mark.parametrize(("seconds", "header"), [(0.2, "1"), (2.5, "3"), (30, "30")])
async def test_an_unknown_machine_may_attest_again(
    caller: Caller, seconds: float, header: str
) -> None:
    caller.behind.bootstrap.error = NotKnownYetError(seconds)
    reply = await caller.post("/bootstrap/attest", json=ATTESTATION)
    assert (reply.status, reply.json) == (503, {"error": "not_known_yet"})
    assert reply.headers["Retry-After"] == header
    assert counted(caller) == {("attest", "not_known_yet"): 1}


async def test_a_request_that_could_not_be_stored_is_not_acknowledged(caller: Caller) -> None:
    caller.behind.bootstrap.error = StoreError("disk full")
    reply = await caller.send_step("acknowledge", STEPS["acknowledge"])
    assert (reply.status, reply.json) == (503, {"error": "store_failed"})
    assert "Retry-After" in reply.headers


def test_a_request_whose_body_lost_its_memory_may_be_sent_again() -> None:
    assert refusal_of(BodyRefusedError("busy")) == Refusal(503, "busy", 5.0)


async def test_an_unexpected_error_is_answered_500_and_counted(caller: Caller) -> None:
    caller.behind.bootstrap.error = LookupError()
    assert (await caller.send_step("heartbeat")).status == 500
    assert counted(caller) == {("heartbeat", "failed"): 1}


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer abc", f"Basic {NONCE}", f"Bearer {NONCE}0", "Bearer " + "é" * 64],
)
@pytest.mark.parametrize("step", STEPS)
async def test_a_request_without_a_nonce_is_refused(
    caller: Caller, step: str, authorization: str | None
) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    reply = await caller.post(
        f"/bootstrap/machines/{MACHINE}/{step}", json=STEPS[step], headers=headers
    )
    assert (reply.status, reply.json) == (401, {"error": "nonce"})
    assert counted(caller) == {(step, "nonce"): 1}
    assert caller.behind.bootstrap.said == []


async def test_another_nonce_is_refused_by_the_port(caller: Caller) -> None:
    assert (await caller.send_step("heartbeat", nonce="00" * 32)).status == 401
    assert caller.behind.bootstrap.said == []


@pytest.mark.parametrize(
    "change",
    [
        {"protocol": "1"},
        {"protocol": True},
        {"protocol": -1},
        {"protocol": None},
        {"provider": ""},
        {"provider": "a b"},
        {"provider": "x" * 65},
        {"proof": "not base64!"},
        {"proof": "YQ"},
        {"proof": 5},
        {"proof": ["YQ=="]},
        {"nonce": "0f" * 31},
        {"nonce": "0g" * 32},
        {"nonce": NONCE + "\n"},
        {"agent": "x" * 65},
        {"agent": 1},
    ],
)
async def test_a_malformed_attestation_never_reaches_the_port(
    caller: Caller, change: dict[str, Any]
) -> None:
    reply = await caller.post("/bootstrap/attest", json=ATTESTATION | change)
    assert (reply.status, reply.json) == (400, {"error": "malformed"})
    assert counted(caller) == {("attest", "malformed"): 1}
    assert caller.behind.bootstrap.said == []


@pytest.mark.parametrize(
    ("step", "body"),
    [
        ("stage", {}),
        ("stage", {"stage": "two words"}),
        ("stage", {"stage": "x" * 65}),
        ("health-checks", {"checks": []}),
        ("health-checks", {"passed": 1}),
        ("health-checks", {"passed": True, "checks": [{"name": "a", "ok": True}] * 65}),
        ("health-checks", {"passed": True, "checks": [{"name": "disk"}]}),
        ("poll", {}),
        ("poll", {"wait": 51}),
        ("poll", {"wait": -1}),
        ("poll", {"wait": "5"}),
        ("poll", {"wait": float("nan")}),
        ("acknowledge", {}),
        ("acknowledge", {"runner": "a/b"}),
        ("heartbeat", []),
        ("heartbeat", 5),
        ("exit", {"detail": None}),
    ],
)
async def test_a_malformed_step_never_reaches_the_port(
    caller: Caller, step: str, body: object
) -> None:
    reply = await caller.send_step(step, body)
    assert (reply.status, reply.json) == (400, {"error": "malformed"})
    assert counted(caller) == {(step, "malformed"): 1}
    assert caller.behind.bootstrap.said == []


@pytest.mark.parametrize(
    "body", [b"\xff\xfe", b"{", b"[" * 60_000, b'{"wait":1' + b" " * 65_600 + b"}"]
)
async def test_bodies_that_are_not_bounded_json_are_refused(caller: Caller, body: bytes) -> None:
    reply = await caller.post(
        f"/bootstrap/machines/{MACHINE}/poll",
        data=body,
        headers={"Authorization": f"Bearer {NONCE}"},
    )
    assert reply.status == 400
    assert reply.json["error"] == ("too_large" if len(body) > 65_536 else "malformed")
    assert caller.behind.bootstrap.said == []


@pytest.mark.parametrize("machine", ["a" * 65, "..%2f..", "a%20b", "-", "%00", "é"])
async def test_a_machine_id_out_of_bounds_is_refused_and_not_logged(
    caller: Caller, machine: str
) -> None:
    with capture_logs() as logs:
        reply = await caller.post(
            f"/bootstrap/machines/{machine}/heartbeat",
            headers={"Authorization": f"Bearer {NONCE}"},
        )
    assert reply.status in (400, 404)
    assert all(line["machine"] is None for line in logs)
    assert caller.behind.bootstrap.said == []
