"""What `autoscaler explain` announces to a waiting job of a laboratory, and whether it comes true."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autoscaler.model.reasons.table import WaitCode
from autoscaler.operator_commands.client import OperatorClient, OperatorRequestFailedError
from autoscaler.operator_commands.endpoint import configured_endpoint
from lab.github.records import Job as PushedJob
from lab.laboratory import Laboratory
from tests.lab.system.harness import read_records
from tests.lab.system.pace import PATIENCE, stretched

LATE = 25
"""Maximum number of questions between an announced time and the event: 2.5 real seconds on a quiet host."""

_ASKED_EVERY = 0.1

Moments = Callable[[], Sequence[float]]
"""Returns when something has happened so far, in lab seconds, in their order."""


@dataclass(frozen=True)
class Announced:
    """The next event of a job that waits for the reason `code`. `at` is in lab seconds; None is no time."""

    code: WaitCode
    what: str
    at: float | None
    is_estimate: bool
    machine: str | None


class OnCall:
    """Asks the controller of a laboratory why jobs wait, as `autoscaler explain` does."""

    def __init__(self, lab: Laboratory) -> None:
        self._lab = lab
        self._client = OperatorClient(configured_endpoint(lab.folder / "fleet.yaml"))

    async def announced(self, job: PushedJob) -> Announced | None:
        """Return the next event of a job, or None if the job does not wait or is not known yet."""
        try:
            found = await asyncio.to_thread(self._client.ask, "/admin/explain", job=job.id)
        except OperatorRequestFailedError:
            return None
        explanation = found["explanation"]
        if explanation is None or explanation["next_event"] is None:
            return None
        code = WaitCode(explanation["job"]["wait"]["reasons"][0]["code"])
        return Announced(code, **explanation["next_event"])

    async def waits(self, job: PushedJob, code: WaitCode, words: str = "") -> Announced:
        """Return what is announced once the job waits for this reason and the event has these words.

        Raises AssertionError if the job ends before, or for `PATIENCE` s of a quiet host does not wait.
        """
        deadline = time.monotonic() + stretched(PATIENCE)
        while True:
            assert job.conclusion is None, f"{job.spec.name} ended before it waited for {code}"
            said = await self.announced(job)
            if said is not None and said.code is code and words in said.what:
                return said
            assert time.monotonic() < deadline, (said, self._lab.controller.log_end())
            await asyncio.sleep(_ASKED_EVERY)

    async def comes_true(
        self, job: PushedJob, code: WaitCode, words: str, moments: Moments
    ) -> tuple[Announced, float]:
        """Return what is announced to a job that waits for this reason, and when it then happened.

        It must happen at the announced time or soon after it, and not before. Until then the same must be
        announced. An estimate may be too late: the caller compares it with what it is computed from.
        """
        earlier, announced = -1, await self.waits(job, code, words)
        while len(moments()) != earlier:  # else it may have happened after the question
            earlier = len(moments())
            announced = await self.waits(job, code, words)
        assert announced.at is not None, announced
        late = 0
        while len(moments()) == earlier:
            said = await self.announced(job)
            if len(moments()) > earlier:
                break
            if self._lab.clock.now() >= announced.at:
                late += 1
            elif not announced.is_estimate:
                assert said == announced
            assert late <= LATE, (announced, said)
            await asyncio.sleep(_ASKED_EVERY)
        happened = moments()[earlier]
        assert announced.is_estimate or happened >= announced.at, (announced, happened)
        return announced, happened

    def launches(self, sku: str) -> Moments:
        """Return the moments of the launch requests for a SKU."""

        def moments() -> list[float]:
            calls = (call for call in read_records(self._lab).calls if call.sku == sku)
            return sorted(call.created_at for call in calls)

        return moments
