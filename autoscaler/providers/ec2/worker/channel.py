"""Runs the worker process: starts it, sends calls to it, and receives the answers.

A call and its answer are JSON objects, one in each line. Restarts a worker that ended. Raises ProviderError
if AWS refused a call, and OutcomeUnknownError if AWS may have carried it out. Does not repeat calls. Sends one
that changes something only while this process leads, and waits no longer for its answer.
docs/adr/0015-lines-of-json-to-the-aws-worker.md says why this is no library.
"""

import asyncio
import contextlib
import json
import math
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.controller.ports.replicas import LEADER_CLOCK, Leads, leads_forever
from autoscaler.model.identifiers import Seconds
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.ec2.errors import (
    HINTS,
    NOT_LEADING,
    meaning,
    outcome_unknown,
    unsent_failure_class,
)
from autoscaler.providers.ec2.worker.operations import OPERATIONS

THREADS = 16
"""Maximum number of calls in flight. Further calls wait in the controller, without a timeout."""

MAX_LINE = 64 * 1024 * 1024
"""Bytes. No answer is as long: a page of 500 machines has some 120 KB."""


MAX_PAGES = 1000
"""Pages of one list. EC2 sometimes returns the same token endlessly (aws/aws-sdk-java-v2#927)."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long one request to AWS may take, in real seconds.

    `answer` limits the whole call in the worker process, with its credentials. If a call exceeds it,
    the process is killed, and the outcome of the call is unknown.
    """

    connect: Seconds = 5.0
    read: Seconds = 60.0
    answer: Seconds = 120.0


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


async def pages(
    api: Api, operation: str, arguments: Mapping[str, Any], most: int = MAX_PAGES
) -> AsyncIterator[list[list[Any]]]:
    """Yield the rows of each page of a list with at most `most`. Raises ProviderError, OutcomeUnknownError."""
    page: str | None = None
    for _ in range(most):
        rows, following = await api.call(operation, {**arguments, "page": page})
        yield rows
        if not following:
            return
        if following == page:
            break
        page = following
    raise ProviderError(FailureClass.UNKNOWN, "EndlessPages", f"the pages of {operation} never end")


class _Worker:
    """One worker process and the calls that it has not answered."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.ended = False
        self._calls, self._answers = process.stdin, process.stdout
        self._pending: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = count(1)
        self._reader = asyncio.create_task(self._read_answers())

    async def exchange(
        self, operation: str, arguments: Mapping[str, Any], left: Seconds
    ) -> dict[str, Any]:
        """Send a call and return its answer. Raises CallOutcomeUnknownError if the worker ends.

        The worker refuses the call after `left` seconds.
        """
        number = next(self._numbers)
        call = {"id": number, "operation": operation, "arguments": arguments}
        if left < math.inf:
            call["until"] = time.clock_gettime(LEADER_CLOCK) + left
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._pending[number] = answer
        try:
            # If the worker has ended, `_read_answers` fails every pending call.
            with contextlib.suppress(ConnectionError):
                self._calls.write(json.dumps(call).encode() + b"\n")
                await self._calls.drain()
            return await answer
        finally:
            self._pending.pop(number, None)

    async def end(self) -> None:
        """Let the worker end by itself, and kill it if it does not."""
        self._calls.close()
        try:
            async with asyncio.timeout(_END_PATIENCE):
                await self.process.wait()
        except TimeoutError:
            self.kill()
            await self.process.wait()
        await self._reader

    def kill(self) -> None:
        """Kill the worker. The next call starts another one."""
        self.ended = True
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    async def _read_answers(self) -> None:
        # A line that is too long or incomplete is a ValueError.
        with contextlib.suppress(ConnectionError, ValueError):
            async for line in self._answers:
                answer = json.loads(line)
                future = self._pending.get(answer["id"])
                if future is not None and not future.done():
                    future.set_result(answer)
        self.kill()
        for future in self._pending.values():
            if not future.done():
                error = CallOutcomeUnknownError("WorkerEnded", "the worker process ended")
                future.set_exception(error)


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
        self.leads: Leads = leads_forever
        """Given after the start, which does not wait for the store."""
        self._worker: _Worker | None = None
        self._starting = asyncio.Lock()
        self._slots = asyncio.Semaphore(THREADS)
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The worker's process id, or None if no worker is running."""
        worker = self._worker
        return None if worker is None or worker.ended else worker.process.pid

    async def start(self) -> None:
        """Start the worker before its first call, because its imports take most of a second."""
        await self._living_worker()

    async def call(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """Make one call, without retries. Raises ProviderError, OutcomeUnknownError (see `Api`)."""
        async with self._slots:
            answer = await self._exchange(operation, arguments)
        if "error" not in answer:
            return answer["result"]
        raise failure_of(answer)

    async def close(self) -> None:
        """End the worker. Calls in flight get an unknown outcome."""
        self._closed = True
        async with self._starting:
            worker, self._worker = self._worker, None
            if worker is not None:
                await worker.end()

    async def _exchange(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        worker = await self._living_worker()
        left = self.leads() if OPERATIONS[operation].changes else math.inf
        if left <= 0:
            text = f"{operation} was not sent, because this process no longer leads the fleet"
            raise CallOutcomeUnknownError(NOT_LEADING, text)
        limit = min(self._timeouts.answer, left)
        try:
            async with asyncio.timeout(limit):
                return await worker.exchange(operation, arguments, left)
        except TimeoutError:
            if limit == self._timeouts.answer:
                # A call that hangs in spite of its timeouts blocks its thread, so a new worker is started.
                worker.kill()
            text = f"{operation} got no answer in {limit:g} s"
            raise CallOutcomeUnknownError("WorkerTimeout", text) from None

    async def _living_worker(self) -> _Worker:
        async with self._starting:
            if self._closed:
                raise ProviderError(FailureClass.UNKNOWN, "Closed", "the provider is closed")
            if self._worker is not None and self._worker.ended:
                await self._worker.end()
                self._worker = None
            if self._worker is None:
                self._worker = await self._start()
            return self._worker

    async def _start(self) -> _Worker:
        # In its own session, so that Ctrl-C in a terminal does not end it before the controller.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "autoscaler.providers.ec2.worker.process",
            json.dumps(self._setup),
            stdin=PIPE,
            stdout=PIPE,
            limit=MAX_LINE,
            start_new_session=True,
        )
        return _Worker(process)


_END_PATIENCE: Seconds = 5.0


def failure_of(answer: Mapping[str, Any]) -> ProviderError | CallOutcomeUnknownError:
    """Return the error for a worker's answer that has an `error`."""
    code, message = answer["error"], answer["message"]
    if code == NOT_LEADING:
        # The outcome is that of the requests of the process that leads now.
        return CallOutcomeUnknownError(code, message)
    if not answer["sent"]:
        return ProviderError(unsent_failure_class(code), code, message, hint=HINTS.get(code))
    if not answer["status"] or outcome_unknown(code, answer["status"]):
        return CallOutcomeUnknownError(code, message)
    found = meaning(code)
    seconds = _seconds(answer["retry_after"])
    return ProviderError(found.failure, code, message, seconds, found.scope, hint=HINTS.get(code))


def _seconds(text: str | None) -> Seconds | None:
    # Retry-After may also be a date, but EC2 does not send dates.
    return float(text) if text is not None and text.isdecimal() else None
