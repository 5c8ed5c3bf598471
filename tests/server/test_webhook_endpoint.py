"""Which deliveries are stored, and how each is answered and counted."""

import asyncio
import hashlib
import hmac
import io
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from structlog.testing import capture_logs

from autoscaler.controller.ports.store import Delivery
from autoscaler.model.deliveries import DeliveryAnswer
from autoscaler.server.webhook import ANSWERS, MESSAGES, WebhookEndpoint, WebhookLimits
from tests.patience import PATIENCE
from tests.server.doubles import reading
from tests.server.fakes import (
    SECRET,
    Backstage,
    Caller,
    delivery_headers,
    parse_job,
    running,
    until,
    verify,
)

JOB = json.dumps({"action": "queued", "workflow_job": {"id": 7, "labels": ["gpu"]}}).encode()


def refused(status: int, code: str) -> tuple[int, dict[str, str]]:
    """Return the answer to a refused delivery."""
    return status, {"error": code, "reason": MESSAGES[DeliveryAnswer(code)]}


def counted(caller: Caller) -> dict[str, int]:
    return dict(caller.behind.telemetry.deliveries)


async def test_a_delivery_is_stored_unchanged(caller: Caller) -> None:
    reply = await caller.deliver(JOB, "0b989ba4-242f-11e5-81e1-c7b6966d2516")
    assert (reply.status, reply.json) == (202, {"result": "accepted"})
    (kept,) = caller.behind.inbox.kept.values()
    assert (kept.id, kept.event) == ("0b989ba4-242f-11e5-81e1-c7b6966d2516", "workflow_job")
    assert (kept.body, kept.received_at) == (JOB, 1_000_000.0)
    assert counted(caller) == {"accepted": 1}


async def test_a_repeated_delivery_is_stored_once(caller: Caller) -> None:
    assert (await caller.deliver(JOB)).status == 202
    again = await caller.deliver(JOB)
    assert (again.status, again.json) == (200, {"result": "duplicate"})
    assert counted(caller) == {"accepted": 1, "duplicate": 1}


@pytest.mark.parametrize(
    ("event", "status", "word"),
    [("ping", 200, "ping"), ("workflow_run", 202, "ignored"), ("projects_v2_item", 202, "ignored")],
)
async def test_other_events_are_answered_and_not_stored(
    caller: Caller, event: str, status: int, word: str
) -> None:
    reply = await caller.deliver(b"{}", event=event)
    assert (reply.status, reply.json) == (status, {"result": word})
    assert counted(caller) == {word: 1}
    assert caller.behind.inbox.asked == 0


async def test_the_body_of_another_event_is_not_read(caller: Caller) -> None:
    """It may have 25 MB."""
    headers = {"X-GitHub-Event": "push", "Content-Type": "application/json"}
    reply = await caller.post("/webhook", data=io.BytesIO(b"x" * 2**21), headers=headers)
    assert (reply.status, reply.json) == (202, {"result": "ignored"})


async def test_a_delivery_with_an_unknown_action_is_ignored(caller: Caller) -> None:
    reply = await caller.deliver(b'{"action": "invented"}')
    assert (reply.status, reply.json) == (202, {"result": "ignored"})
    assert caller.behind.inbox.asked == 0


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "sha256=",
        "sha256=" + "0" * 64,
        "sha256=" + "é" * 64,
        "sha256=" + "0" * 1_900,
        "sha1=" + hmac.new(SECRET, JOB, hashlib.sha1).hexdigest(),
    ],
)
async def test_an_unsigned_delivery_is_neither_parsed_nor_stored(
    caller: Caller, header: str | None
) -> None:
    headers = delivery_headers(JOB)
    del headers["X-Hub-Signature-256"]
    if header is not None:
        headers["X-Hub-Signature-256"] = header
    reply = await caller.post("/webhook", data=JOB, headers=headers)
    assert (reply.status, reply.json) == refused(401, "bad_signature")
    assert counted(caller) == {"bad_signature": 1}
    assert caller.behind.inbox.asked == 0


async def test_the_old_sha1_header_alone_proves_nothing(caller: Caller) -> None:
    headers = delivery_headers(JOB)
    del headers["X-Hub-Signature-256"]
    headers["X-Hub-Signature"] = "sha1=" + hmac.new(SECRET, JOB, hashlib.sha1).hexdigest()
    assert (await caller.post("/webhook", data=JOB, headers=headers)).status == 401


async def test_a_signature_of_another_body_proves_nothing(caller: Caller) -> None:
    reply = await caller.post("/webhook", data=JOB + b" ", headers=delivery_headers(JOB))
    assert reply.status == 401
    assert caller.behind.inbox.asked == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'{"action": "queued"',
        '{"action": "quéued"}'.encode("latin-1"),
        b"[" * 100_000 + b"]" * 100_000,
        b'{"action":' * 50_000,
    ],
)
async def test_a_signed_body_that_is_not_a_job_is_refused(caller: Caller, body: bytes) -> None:
    with capture_logs() as logs:
        reply = await caller.deliver(body, "d-1")
    assert (reply.status, reply.json) == refused(400, "malformed")
    assert counted(caller) == {"malformed": 1}
    assert caller.behind.inbox.asked == 0
    (line,) = logs
    assert (line["event"], line["code"], line["delivery"]) == (
        "delivery_refused",
        "malformed",
        "d-1",
    )


@pytest.mark.parametrize(
    "headers",
    [
        {"X_GitHub_Delivery": ""},
        {"X_GitHub_Delivery": "a" * 65},
        {"X_GitHub_Delivery": "../../etc"},
        {"X_GitHub_Delivery": "-1"},
        {"X_GitHub_Event": ""},
        {"X_GitHub_Event": "a" * 65},
        {"X_GitHub_Event": "Workflow Job"},
    ],
)
async def test_headers_out_of_bounds_are_refused(caller: Caller, headers: dict[str, str]) -> None:
    with capture_logs() as logs:
        reply = await caller.deliver(JOB, **headers)
    assert (reply.status, reply.json) == refused(400, "malformed")
    assert caller.behind.inbox.asked == 0
    (line,) = logs
    assert (line["event"], line["code"], line["peer"]) == (
        "delivery_refused",
        "malformed",
        "127.0.0.1",
    )
    assert "X-GitHub-Event" in line["reason"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Content_Type": "application/x-www-form-urlencoded"},
        {"Content_Type": "text/json"},
        {"Content_Encoding": "gzip"},
    ],
)
async def test_only_plain_json_is_read(caller: Caller, headers: dict[str, str]) -> None:
    with capture_logs() as logs:
        reply = await caller.deliver(JOB, **headers)
    assert (reply.status, reply.json) == refused(415, "unsupported_type")
    assert [(line["event"], line["code"]) for line in logs] == [
        ("delivery_refused", "unsupported_type")
    ]
    assert counted(caller) == {"unsupported_type": 1}


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("beyond", [1, 200_000])
async def test_a_body_beyond_the_limit_is_refused(chunked: bool, beyond: int) -> None:
    behind = Backstage(webhook_limits=WebhookLimits(body=200_000))
    async with running(behind) as caller:
        start = b'{"action":"queued","x":"'
        body = start + b"x" * (200_000 + beyond - len(start) - 2) + b'"}'

        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, len(body), 50_000):
                yield body[at : at + 50_000]

        data = pieces() if chunked else body
        reply = await caller.post("/webhook", data=data, headers=delivery_headers(body))
        assert (reply.status, reply.json) == refused(413, "too_large")
        assert counted(caller) == {"too_large": 1}
        whole = b'{"action":"queued","x":"' + b"x" * 150_000 + b'"}'
        assert (await caller.deliver(whole)).status == 202


async def test_a_body_without_a_declared_length_is_refused_as_soon_as_it_is_too_large() -> None:
    behind = Backstage(webhook_limits=WebhookLimits(body=1_000))
    async with running(behind) as caller:
        address = caller.serving.address
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(
            b"POST /webhook HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        writer.write(b"3e9\r\n" + b"x" * 1_001 + b"\r\n")
        assert b" 413 " in await reader.readline()
        writer.close()
        assert counted(caller) == {"too_large": 1}


async def test_a_missing_body_times_out() -> None:
    behind = Backstage(webhook_limits=WebhookLimits(body_timeout=0.05))
    async with running(behind) as caller:
        address = caller.serving.address
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(
            b"POST /webhook HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100\r\n\r\n{"
        )
        assert b" 408 " in await reader.readline()
        writer.close()
        assert counted(caller) == {"too_slow": 1}


async def test_a_peer_that_disconnects_during_its_body_is_counted() -> None:
    behind = Backstage()
    async with running(behind) as caller:
        address = caller.serving.address
        _, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(
            b"POST /webhook HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100\r\n\r\n{"
        )
        await writer.drain()
        await caller.get("/healthz")
        writer.close()
        await until(lambda: counted(caller) == {"aborted": 1})
        assert (await caller.deliver(JOB)).status == 202


async def test_a_delivery_is_dated_at_its_arrival() -> None:
    behind, seen = Backstage(), list[tuple[bytes, float]]()

    def parse(body: bytes, at: float) -> object:
        seen.append((body, at))
        return parse_job(body, at)

    endpoint = WebhookEndpoint(
        verify, reading(parse, behind.inbox.accept), behind.clock, behind.telemetry
    )
    async with running(behind, webhook=endpoint) as caller:
        assert (await caller.deliver(JOB, "d-1")).status == 202
    assert seen == [(JOB, behind.clock.moment)]
    assert behind.inbox.kept["d-1"].received_at == behind.clock.moment


async def test_a_delivery_that_could_not_be_stored_is_not_acknowledged(caller: Caller) -> None:
    caller.behind.inbox.broken = True
    with capture_logs() as logs:
        reply = await caller.deliver(JOB, "d-1")
    assert (reply.status, reply.json) == refused(503, "store_failed")
    assert [(line["event"], line["delivery"], line["reason"]) for line in logs] == [
        ("delivery_not_stored", "d-1", "disk full")
    ]
    assert reply.headers["Content-Type"] == "application/json"
    assert int(reply.headers["Retry-After"]) >= 1
    caller.behind.inbox.broken = False
    assert (await caller.deliver(JOB)).status == 202
    assert counted(caller) == {"store_failed": 1, "accepted": 1}


async def test_no_answer_before_the_delivery_is_durable(caller: Caller) -> None:
    caller.behind.inbox.open.clear()
    answer = asyncio.create_task(caller.deliver(JOB))
    await until(lambda: caller.behind.inbox.asked == 1)
    assert not answer.done()
    caller.behind.inbox.open.set()
    assert (await answer).status == 202
    assert list(caller.behind.inbox.kept) == ["1"]


async def test_many_waiting_deliveries_are_all_accepted() -> None:
    behind = Backstage(webhook_limits=WebhookLimits(store_stalled=PATIENCE))
    async with running(behind) as caller:
        behind.inbox.open.clear()
        waiting = [asyncio.create_task(caller.deliver(JOB, str(n))) for n in range(50)]
        await until(lambda: behind.inbox.asked == 50)
        behind.inbox.open.set()
        assert {reply.status for reply in await asyncio.gather(*waiting)} == {202}
        assert counted(caller) == {"accepted": 50}


@pytest.mark.case(
    "GitHub waits 10 seconds for a 2xx, and does not retry",
    topic="GitHub's events",
    source="GitHub: respond within 10 seconds",
)
async def test_deliveries_are_refused_while_the_store_ends_no_write() -> None:
    """With a limit of zero, a waiting delivery is too old as soon as the next one arrives."""
    behind = Backstage(webhook_limits=WebhookLimits(store_stalled=0.0, recheck=0.0))
    async with running(behind) as caller:
        behind.inbox.open.clear()
        waiting = asyncio.create_task(caller.deliver(JOB, "early"))
        await until(lambda: behind.inbox.asked == 1)
        shed = await caller.deliver(JOB, "late")
        assert (shed.status, shed.json) == refused(503, "store_stalled")
        assert int(shed.headers["Retry-After"]) >= 1
        behind.inbox.open.set()
        assert (await waiting).status == 202
        assert (await caller.deliver(JOB, "late")).status == 202
        assert counted(caller) == {"accepted": 2, "store_stalled": 1}


async def test_a_delivery_is_stored_although_github_disconnects(caller: Caller) -> None:
    inbox = caller.behind.inbox
    inbox.open.clear()
    async with aiohttp.ClientSession(f"http://{caller.serving.address}") as github:
        request = asyncio.create_task(
            github.post("/webhook", data=JOB, headers=delivery_headers(JOB, "7"))
        )
        await until(lambda: inbox.asked == 1)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
    await until(lambda: counted(caller) == {"aborted": 1})
    inbox.open.set()
    await until(lambda: list(inbox.kept) == ["7"])
    assert (await caller.deliver(JOB, "7")).json == {"result": "duplicate"}


async def test_an_unexpected_error_is_answered_500_and_counted() -> None:
    async def defective(_: Delivery) -> bool:
        raise LookupError

    behind = Backstage()
    endpoint = WebhookEndpoint(
        verify, reading(parse_job, defective), behind.clock, behind.telemetry
    )
    async with running(behind, webhook=endpoint) as caller:
        assert (await caller.deliver(JOB)).status == 500
        assert counted(caller) == {"failed": 1}


async def test_other_methods_and_paths_are_refused_as_json(caller: Caller) -> None:
    wrong_method = await caller.get("/webhook")
    assert (wrong_method.status, wrong_method.json) == (405, {"error": "method_not_allowed"})
    assert wrong_method.headers["Allow"] == "POST"
    nowhere = await caller.post("/webhooks")
    assert (nowhere.status, nowhere.json) == (404, {"error": "not_found"})
    assert counted(caller) == {}


def test_every_answer_is_one_that_github_understands() -> None:
    assert all(status in range(200, 600) for status in ANSWERS.values())
    assert {word for word, status in ANSWERS.items() if status < 300} == {
        "accepted",
        "duplicate",
        "ignored",
        "ping",
    }


def test_every_outcome_has_an_answer_and_every_refusal_a_message() -> None:
    """aiohttp answers a bug with 500, and a sender that disconnected gets no answer."""
    assert set(DeliveryAnswer) - set(ANSWERS) == {DeliveryAnswer.FAILED, DeliveryAnswer.ABORTED}
    assert set(MESSAGES) == {answer for answer, status in ANSWERS.items() if status >= 400}
