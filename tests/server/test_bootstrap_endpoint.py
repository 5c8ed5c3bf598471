"""docs/bootstrap.md over real HTTP: every request and every status."""

import asyncio
import base64
import email.utils
import hashlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import aiohttp
import pytest

from autoscaler.server.machines.bootstrap import BootstrapEndpoint, BootstrapLimits
from autoscaler.server.machines.requests import MAX_DETAIL
from tests.patience import PATIENCE
from tests.server.doubles import MACHINE, NONCE, CountingTelemetry, ScriptedBootstrap
from tests.server.fakes import (
    AGENT,
    ASSIGNMENT,
    ATTESTATION,
    JIT_CONFIG,
    PROOF,
    STEPS,
    Backstage,
    Caller,
    running,
    until,
)


def counted(caller: Caller) -> dict[tuple[str, str], int]:
    return dict(caller.behind.telemetry.steps)


async def test_the_agent_is_served_with_its_hash(caller: Caller) -> None:
    reply = await caller.get("/bootstrap/agent.py")
    tag = f'"{hashlib.sha256(AGENT).hexdigest()}"'
    assert (reply.status, reply.body, reply.headers["ETag"]) == (200, AGENT, tag)
    again = await caller.get("/bootstrap/agent.py", headers={"If-None-Match": tag})
    assert (again.status, again.body, again.headers["ETag"]) == (304, b"", tag)
    for one in (reply, again):
        assert one.headers["Cache-Control"] == "no-cache"
    assert counted(caller) == {("agent", "ok"): 1, ("agent", "not_modified"): 1}


async def test_the_answer_to_an_attestation_has_the_machine_and_its_health_checks(
    caller: Caller,
) -> None:
    reply = await caller.post("/bootstrap/attest", json=ATTESTATION)
    assert reply.status == 200
    assert reply.json == {
        "machine": MACHINE,
        "sku": "linux.gpu",
        "health_checks": {"disk_gb": 10, "github": "https://github.com"},
    }
    assert caller.behind.bootstrap.said == [("attest", "us-east-1", PROOF, NONCE, 1, "1.0")]
    assert counted(caller) == {("attest", "ok"): 1}


async def test_a_proof_may_have_the_line_breaks_of_the_metadata_service(caller: Caller) -> None:
    broken = "\n".join(
        ATTESTATION["proof"][at : at + 8] for at in range(0, len(ATTESTATION["proof"]), 8)
    )
    assert (
        await caller.post("/bootstrap/attest", json=ATTESTATION | {"proof": broken})
    ).status == 200
    assert caller.behind.bootstrap.said[0][2] == PROOF


async def test_answers_have_the_date_header_for_the_clock_check(caller: Caller) -> None:
    before = time.time()
    reply = await caller.post("/bootstrap/attest", json=ATTESTATION)
    sent = email.utils.parsedate_to_datetime(reply.headers["Date"]).timestamp()
    assert before - 1 <= sent <= time.time()


@pytest.mark.parametrize(
    ("step", "status", "answer", "said"),
    [
        ("stage", 204, None, ("stage", "driver")),
        ("health-checks", 204, None, ("health-checks", True, "", "")),
        ("poll", 200, {"state": "ready"}, ("poll", 0)),
        ("acknowledge", 204, None, ("acknowledge", "ci-0123-m-1")),
        ("heartbeat", 204, None, ("heartbeat",)),
        ("may-release", 200, {"allowed": True}, ("may_release",)),
        ("release", 200, {"status": 422}, ("release",)),
        ("exit", 204, None, ("exited", "runner left", "unknown")),
    ],
)
async def test_each_step_reaches_the_port(
    caller: Caller, step: str, status: int, answer: object, said: tuple[object, ...]
) -> None:
    reply = await caller.send_step(step, STEPS[step])
    assert reply.status == status
    assert (reply.json if reply.body else None) == answer
    assert caller.behind.bootstrap.said == [said]
    assert counted(caller) == {(step, "ok"): 1}


async def test_keys_of_a_later_agent_are_ignored_and_an_empty_body_is_an_empty_object(
    caller: Caller,
) -> None:
    assert (await caller.send_step("heartbeat", {"load": 0.5})).status == 204
    bare = await caller.post(
        f"/bootstrap/machines/{MACHINE}/heartbeat", headers={"Authorization": f"Bearer {NONCE}"}
    )
    assert bare.status == 204


@pytest.mark.case(
    "secrets in a parameter store that throttles and fills up",
    topic="Complaints about other fleets",
    source="GAR#5135; GAR#1841; GAR#2944; pytorch#67625",
)
async def test_an_assignment_is_sent_once_with_cache_control_no_store(caller: Caller) -> None:
    caller.behind.bootstrap.assignment = ASSIGNMENT
    reply = await caller.send_step("poll", {"wait": 50})
    assert reply.json == {
        "state": "assigned",
        "runner": ASSIGNMENT.runner,
        "jit_config": JIT_CONFIG,
        "job": ASSIGNMENT.job,
    }
    assert ASSIGNMENT.job
    assert reply.headers["Cache-Control"] == "no-store"
    assert (await caller.send_step("poll", {"wait": 0})).json == {"state": "ready"}


async def test_the_summary_of_failed_health_checks_is_bounded(caller: Caller) -> None:
    checks = [
        {"name": "disk", "ok": False, "detail": "3 GB\x1b[2J\nfree" + "!" * 5_000},
        {"name": "clock", "ok": True, "detail": "fine"},
    ]
    assert (
        await caller.send_step("health-checks", {"passed": False, "checks": checks})
    ).status == 204
    ((_, passed, detail, _),) = caller.behind.bootstrap.said
    assert passed is False
    assert isinstance(detail, str)
    assert detail.startswith("disk: 3 GB [2J free!!!")
    assert len(detail) == MAX_DETAIL
    assert detail.isprintable()


async def test_the_summary_of_passed_health_checks_is_their_names(caller: Caller) -> None:
    checks = [{"name": name, "ok": True, "detail": "fine"} for name in ("disk", "clock")]
    await caller.send_step("health-checks", {"passed": True, "checks": checks})
    assert caller.behind.bootstrap.said == [("health-checks", True, "disk, clock", "")]


@pytest.mark.parametrize(
    ("detail", "ok", "version"),
    [
        ("2.336.0", True, "2.336.0"),
        ("2.336.0", False, ""),
        ("not known: no answer in 60 s", True, ""),
        ("2" * 33, True, ""),
        ("2.336.0\n", True, ""),
    ],
)
async def test_the_runner_version_comes_from_the_health_check_of_that_name(
    caller: Caller, detail: str, ok: bool, version: str
) -> None:
    checks = [{"name": "runner_version", "ok": ok, "detail": detail}]
    assert (
        await caller.send_step("health-checks", {"passed": True, "checks": checks})
    ).status == 204
    assert caller.behind.bootstrap.said[0][3] == version


@pytest.mark.parametrize(
    ("said", "reason"),
    [("version_deprecated", "version_deprecated"), ("jobless", "unknown"), ("", "unknown")],
)
async def test_an_exit_report_has_a_known_reason_and_no_jit_configuration(
    caller: Caller, said: str, reason: str
) -> None:
    configuration = base64.b64encode(b'{".runner": "' + b"x" * 900).decode()
    detail = f"Failed: {'!' * 900} {configuration}\x1b[2J refused"
    assert (await caller.send_step("exit", {"detail": detail, "reason": said})).status == 204
    kept = f"Failed: {'!' * 900} [redacted] [2J refused"
    assert caller.behind.bootstrap.said == [("exited", kept, reason)]


async def test_nothing_of_a_stranger_s_body_is_read(caller: Caller) -> None:
    answer = await caller.post(
        f"/bootstrap/machines/{MACHINE}/exit",
        data=b"{",
        headers={"Authorization": f"Bearer {'0' * 64}"},
    )
    assert (answer.status, answer.json) == (401, {"error": "nonce"})


async def test_attestations_are_checked_a_few_at_a_time() -> None:
    behind = Backstage(bootstrap_limits=BootstrapLimits(attestations=2, queued=0))
    async with running(behind) as caller:
        behind.bootstrap.go_on.clear()
        first = [
            asyncio.create_task(caller.post("/bootstrap/attest", json=ATTESTATION)) for _ in "ab"
        ]
        await until(lambda: behind.bootstrap.asked == 2)
        third = await caller.post("/bootstrap/attest", json=ATTESTATION)
        assert (third.status, third.json) == (429, {"error": "busy"})
        assert int(third.headers["Retry-After"]) >= 1
        behind.bootstrap.go_on.set()
        assert [(await reply).status for reply in first] == [200, 200]
        assert (await caller.post("/bootstrap/attest", json=ATTESTATION)).status == 200


async def test_a_few_more_attestations_wait_to_be_checked() -> None:
    behind = Backstage(bootstrap_limits=BootstrapLimits(attestations=1, queued=2))
    async with running(behind) as caller:
        behind.bootstrap.go_on.clear()
        said = [
            asyncio.create_task(caller.post("/bootstrap/attest", json=ATTESTATION)) for _ in "abcd"
        ]
        (refused,), waiting = await asyncio.wait(said, return_when=asyncio.FIRST_COMPLETED)
        assert (await refused).status == 429
        assert behind.bootstrap.asked == 1
        behind.bootstrap.go_on.set()
        assert [(await reply).status for reply in waiting] == [200, 200, 200]


async def test_a_queued_attestation_whose_caller_disconnects_frees_its_place() -> None:
    behind = Backstage(bootstrap_limits=BootstrapLimits(attestations=1, queued=1))
    async with running(behind) as caller:
        behind.bootstrap.go_on.clear()
        checked = asyncio.create_task(caller.post("/bootstrap/attest", json=ATTESTATION))
        await until(lambda: behind.bootstrap.asked == 1)
        for round_ in range(1, 4):
            said = [
                asyncio.create_task(caller.post("/bootstrap/attest", json=ATTESTATION))
                for _ in "ab"
            ]
            # One of them is refused, and the other one waits in the only place.
            (refused,), (queued,) = await asyncio.wait(
                said, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE
            )
            assert (await refused).status == 429
            queued.cancel()
            hung_up = {("attest", "aborted"): round_, ("attest", "busy"): round_}
            await until(partial(lambda reported: counted(caller) == reported, hung_up))
        queued = asyncio.create_task(caller.post("/bootstrap/attest", json=ATTESTATION))
        await until(lambda: behind.bootstrap.asked == 1)
        behind.bootstrap.go_on.set()
        assert [(await one).status for one in (checked, queued)] == [200, 200]


async def test_an_attestation_that_waits_for_a_listing_does_not_block_others() -> None:
    behind = Backstage(bootstrap_limits=BootstrapLimits(attestations=2, queued=0))
    async with running(behind) as caller:
        behind.bootstrap.listed.clear()
        waiting = []
        for _ in range(6):
            waiting.append(asyncio.create_task(caller.post("/bootstrap/attest", json=ATTESTATION)))
            await until(
                lambda: behind.bootstrap.asked == len(waiting) or any(one.done() for one in waiting)
            )
        behind.bootstrap.listed.set()
        assert [(await reply).status for reply in waiting] == [200] * 6


async def test_a_machine_that_disconnects_ends_its_poll(caller: Caller) -> None:
    async with aiohttp.ClientSession(f"http://{caller.serving.address}") as machine:
        poll = asyncio.create_task(
            machine.post(
                f"/bootstrap/machines/{MACHINE}/poll",
                json={"wait": 50},
                headers={"Authorization": f"Bearer {NONCE}"},
            )
        )
        await caller.behind.bootstrap.polling.wait()
        poll.cancel()
        with pytest.raises(asyncio.CancelledError):
            await poll
    async with asyncio.timeout(PATIENCE):
        await caller.behind.bootstrap.poll_cancelled.wait()
    await until(lambda: counted(caller) == {("poll", "aborted"): 1})
    assert (await caller.send_step("heartbeat")).status == 204


async def test_a_machines_request_is_carried_out_although_it_disconnects(caller: Caller) -> None:
    bootstrap = caller.behind.bootstrap
    bootstrap.go_on.clear()
    address = caller.serving.address
    _, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(
        f"POST /bootstrap/machines/{MACHINE}/exit HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
        f"Authorization: Bearer {NONCE}\r\n\r\n{{}}".encode()
    )
    await until(lambda: bootstrap.asked == 1)
    writer.close()
    await until(lambda: counted(caller) == {("exit", "aborted"): 1})
    assert bootstrap.said == []
    bootstrap.go_on.set()
    await until(lambda: bootstrap.said == [("exited", "", "unknown")])


async def test_an_assignment_for_a_disconnected_machine_causes_no_error(caller: Caller) -> None:
    bootstrap = caller.behind.bootstrap
    bootstrap.go_on.clear()
    bootstrap.assignment = ASSIGNMENT
    address = caller.serving.address
    _, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(
        f"POST /bootstrap/machines/{MACHINE}/poll HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n"
        f'Authorization: Bearer {NONCE}\r\n\r\n{{"wait": 50}}'.encode()
    )
    await until(lambda: bootstrap.asked == 1)
    # The assignment is made in the same turn of the event loop in which the connection breaks.
    writer.transport.abort()
    bootstrap.go_on.set()
    await until(lambda: sum(counted(caller).values()) == 1)
    assert (await caller.send_step("heartbeat")).status == 204


async def test_answered_polls_are_not_kept_in_memory() -> None:
    """A machine polls for hours, so data kept for each poll would fill the memory."""

    @asynccontextmanager
    async def body() -> AsyncIterator[bytes]:
        yield b'{"wait": 0}'

    endpoint = BootstrapEndpoint(ScriptedBootstrap(), AGENT, CountingTelemetry())
    for _ in range(3):
        answer = await endpoint.receive_step("poll", MACHINE, f"Bearer {NONCE}", body)
        assert answer.status == 200
    assert endpoint._polls == set()
