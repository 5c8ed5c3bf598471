"""The stories of machines that misbehave on purpose, and one laboratory that runs all of them.

Each has a SKU of its own, whose first machine is the one that misbehaves. Times are lab seconds.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import Machine, MachineState, TerminationReason
from lab.ec2.instances import Instance
from lab.github.records import Job as PushedJob
from lab.github.runners import RegisteredRunnerView
from lab.laboratory import LabFleet, Laboratory
from lab.machines.misbehaving_host import Misdeed
from lab.machines.misbehaviour import Misbehaviour
from tests.lab.system.harness import SKU_TAG, Records, ec2_sku, read_records, until
from tests.lab.system.pace import PATIENCE, yielding

SCALE = 100.0
SCRAPE_EVERY = 20.0
"""Lab seconds between an answer and the next scrape."""

FOR_EVER = 86_400.0
Sample = tuple[float, dict[str, float]]
"""The time of a scrape, and every metric by name and labels."""

LONG = {"deadlines": {"boot": "3h", "health_checks": "3h", "ready_silence": "1h"}}
"""For stories without deadlines, so that a busy host does not end them."""

FOUR_GPUS = {
    **ec2_sku("g5.12xlarge"),
    "accelerator": {"vendor": "nvidia", "count": 4, "driver_version": "580"},
}
"""For machines whose health checks compare their GPUs."""

EARLY = 100.0
"""A real second: on a busy host, what was said and the lab's noting of it lie so far apart."""

_M = Misbehaviour
_S = MachineState


@dataclass(frozen=True, slots=True)
class Story:
    """What is expected of a SKU whose first machine misbehaves.

    `jobs` are seconds of jobs pushed at the start, `ended` how each ends. The machine's end begins
    `after` seconds from its misdeed at the soonest (from its launch, where it never boots), or `early`
    before that where the clock runs since before the misdeed is noted: the silence since the last
    word, or a job under way. The end is made by the controller on this `reason_code` or (None)
    by itself. Until then it is counted, in one of the states of `counted`. The next machine is
    launched `replaced` seconds from the misdeed at the soonest: None for once the first one's end
    began, as a cap or the supply demands; with `alone` there is no other machine at all.
    """

    kind: Misbehaviour
    after: float
    reason_code: TerminationReason
    counted: frozenset[MachineState]
    jobs: tuple[float, ...] = (30.0,)
    ended: tuple[str, ...] = ("success",)
    cap: int = 1
    replaced: float | None = None
    alone: bool = False
    early: float = 0.0
    failure: FailureClass | None = None
    sku: dict[str, Any] = field(default_factory=lambda: LONG)


def _states(*states: MachineState) -> frozenset[MachineState]:
    return frozenset(states)


ASSIGNED = _states(_S.ASSIGNED)
LEAVING = _states(_S.ASSIGNED, _S.EXITED)
TWO = (FOR_EVER, 30.0)
FIRST_FAILS = ("failure", "success")

STORIES = {
    "never-boots": Story(
        _M.NEVER_BOOTS, 900.0, TerminationReason.DEADLINE, _states(_S.LAUNCHED), cap=2, sku={},
        failure=FailureClass.BOOT_DEADLINE,
    ),
    "no-agent": Story(
        _M.NO_AGENT, 1200.0, TerminationReason.FAILED, _states(_S.LAUNCHED), cap=2, failure=FailureClass.UNKNOWN
    ),
    "fails-health-checks": Story(
        _M.FAILS_HEALTH_CHECKS, 0.0, TerminationReason.FAILED, _states(_S.LAUNCHED, _S.BOOTED, _S.FAILED),
        cap=2,
        failure=FailureClass.HEALTH_CHECK,
    ),
    "loses-gpu": Story(
        _M.LOSES_GPU, 0.0, TerminationReason.FAILED, _states(_S.LAUNCHED, _S.BOOTED, _S.FAILED),
        cap=2,
        failure=FailureClass.HEALTH_CHECK,
        sku={**LONG, **FOUR_GPUS},
    ),
    # Its SKU names no accelerator: the number is that of EC2's instance type.
    "loses-gpu-of-its-type": Story(
        _M.LOSES_GPU, 0.0, TerminationReason.FAILED, _states(_S.LAUNCHED, _S.BOOTED, _S.FAILED),
        cap=2,
        failure=FailureClass.HEALTH_CHECK,
        sku={**LONG, **ec2_sku("g4dn.12xlarge")},
    ),
    "hangs-idle": Story(_M.HANGS_IDLE, 120.0, TerminationReason.POWERED_OFF, LEAVING),
    "no-worker": Story(_M.NO_WORKER, 720.0, TerminationReason.POWERED_OFF, LEAVING, cap=2, replaced=180.0),
    "hangs-at-work": Story(
        _M.HANGS_AT_WORK, 600.0, TerminationReason.POWERED_OFF, LEAVING, (300.0, 30.0), ("failure", "success")
    ),
    "stops-after-work": Story(
        _M.STOPS_AFTER_WORK, 1800.0, TerminationReason.FINISHED, ASSIGNED, alone=True
    ),
    "reboots-ready": Story(
        _M.REBOOTS_READY, 30.0, TerminationReason.POWERED_OFF, _states(_S.BOOTED, _S.READY, *LEAVING),
        cap=2, alone=True,
    ),
    "reboots-handed": Story(
        _M.REBOOTS_HANDED, 900.0, TerminationReason.SHUT_DOWN, ASSIGNED, cap=2, replaced=180.0
    ),
    "reboots-at-work": Story(_M.REBOOTS_AT_WORK, 0.0, TerminationReason.SHUT_DOWN, LEAVING, TWO, FIRST_FAILS),
    "vanishes-ready": Story(
        _M.VANISHES_READY, 300.0, TerminationReason.DEADLINE, _states(_S.READY, _S.ASSIGNED), cap=2,
        early=EARLY, sku={},
    ),
    "vanishes-warm": Story(
        _M.VANISHES_READY, 300.0, TerminationReason.DEADLINE, _states(_S.READY), (), (), cap=2,
        early=EARLY, sku={"idle": {"min": 1}},
    ),
    "vanishes-handed": Story(
        _M.VANISHES_HANDED, 1800.0, TerminationReason.SILENT_AND_FINISHED, ASSIGNED, cap=2, replaced=180.0,
        early=EARLY,
    ),
    "vanishes-acknowledged": Story(
        _M.VANISHES_ACKNOWLEDGED, 1800.0, TerminationReason.SILENT_AND_FINISHED, ASSIGNED, early=EARLY
    ),
    "silent-at-work": Story(
        _M.SILENT_AT_WORK, 1300.0, TerminationReason.POWERED_OFF, LEAVING, (1300.0,), alone=True, early=EARLY
    ),
    "stays-on": Story(
        _M.STAYS_ON, 120.0, TerminationReason.EXITED, _states(_S.EXITED), (30.0, 30.0), ("success",) * 2
    ),
    "exits-at-work": Story(_M.EXITS_AT_WORK, 120.0, TerminationReason.EXITED, LEAVING, TWO, FIRST_FAILS),
    "lies": Story(_M.LIES, 400.0, TerminationReason.POWERED_OFF, LEAVING, (600.0,), alone=True, early=EARLY),
}  # fmt: skip


@dataclass(slots=True)
class Outcome:
    """Everything that was seen. `samples` are the controller's own counts, from time to time.

    `consoles` are, by SKU, the console in the history of the machine that misbehaved. `failures` are, by
    machine, the details of its failure in its history. `exited` and `terminating` are, by machine, when it
    became so.
    """

    records: Records
    jobs: dict[str, list[PushedJob]]
    instances: Sequence[Instance]
    misdeeds: dict[str, Misdeed]
    samples: list[Sample]
    registrations: Sequence[RegisteredRunnerView]
    consoles: dict[str, list[str]]
    failures: dict[str, list[str]]
    exited: dict[str, float]
    terminating: dict[str, float]

    def instances_of(self, sku: str) -> list[Instance]:
        """In the order of their launch."""
        found = [one for one in self.instances if one.tags[SKU_TAG] == sku]
        return sorted(found, key=lambda one: one.launched_at)

    def machine(self, sku: str) -> Machine:
        """Return the record of the machine that misbehaved."""
        name = self.misdeeds[sku].instance_id
        (found,) = (one for one in self.records.machines if one.placement.provider_id == name)
        return found

    def scrapes(self, since: float, until: float) -> int:
        """Return the number of scrapes in that time, one each `SCRAPE_EVERY` lab seconds on a quiet host."""
        return sum(since < at < until for at, _ in self.samples)

    def counted(self, sku: str, since: float, until: float) -> list[Counter[str]]:
        """How many machines were counted in each state, for each scrape in that time."""
        return [
            Counter(
                {
                    state.value: int(count)
                    for state in MachineState
                    if (
                        count := counts.get(
                            f'autoscaler_machines{{sku="{sku}",state="{state}"}}', 0.0
                        )
                    )
                }
            )
            for at, counts in self.samples
            if since <= at <= until
        ]


def fleet() -> LabFleet:
    """A SKU for each story; a lab minute takes 0.6 s on a quiet host."""
    skus = {
        name: ec2_sku("g5.xlarge", max_machines=story.cap, **story.sku)
        for name, story in STORIES.items()
    }
    misbehaving = {name: (story.kind,) for name, story in STORIES.items()}
    return LabFleet("acme", ("widgets",), skus, scale=yielding(SCALE), misbehaving=misbehaving)


async def live(lab: Laboratory, jobs: dict[str, list[PushedJob]], samples: list[Sample]) -> None:
    """Return once every story has come to its end; `samples` are taken meanwhile."""

    def ends() -> list[str]:
        open_jobs = [one.spec.name for made in jobs.values() for one in made if not one.conclusion]
        bad = {deed.instance_id for deeds in lab.misdeeds.values() for deed in deeds}
        alive = [
            f"{one.tags[SKU_TAG]} {one.state}"
            for one in lab.ec2.instances
            if one.terminated_at is None and (one.id in bad or STORIES[one.tags[SKU_TAG]].jobs)
        ]
        return [*open_jobs, *alive]

    def why() -> str:
        return "\n".join([*ends(), str(samples[-1:]), lab.controller.log_end()])

    def over() -> bool:
        return len(lab.misdeeds) == len(STORIES) and all(lab.misdeeds.values()) and not ends()

    def ending() -> list[str]:
        """Return the machines in `terminating`: the controller has not yet listed the last one's end."""
        return [one.id for one in read_records(lab).machines if one.state is _S.TERMINATING]

    async with asyncio.TaskGroup() as group:
        looking = group.create_task(_look(lab, samples))
        try:
            await until(over, PATIENCE, why)
            await until(lambda: not ending(), PATIENCE, ending)
        finally:
            looking.cancel()


async def _look(lab: Laboratory, samples: list[Sample]) -> None:
    while True:
        at, counts = lab.clock.now(), await lab.controller.metrics()
        samples.append((at, counts))
        await asyncio.sleep(SCRAPE_EVERY / lab.fleet.scale)
