"""Runs the worker process: starts it, sends calls to it, and receives the answers.

Restarts a worker that ended. Raises ProviderError if AWS refused a call, and OutcomeUnknownError if
AWS may have carried it out. Does not repeat calls.
"""

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import Seconds
from autoscaler.providers.ec2.errors import meaning, outcome_unknown, unsent_failure_class
from autoscaler.providers.ec2.frames import HEADER, body_length, encode
from autoscaler.providers.ec2.settings import Timeouts

THREADS = 16
"""Maximum number of calls in flight. Further calls wait in the controller, without a timeout."""


class CallOutcomeUnknownError(OutcomeUnknownError):
    """A call with an unknown outcome. `code` is from EC2, or names the error of the connection."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Api(Protocol):
    """Makes calls to AWS."""

    async def call(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """Make one call; return its answer as JSON values. Raises ProviderError, OutcomeUnknownError."""

    async def close(self) -> None:
        """Release the resources. Idempotent."""


@dataclass(slots=True)
class _Running:
    """One worker process and the calls it has not answered."""

    process: Process
    reader: asyncio.Task[None] | None = None
    pending: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)
    ended: bool = False


class WorkerChannel:
    """An `Api` in a worker process, which the first call starts, and each call after its end."""

    def __init__(
        self, region: str, endpoint_url: str | None = None, timeouts: Timeouts | None = None
    ) -> None:
        self._timeouts = timeouts or Timeouts()
        self._setup = {
            "region": region,
            "endpoint_url": endpoint_url,
            "connect": self._timeouts.connect,
            "read": self._timeouts.read,
            "threads": THREADS,
        }
        self._running: _Running | None = None
        self._starting = asyncio.Lock()
        self._slots = asyncio.Semaphore(THREADS)
        self._last_id = 0
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The worker's process id, or None if no worker is running."""
        running = self._running
        return None if running is None or running.ended else running.process.pid

    async def start(self) -> None:
        """Start the worker before its first call, because its imports take most of a second."""
        await self._worker()

    async def call(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """Make one call, without retries. Raises ProviderError, OutcomeUnknownError (see `Api`)."""
        async with self._slots:
            answer = await self._exchange(operation, arguments)
        if "error" not in answer:
            return answer["result"]
        raise _failure(answer)

    async def close(self) -> None:
        """End the worker. Calls in flight get an unknown outcome."""
        self._closed = True
        async with self._starting:
            running, self._running = self._running, None
            if running is not None:
                await _end(running)

    async def _exchange(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        running = await self._worker()
        self._last_id += 1
        number = self._last_id
        frame = encode({"id": number, "operation": operation, "arguments": arguments})
        future = asyncio.get_running_loop().create_future()
        running.pending[number] = future
        try:
            async with asyncio.timeout(self._timeouts.answer):
                await _send(running, frame)
                answer: dict[str, Any] = await future
        except TimeoutError:
            # A call that hangs in spite of its timeouts blocks its thread, so a new worker is started.
            running.ended = True
            _kill(running.process)
            text = f"{operation} got no answer in {self._timeouts.answer:g} s"
            raise CallOutcomeUnknownError("WorkerTimeout", text) from None
        finally:
            running.pending.pop(number, None)
        return answer

    async def _worker(self) -> _Running:
        async with self._starting:
            if self._closed:
                raise ProviderError(FailureClass.UNKNOWN, "Closed", "the provider is closed")
            if self._running is None or self._running.ended:
                if self._running is not None:
                    await _end(self._running)
                self._running = await self._start()
            return self._running

    async def _start(self) -> _Running:
        # In its own session, so that Ctrl-C in a terminal does not end it before the controller.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "autoscaler.providers.ec2.worker",
            stdin=PIPE,
            stdout=PIPE,
            start_new_session=True,
        )
        running = _Running(process)
        running.reader = asyncio.create_task(_read_answers(running))
        await _send(running, encode(self._setup))
        return running


async def _send(running: _Running, frame: bytes) -> None:
    stdin = running.process.stdin
    assert stdin is not None
    # If the worker has ended, `_read_answers` fails every pending call.
    with contextlib.suppress(ConnectionError):
        stdin.write(frame)
        await stdin.drain()


async def _read_answers(running: _Running) -> None:
    stdout = running.process.stdout
    assert stdout is not None
    try:
        while True:
            header = await stdout.readexactly(HEADER.size)
            answer = json.loads(await stdout.readexactly(body_length(header)))
            future = running.pending.get(answer["id"])
            if future is not None and not future.done():
                future.set_result(answer)
    except (asyncio.IncompleteReadError, ConnectionError, ValueError):
        _kill(running.process)
    finally:
        running.ended = True
        for future in running.pending.values():
            if not future.done():
                future.set_exception(
                    CallOutcomeUnknownError("WorkerEnded", "the worker process ended")
                )


async def _end(running: _Running) -> None:
    stdin = running.process.stdin
    assert stdin is not None
    stdin.close()
    try:
        async with asyncio.timeout(_END_PATIENCE):
            await running.process.wait()
    except TimeoutError:
        _kill(running.process)
        await running.process.wait()
    if running.reader is not None:
        await running.reader


_END_PATIENCE: Seconds = 5.0


def _kill(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()


def _failure(answer: Mapping[str, Any]) -> Exception:
    code, message = answer["error"], answer["message"]
    if not answer["sent"]:
        return ProviderError(unsent_failure_class(code), code, message)
    if not answer["status"] or outcome_unknown(code, answer["status"]):
        return CallOutcomeUnknownError(code, message)
    found = meaning(code)
    seconds = _seconds(answer["retry_after"])
    return ProviderError(found.failure, code, message, seconds, found.scope)


def _seconds(text: str | None) -> Seconds | None:
    # Retry-After may also be a date, but EC2 does not send dates.
    return float(text) if text is not None and text.isdecimal() else None
