"""Groups overlapping changes into one transaction: all changes queued when the last one ends.

One write runs at a time, in its own thread. Every caller gets its own answer. A caller that is cancelled
does not affect the others.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import NamedTuple

from autoscaler.controller.ports.store import StoreError
from autoscaler.store.batch import Change


class _Waiting(NamedTuple):
    change: Change
    answer: "asyncio.Future[bool]"


class GroupCommit:
    """Passes queued changes to `write`, which stores all of them or raises StoreError.

    `write` runs in `thread`. It returns a bool for each change, or a StoreError for a change that cannot
    be stored and that it skipped.
    """

    def __init__(
        self, thread: Executor, write: Callable[[Sequence[Change]], Sequence[bool | StoreError]]
    ) -> None:
        self._thread = thread
        self._write = write
        self._queue: list[_Waiting] = []
        self._writer: asyncio.Task[None] | None = None

    def submit(self, change: Change) -> "asyncio.Future[bool]":
        """Return a future that is set once the change is durable. Cancelling it may not undo the change."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(change, answer))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._drain(), name="store writer")
        return answer

    async def drained(self) -> None:
        """Wait until no change is queued or being written."""
        while self._writer is not None and not self._writer.done():
            await asyncio.wait([self._writer])

    async def _drain(self) -> None:
        while self._queue:
            group, self._queue = self._queue, []
            try:
                answers = await self._write_in_thread(group)
                _answer(group, answers)
            except StoreError as error:
                _refuse(group, str(error), error)
            except BaseException:
                # The event loop is closing, or there is a bug: no caller may wait for ever.
                _refuse([*group, *self._queue], "the store's writer stopped", None)
                self._queue = []
                raise

    async def _write_in_thread(self, group: list[_Waiting]) -> Sequence[bool | StoreError]:
        loop = asyncio.get_running_loop()
        changes = [waiting.change for waiting in group]
        return await loop.run_in_executor(self._thread, self._write, changes)


def _answer(group: Sequence[_Waiting], answers: Sequence[bool | StoreError]) -> None:
    for waiting, answer in zip(group, answers, strict=True):
        if waiting.answer.done():
            continue
        if isinstance(answer, StoreError):
            waiting.answer.set_exception(answer)
        else:
            waiting.answer.set_result(answer)


def _refuse(group: Sequence[_Waiting], message: str, cause: BaseException | None) -> None:
    for waiting in group:
        if not waiting.answer.done():
            # One exception each, since a shared one would collect the tracebacks of all callers.
            error = StoreError(message)
            error.__cause__ = cause
            waiting.answer.set_exception(error)
