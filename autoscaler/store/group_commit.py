"""Groups what overlaps into one transaction: whatever is queued when the last one ends.

One write is under way at a time, in a thread of its own; every caller gets its own answer, and
one that stops waiting takes nothing from the others. What a change means is not known here.
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
    """Hands queued changes to `write`, which keeps all of them or raises StoreError.

    `write` runs in `thread` and answers one bool for each change, or the StoreError of one that
    cannot be stored, which it leaves out.
    """

    def __init__(
        self, thread: Executor, write: Callable[[Sequence[Change]], Sequence[bool | StoreError]]
    ) -> None:
        self._thread = thread
        self._write = write
        self._queue: list[_Waiting] = []
        self._turn: asyncio.Task[None] | None = None

    def submit(self, change: Change) -> "asyncio.Future[bool]":
        """Return what is set once the change is durable. If it is cancelled, the change may be kept."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(change, answer))
        if self._turn is None or self._turn.done():
            self._turn = asyncio.create_task(self._drain(), name="store writer")
        return answer

    async def drained(self) -> None:
        """Returns when nothing is queued or under way."""
        while self._turn is not None and not self._turn.done():
            await asyncio.wait([self._turn])

    async def _drain(self) -> None:
        while self._queue:
            group, self._queue = self._queue, []
            try:
                answers = await self._write_in_thread(group)
                _answer(group, answers)
            except StoreError as error:
                _refuse(group, str(error), error)
            except BaseException:
                # The loop is going down, or there is a bug: nobody may wait for ever.
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
            # One exception each: a shared one would gather every caller's traceback.
            error = StoreError(message)
            error.__cause__ = cause
            waiting.answer.set_exception(error)
