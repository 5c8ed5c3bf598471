"""Work that continues after its caller disconnected: its end, its errors, and its memory."""

import asyncio

import pytest
from structlog.testing import capture_logs

from autoscaler.server.completion import Completion
from autoscaler.server.refusal_log import LINES, WINDOW
from tests.controller.virtual_time import on_virtual_time


async def slow(done: list[str]) -> str:
    await asyncio.sleep(5.0)
    done.append("done")
    return "answer"


async def fails() -> None:
    await asyncio.sleep(1.0)
    raise LookupError


@on_virtual_time
async def test_completed_requests_are_not_kept() -> None:
    completion = Completion()
    assert await completion.run(slow([])) == "answer"
    with pytest.raises(LookupError):
        await completion.run(fails())
    await asyncio.sleep(0)
    assert not completion._running


@on_virtual_time
async def test_work_continues_after_its_caller_disconnects_and_its_error_is_logged() -> None:
    completion, done = Completion(), list[str]()
    callers = [asyncio.create_task(completion.run(work)) for work in (slow(done), fails())]
    await asyncio.sleep(0.5)
    for caller in callers:
        caller.cancel()
    with capture_logs() as logs:
        await asyncio.sleep(6.0)
    assert done == ["done"]
    assert [(line["event"], line["error"]) for line in logs] == [
        ("request_failed_after_disconnect", "LookupError")
    ]
    assert not completion._running


@on_virtual_time
async def test_many_disconnects_write_few_log_lines() -> None:
    completion = Completion()
    with capture_logs() as logs:
        for _ in range(LINES + 100):
            caller = asyncio.create_task(completion.run(fails()))
            await asyncio.sleep(0.1)
            caller.cancel()
        await asyncio.sleep(WINDOW)
    assert len(logs) == LINES + 1
    assert logs[-1]["suppressed"] == 100


@on_virtual_time
async def test_at_a_shutdown_work_has_a_time_limit_and_is_then_cancelled() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    completion, done = Completion(), list[str]()
    await completion.finish(60.0)
    assert loop.time() == began
    caller = asyncio.create_task(completion.run(slow(done)))
    await asyncio.sleep(0)
    await completion.finish(60.0)
    assert (done, loop.time() - began) == (["done"], 5.0)
    late = asyncio.create_task(completion.run(slow(done)))
    await asyncio.sleep(0)
    await completion.finish(2.0)
    assert (done, loop.time() - began) == (["done"], 7.0)
    assert await caller == "answer"
    with pytest.raises(asyncio.CancelledError):
        await late
