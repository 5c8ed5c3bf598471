"""Many refusals are all counted, and write a few log lines."""

import asyncio
import hashlib
import hmac

import pytest
from structlog.testing import capture_logs

from autoscaler.server.refusal_log import LINES, RefusalLog
from tests.controller.virtual_time import on_virtual_time
from tests.server.doubles import MACHINE
from tests.server.fakes import SECRET, Caller, delivery_headers


@on_virtual_time
async def test_a_window_has_a_few_lines_and_then_the_number_of_the_others() -> None:
    log = RefusalLog(lines=3, window=60.0)
    with capture_logs() as lines:
        for number in range(10):
            log.note("refused", peer=number)
        await asyncio.sleep(59.0)
        assert [line["peer"] for line in lines] == [0, 1, 2]
        await asyncio.sleep(2.0)
        assert lines[3:] == [
            {
                "event": "refused",
                "kind": [],
                "suppressed": 7,
                "within_s": 60.0,
                "log_level": "warning",
            }
        ]
        log.note("refused", peer=11)
        assert lines[-1]["peer"] == 11
        await asyncio.sleep(61.0)
    assert len(lines) == 5, "nothing was suppressed in the second window"


@on_virtual_time
async def test_each_kind_of_refusal_has_its_own_lines() -> None:
    """Many bad signatures do not hide the line about a signed malformed delivery."""
    log = RefusalLog(lines=1)
    with capture_logs() as lines:
        for _ in range(5):
            log.note("refused", "poll", "nonce", machine="a")
        log.note("refused", "poll", "ended", machine="b")
        log.note("malformed")
        await asyncio.sleep(61.0)
    assert [line.get("machine") for line in lines] == ["a", "b", None, None]
    assert (lines[-1]["kind"], lines[-1]["suppressed"]) == (["poll", "nonce"], 4)


@pytest.mark.case(
    "a flood of refusals does not flood the log",
    topic="Hostile input",
    source="CWE-779",
)
async def test_many_bad_signatures_write_few_log_lines(caller: Caller) -> None:
    headers = delivery_headers(b"{}") | {
        "X-Hub-Signature-256": "sha1=" + hmac.new(SECRET, b"{}", hashlib.sha1).hexdigest()
    }
    with capture_logs() as lines:
        for _ in range(3 * LINES):
            assert (await caller.post("/webhook", data=b"{}", headers=headers)).status == 401
        assert (await caller.deliver(b"{")).status == 400
    assert caller.behind.telemetry.deliveries["bad_signature"] == 3 * LINES
    assert {line["event"] for line in lines} == {"delivery_refused"}
    assert [line["code"] for line in lines] == [*["bad_signature"] * LINES, "malformed"]


async def test_many_unknown_nonces_write_few_log_lines(caller: Caller) -> None:
    with capture_logs() as lines:
        for number in range(3 * LINES):
            assert (await caller.send_step("heartbeat", nonce=f"{number:064x}")).status == 401
    assert caller.behind.telemetry.steps["heartbeat", "nonce"] == 3 * LINES
    assert [line["machine"] for line in lines] == [MACHINE] * LINES
    assert all("0" * 60 not in str(line) for line in lines), "no nonce is written"


async def test_many_refusals_of_one_step_do_not_hide_those_of_another(caller: Caller) -> None:
    with capture_logs() as lines:
        for number in range(2 * LINES):
            await caller.send_step("heartbeat", nonce=f"{number:064x}")
        await caller.send_step("may-release", nonce="f" * 64)
    assert [line["step"] for line in lines] == ["heartbeat"] * LINES + ["may-release"]


@pytest.mark.parametrize("path", ["/bootstrap/machines/../poll", "/bootstrap/machines/%2e%2e/poll"])
async def test_an_unauthenticated_requests_path_is_not_logged(caller: Caller, path: str) -> None:
    with capture_logs() as lines:
        assert (await caller.post(path, data=b"{}")).status in {400, 404}
    assert ".." not in str(lines)
