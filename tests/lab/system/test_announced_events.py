"""Twelve causes of a wait, in a laboratory: what `autoscaler explain` announces next comes true.

All situations but the last three happen at once, each with a SKU of its own. Times are lab seconds, and lower
bounds are those that were announced. Upper bounds count questions, because a busy host delays these like
everything else.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from autoscaler.model.catalogue import CapacityType
from autoscaler.model.machines.machine import Machine, MachineState, TerminationReason
from autoscaler.model.reasons.table import WaitCode
from lab.ec2.instances import Pool
from lab.ec2.moto import MotoProcess
from lab.github.records import Job as PushedJob
from lab.github.settings import AnswerFault
from lab.laboratory import LabFleet, Laboratory
from lab.machines.misbehaviour import Misbehaviour
from tests.lab.system.announcements import OnCall
from tests.lab.system.harness import Operator, at_rest, ec2_sku, job, read_records, until
from tests.lab.system.pace import PATIENCE, yielding

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCALE = 60.0
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
REGISTER = "POST /orgs/{org}/actions/runners/generate-jitconfig"
LIST_RUNS = "GET /repos/{owner}/{repo}/actions/runs"
READ_RUN = "GET /repos/{owner}/{repo}/actions/runs/{run_id}"


def _sku(instance_type: str, **more: Any) -> dict[str, Any]:
    """Return a SKU for whose jobs the controller reads no runs."""
    return ec2_sku(instance_type, access={"forks": True}, **more)


SKUS: dict[str, Any] = {
    "capacity": _sku("g5.xlarge"),
    "quota": _sku("f2.6xlarge"),
    "configuration": _sku("g5.2xlarge"),
    "average": _sku("g6.xlarge"),
    "deadline": _sku("g6.2xlarge", deadlines={"boot": "10m"}),
    "circuit": _sku("g4dn.xlarge"),
    "limit": _sku("g4dn.2xlarge", max_machines=1),
    "paused": _sku("c7i.xlarge"),
    "idle": _sku("c7i.2xlarge"),
    "run": ec2_sku("c7i.4xlarge"),
    "registration": _sku("m7i.xlarge"),
    "throttled": _sku("m7i.2xlarge"),
}
MISBEHAVING = {
    "deadline": (Misbehaviour.NEVER_BOOTS,),
    "circuit": (Misbehaviour.FAILS_HEALTH_CHECKS,) * 5,
}


class Situations:
    """The laboratory, and a method for each situation."""

    def __init__(self, lab: Laboratory) -> None:
        self.lab = lab
        self._on_call = OnCall(lab)
        self._operator = Operator(lab)

    async def capacity(self) -> None:
        """EC2 has no capacity for the type in any zone, until the controller tries again."""
        pools = [Pool("g5.xlarge", zone, CapacityType.ON_DEMAND) for zone in ZONES]
        for pool in pools:
            self.lab.ec2.faults.set_capacity(pool, 0)
        pushed = await self._is_tried_again("capacity", WaitCode.CAPACITY)
        for pool in pools:
            self.lab.ec2.faults.set_capacity(pool, None)
        await self._runs(pushed)

    async def quota(self) -> None:
        """The account's quota of vCPUs is used up."""
        self._refuse("f2.6xlarge", "VcpuLimitExceeded")
        self.lab.github.cancel(await self._is_tried_again("quota", WaitCode.QUOTA))

    async def configuration(self) -> None:
        """EC2 calls the configuration of each override wrong."""
        self._refuse("g5.2xlarge", "InvalidFleetConfiguration")
        self.lab.github.cancel(await self._is_tried_again("configuration", WaitCode.CONFIGURATION))

    async def average(self) -> None:
        """A machine boots: it becomes ready about when the average of the SKU's boots says."""
        await self._runs(self._push("average"))
        pushed = self._push("average")

        def ready() -> list[float]:
            found = (one.progress.ready_at for one in self._machines("average"))
            return sorted(one for one in found if one is not None)

        announced, _ = await self._on_call.comes_true(
            pushed, WaitCode.MACHINE_BOOTING, "a machine becomes ready", ready
        )
        assert announced.is_estimate
        # The average of one boot is that boot.
        first, second = sorted(self._machines("average"), key=lambda one: one.created_at)
        assert first.progress.ready_at is not None
        assert announced.at is not None
        took = first.progress.ready_at - first.created_at
        assert announced.at - second.created_at == pytest.approx(took, abs=0.01)
        await self._runs(pushed)
        # The announced machine is the one that ran the job.
        [runner] = [one for one in read_records(self.lab).runners if one.name == pushed.starts[0]]
        assert announced.machine == runner.machine

    async def deadline(self) -> None:
        """A machine does not boot: at its deadline it is terminated, and another is launched."""
        pushed = self._push("deadline")
        words = "if not by then, the controller terminates it and tries another"
        launches = self._on_call.launches("deadline")
        announced, _ = await self._on_call.comes_true(
            pushed, WaitCode.MACHINE_BOOTING, words, launches
        )
        [first] = [one for one in self._machines("deadline") if one.id == announced.machine]
        assert first.termination.reason is TerminationReason.DEADLINE
        await self._runs(pushed)

    async def circuit(self) -> None:
        """Five machines in a row fail their health checks: a probe follows at the announced time.

        The first of three holds is short, and a busy host may see only a later one.
        """
        pushed = await self._is_tried_again("circuit", WaitCode.HEALTH_CHECK)
        await self._runs(pushed)
        assert len(self._on_call.launches("circuit")()) == 6

    async def limit(self) -> None:
        """`max_machines` is reached: the next machine follows when one has ended."""
        first = self._push("limit", math.inf)
        await until(lambda: bool(first.starts), PATIENCE, self.lab.controller.log_end)
        second = self._push("limit")
        announced = await self._on_call.waits(second, WaitCode.MAX_MACHINES)
        assert announced.what.startswith("a machine of the SKU ends")
        assert announced.at is None
        launches = self._on_call.launches("limit")
        assert len(launches()) == 1
        self.lab.github.end(first)
        await self._runs(first, second)
        [_, launched] = launches()
        [ended] = [
            one.progress.ended_at for one in self._machines("limit") if one.created_at < launched
        ]
        assert ended is not None
        assert launched >= ended

    async def paused(self) -> None:
        """An operator paused the SKU: a machine follows when an operator resumes it."""
        assert (await self._operator.says("pause", "paused"))[0] == 0
        pushed = self._push("paused")
        announced = await self._on_call.waits(pushed, WaitCode.PAUSED)
        assert (announced.what, announced.at) == ("an operator resumes what is paused", None)
        assert not self._on_call.launches("paused")()
        assert (await self._operator.says("resume", "paused"))[0] == 0
        await self._runs(pushed)

    async def idle(self) -> None:
        """GitHub lost the job: the runner stays idle, and its machine gives up about when announced."""
        self.lab.github.lose_next(1)
        pushed = self._push("idle")

        def left() -> list[float]:
            given = (one for one in self._machines("idle") if one.work.runner is not None)
            return [one.since for one in given if one.state is not MachineState.ASSIGNED]

        words = "if not by then, the machine has its registration deleted"
        announced, happened = await self._on_call.comes_true(
            pushed, WaitCode.RUNNER_IDLE, words, left
        )
        assert announced.at is not None
        assert happened >= announced.at
        self.lab.github.cancel(pushed)

    async def run(self) -> None:
        """GitHub does not show the job's run: the controller asks again at the announced time."""
        reads: list[float] = []

        def note() -> None:
            reads.append(self.lab.clock.now())

        # The controller repeats other errors, such as a 502, at once.
        self.lab.github.inject_faults(
            AnswerFault("status", READ_RUN, None, status=404, then=note),
            AnswerFault("status", LIST_RUNS, None),
        )
        pushed = self._push("run")
        await until(lambda: bool(reads), PATIENCE, self.lab.controller.log_end)
        words = "the controller asks GitHub for the job's run"
        await self._on_call.comes_true(pushed, WaitCode.RUN_UNKNOWN, words, lambda: reads)
        self.lab.github.inject_faults()
        await self._runs(pushed)

    async def registration(self) -> None:
        """GitHub refuses registrations: the controller tries again at the announced time."""
        refused = b'{"message": "Resource not accessible by integration"}'
        fault = AnswerFault("answer", REGISTER, 2, status=403, body=refused)
        words = "the controller tries to register a runner at GitHub again"
        await self._registers("registration", fault, WaitCode.REGISTRATION_ON_HOLD, words)

    async def secondary_limit(self) -> None:
        """GitHub limits registrations: the controller tries again at the announced time."""
        fault = AnswerFault("status", REGISTER, 2, status=403)
        words = "GitHub's secondary rate limit ends"
        await self._registers("registration", fault, WaitCode.GITHUB_SECONDARY_LIMIT, words)

    async def _registers(self, sku: str, fault: AnswerFault, code: WaitCode, words: str) -> None:
        self.lab.github.inject_faults(fault)
        pushed = self._push(sku)

        def named() -> list[float]:
            machines = {one.id for one in self._machines(sku)}
            runners = read_records(self.lab).runners
            return sorted(one.named_at for one in runners if one.machine in machines)

        await self._on_call.comes_true(pushed, code, words, named)
        await self._runs(pushed)

    async def throttled(self) -> None:
        """EC2 throttles the fleet's requests: the controller launches again at the announced time."""
        self.lab.ec2.faults.fail_calls("CreateFleet", "RequestLimitExceeded", 6)
        pushed = await self._is_tried_again("throttled", WaitCode.THROTTLED)
        self.lab.ec2.faults.fail_calls("CreateFleet", "RequestLimitExceeded", 0)
        await self._runs(pushed)

    async def _is_tried_again(self, sku: str, code: WaitCode) -> PushedJob:
        pushed = self._push(sku)
        words = "the controller tries to launch a machine again"
        await self._on_call.comes_true(pushed, code, words, self._on_call.launches(sku))
        return pushed

    def _refuse(self, instance_type: str, code: str) -> None:
        for zone in ZONES:
            self.lab.ec2.faults.refuse(Pool(instance_type, zone, CapacityType.ON_DEMAND), code)

    def _push(self, sku: str, seconds: float = 30.0) -> PushedJob:
        name = f"{sku}-{len(self.lab.github.jobs)}"
        [pushed] = self.lab.github.push([job(name, sku, seconds)])
        return pushed

    def _machines(self, sku: str) -> list[Machine]:
        return [one for one in read_records(self.lab).machines if one.sku == sku]

    async def _runs(self, *jobs: PushedJob) -> None:
        await until(
            lambda: all(one.conclusion for one in jobs), PATIENCE, self.lab.controller.log_end
        )
        assert {(one.conclusion, len(one.starts)) for one in jobs} == {("success", 1)}


AT_ONCE = (
    "idle",
    "capacity",
    "quota",
    "configuration",
    "average",
    "deadline",
    "limit",
    "paused",
    "run",
)
"""The first loses the next job that is queued."""
ALONE = ("circuit", "registration", "secondary_limit", "throttled")
"""The holds of the first are short. The faults of the others concern all SKUs."""

Outcomes = Mapping[str, BaseException | None]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outcomes(moto: MotoProcess) -> AsyncIterator[Outcomes]:
    """Play all situations; a lab minute takes a second on a quiet host."""
    fleet = LabFleet("acme", ("widgets",), SKUS, scale=yielding(SCALE), misbehaving=MISBEHAVING)
    async with Laboratory(fleet, moto) as lab:
        await lab.start_controller()
        situations = Situations(lab)
        found: dict[str, BaseException | None] = {}
        stages = [AT_ONCE, *((name,) for name in ALONE)]
        for names in stages:
            plays = (getattr(situations, one)() for one in names)
            ended = await asyncio.gather(*plays, return_exceptions=True)
            found.update(zip(names, ended, strict=True))
        # What failed may leave a job that never ends.
        if not any(found.values()):
            await at_rest(lab, PATIENCE)
            assert lab.wrong_jobs() == []
        yield found


@pytest.mark.parametrize("name", [*AT_ONCE, *ALONE])
async def test_what_is_announced_to_a_waiting_job_comes_true(name: str, outcomes: Outcomes) -> None:
    if (problem := outcomes[name]) is not None:
        raise problem
