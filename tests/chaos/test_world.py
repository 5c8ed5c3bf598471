"""The world's own behaviour in cases that the seeds rely on."""

import pytest

from autoscaler.model.identifiers import LaunchRequestId, ProviderMachineId, Seconds, SkuName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.machine import ExitReason, Machine, MachineState
from autoscaler.simulator.world.ec2.machines import HUNG, SHUTS_DOWN_FOR
from autoscaler.simulator.world.instances import Instance
from autoscaler.simulator.world.jobs import SimulatedJob
from autoscaler.simulator.world.schedule import Fault, FaultKind, JobArrival, Schedule
from autoscaler.simulator.world.virtual_time import run
from autoscaler.simulator.world.world import (
    CHECK_EVERY,
    OPERATOR_LOOKS_AFTER,
    SETTLES,
    SimulatedWorld,
)
from tests.chaos.fleet import CATALOGUE, SETTING, WEST
from tests.chaos.mix import schedule_of
from tests.chaos.trial import PATIENCE, final_violations
from tests.controller.virtual_time import on_virtual_time

pytestmark = pytest.mark.systems


def played(*happenings: Fault | JobArrival, lists: bool = False) -> SimulatedWorld:
    """Return the world after its end. Fails if there is a violation."""
    jobs = tuple(one for one in happenings if isinstance(one, JobArrival))
    faults = tuple(one for one in happenings if isinstance(one, Fault))

    async def scenario() -> SimulatedWorld:
        world = SimulatedWorld(SETTING, Schedule(0, jobs, faults, lists))
        await world.run(PATIENCE)
        assert (*world.invariants.violations, *final_violations(world)) == ()
        return world

    return run(scenario())


def lasts(*happenings: Fault | JobArrival) -> Seconds:
    """Return how long a world is played if its last job never runs."""
    jobs = tuple(one for one in happenings if isinstance(one, JobArrival))
    faults = tuple(one for one in happenings if isinstance(one, Fault))

    async def scenario() -> Seconds:
        world = SimulatedWorld(SETTING, Schedule(0, jobs, faults))
        await world.run(PATIENCE)
        assert final_violations(world) == [f"job {jobs[-1].job} is queued in the end"]
        return world.fault_schedule.time

    return run(scenario())


def arm_job(works: Seconds = 60.0) -> JobArrival:
    """Return a job of a SKU that keeps no machine ready."""
    return JobArrival(5.0, 1, ("arm",), works)


def only_job(world: SimulatedWorld) -> SimulatedJob:
    (job,) = world.actions.jobs.values()
    return job


def waited(job: SimulatedJob) -> Seconds:
    assert job.started_at is not None
    return job.started_at - job.queued_at


@pytest.mark.parametrize(
    ("last_job", "end"), [(5.0, 100.0 + PATIENCE), (4000.0, 100.0 + PATIENCE), (7e3, 7e3 + SETTLES)]
)
def test_a_late_job_has_a_time_limit_of_its_own_and_extends_no_other(
    last_job: Seconds, end: Seconds
) -> None:
    never_run = JobArrival(last_job, 2, ("no-such-sku",), 60.0)
    ended = lasts(arm_job(), Fault(0.0, FaultKind.SLOW_BOOT, 100.0), never_run)
    assert end <= ended < end + CHECK_EVERY


def test_a_world_ends_early_after_a_wanted_violation() -> None:
    lost = Fault(0.0, FaultKind.WEBHOOK_VANISHED, 60.0)
    schedule = Schedule(0, (arm_job(),), (lost,))

    async def scenario(wanted: str) -> tuple[Seconds, list[str]]:
        world = SimulatedWorld(SETTING, schedule)
        await world.run(PATIENCE, lambda violation: wanted in violation)
        return world.fault_schedule.time, world.invariants.violations

    ended, violations = run(scenario("starves"))
    at_last, all_violations = run(scenario("no such violation"))
    assert violations == all_violations[: len(violations)]
    assert "starves" in violations[-1]
    assert ended + 3600.0 < at_last


def test_the_console_text_of_a_hung_boot_is_stored() -> None:
    world = played(arm_job(), Fault(4.0, FaultKind.HUNG_BOOT, 60.0))
    rows = [row for commit in world.store.commits for row in commit.history]
    hung = [
        instance.id for instance in world.providers[WEST].instances.values() if instance.console
    ]
    assert len(hung) == 1
    assert [row.detail for row in rows if HUNG in row.detail]


HANGS_OVER_A_RESTART = (
    Fault(4.0, FaultKind.HUNG_BOOT, 60.0),
    Fault(90.0, FaultKind.CRASH, 5.0, 1, 1),
)
"""The machine was launched before a restart and hangs: its record does not prove that it has no job."""


def test_an_unverified_machine_waits_for_the_operator_while_no_runners_can_be_listed() -> None:
    world = played(arm_job(), *HANGS_OVER_A_RESTART, Fault(95.0, FaultKind.GITHUB_5XX, 2000.0))
    (hung,) = [i for p in world.providers.values() for i in p.instances.values() if i.console]
    assert world.operator.resolved == 1
    assert hung.ended_at is not None
    assert hung.ended_at - hung.launched_at > OPERATOR_LOOKS_AFTER


def test_runners_are_listed_without_calls_to_spare_if_only_they_verify_a_machine() -> None:
    """Found by seed 801101 with clusters: the machine kept a quota for an hour and a half."""
    world = played(arm_job(), *HANGS_OVER_A_RESTART)
    (hung,) = [i for p in world.providers.values() for i in p.instances.values() if i.console]
    assert world.operator.resolved == 0
    assert hung.ended_at is not None
    assert hung.ended_at - hung.launched_at < OPERATOR_LOOKS_AFTER


def test_a_restarted_controller_knows_its_former_ids() -> None:
    faults = (Fault(400.0, FaultKind.STORE_LOST, 300.0), Fault(1200.0, FaultKind.CRASH, 5.0, 1, 1))
    world = played(arm_job(3000.0), *faults, lists=True)
    assert world.operator.resolved > 0
    assert world.store.installations.all == ("0badcafe", "00000001")
    process = world.supervisor.process
    assert process is not None
    assert process.controller is not None
    known = process.controller.journal.ledger.state.catalogue
    assert known.installations == world.store.installations


def test_a_runner_that_gets_a_job_during_its_release_runs_the_job() -> None:
    """GitHub answers the DELETE with 422: it assigned the job while the listener was suspended."""
    world = played(arm_job(), Fault(0.0, FaultKind.HANDED_OUT_LATE, 60.0, target=600))
    job = only_job(world)
    assert 120.0 < waited(job) < 300.0
    assert len(world.actions.registrations) == 1


def test_deleting_a_runner_with_a_new_job_delays_the_job_by_a_minute() -> None:
    """GitHub answers 204. The runner does not pick the job up, and GitHub assigns it to the next one."""
    late = Fault(0.0, FaultKind.HANDED_OUT_LATE, 60.0, target=240)
    world = played(arm_job(), late, Fault(0.0, FaultKind.DELETE_OF_BUSY, 600.0))
    job = only_job(world)
    assert world.fault_schedule.hits[FaultKind.DELETE_OF_BUSY] >= 1
    assert (job.state, job.conclusion, job.starts) == (JobState.COMPLETED, "success", 1)
    assert len(world.actions.registrations) >= 2


def test_a_job_cancelled_before_its_runner_picked_it_up_is_not_started() -> None:
    late = Fault(0.0, FaultKind.HANDED_OUT_LATE, 60.0, target=240)
    said_204 = Fault(0.0, FaultKind.DELETE_OF_BUSY, 600.0)
    world = played(JobArrival(5.0, 1, ("arm",), 60.0, cancelled=190.0), late, said_204)
    job = only_job(world)
    assert (job.conclusion, job.starts) == ("cancelled", 0)
    assert world.fault_schedule.hits[FaultKind.DELETE_OF_BUSY] == 1


def test_the_registration_of_a_machine_taken_while_its_listener_starts_is_removed() -> None:
    taken = Fault(0.0, FaultKind.TAKEN_STARTING, 120.0)
    world = played(arm_job(), taken, lists=True)
    first, *_ = world.actions.registrations.values()
    assert first.online_at is None
    assert first.job is None
    assert first.deleted_at is not None
    unread = played(arm_job(), taken)
    assert [r.name for r in unread.actions.registrations.values() if r.deleted_at is None]


@pytest.mark.parametrize(
    "late",
    [
        (),
        (Fault(0.0, FaultKind.STALE_JOB, 3000.0, target=30),),
        # From a second before each starts until long after its machine has gone.
        tuple(Fault(600.0 * n + 55.0, FaultKind.GITHUB_5XX, 330.0) for n in range(4)),
    ],
    ids=["lists", "old lists", "late lists"],
)
def test_a_job_that_only_lists_show_has_one_machine_launched_for_it(
    late: tuple[Fault, ...],
) -> None:
    """Its machine may have terminated before a list shows that it ran, so the job itself is read first."""
    jobs = [
        JobArrival(600.0 * n + 5.0, n + 1, ("arm",), works)
        for n, works in enumerate((30.0, 70.0, 90.0, 200.0))
    ]
    world = played(*jobs, Fault(0.0, FaultKind.WEBHOOK_VANISHED, 3000.0), *late, lists=True)
    assert world.webhooks.logged == set()
    launched = [i for i in world.providers[WEST].instances.values() if i.sku == SkuName("arm")]
    assert len(launched) == len(jobs)


def played_with_operator(kind: FaultKind, seed: int) -> tuple[tuple[str, ...], int]:
    """Restore or lose the store while machines hang. Return violations, and how many the operator resolved."""
    faults = (Fault(1800.0, FaultKind.HUNG_BOOT, 1860.0, 2), Fault(3600.0, kind, 3600.0, 1, 1800))
    schedule = Schedule(seed, schedule_of(seed).jobs, faults, lists=True)

    async def scenario() -> tuple[tuple[str, ...], int]:
        world = SimulatedWorld(SETTING, schedule)
        await world.run(PATIENCE)
        return (*world.invariants.violations, *final_violations(world)), world.operator.resolved

    return run(scenario())


@pytest.mark.case(
    "the store is lost: an operator names the installation whose machines belong to the fleet",
    topic="EC2's machines",
    source="ARC#4397",
)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", [FaultKind.STORE_RESTORED, FaultKind.STORE_LOST])
def test_lists_and_an_operator_resolve_a_restored_or_lost_store(kind: FaultKind, seed: int) -> None:
    violations, resolved = played_with_operator(kind, seed)
    assert violations == ()
    assert resolved > 0


@on_virtual_time
async def test_an_interrupted_job_is_rerun_unless_its_label_opts_out() -> None:
    """A run's attempts; the second job carries the label that opts out."""
    jobs = (
        JobArrival(5.0, 1, ("gpu",), 900.0),
        JobArrival(3000.0, 2, ("gpu", "no-rerun"), 900.0),
    )
    faults = (
        Fault(300.0, FaultKind.INTERRUPTED, 120.0),
        Fault(3300.0, FaultKind.INTERRUPTED, 120.0),
    )
    world = SimulatedWorld(SETTING, Schedule(0, jobs, faults))
    await world.run(PATIENCE)
    assert (*world.invariants.violations, *final_violations(world)) == ()
    ended: dict[int, list[str | None]] = {}
    for job in world.actions.jobs.values():
        ended.setdefault(job.run, []).append(job.conclusion)
    assert ended == {1: ["failure", "success"], 2: ["failure"]}


@pytest.mark.parametrize("kind", [FaultKind.INTERRUPTED, FaultKind.RETIRED, FaultKind.TAKEN])
def test_a_reclaimed_machine_shuts_down_first_and_its_agent_reports_it(kind: FaultKind) -> None:
    """EC2 shows `shutting-down`, then `terminated`, with a notification of each."""
    faults = [Fault(600.0, kind, 1.0, target=number) for number in range(6)]
    world = played(JobArrival(5.0, 1, ("arm",), 3000.0), *faults)
    machines = world.store.of_kind(Machine)
    (taken,) = (one for one in machines if one.work.exit_reason is ExitReason.STOPPED)
    assert (taken.sku, taken.state) == ("arm", MachineState.TERMINATED)
    (instance,) = (one.instance for one in world.machines.activities if one.machine == taken.id)
    assert instance.stopping_at is not None
    assert instance.ended_at == instance.stopping_at + SHUTS_DOWN_FOR
    states = [instance.listed(at).state for at in (0.0, instance.stopping_at, instance.ended_at)]
    assert states == ["running", "shutting-down", "terminated"]
    assert instance.listed(instance.stopping_at).leaving


@on_virtual_time
async def test_a_list_of_an_earlier_moment_hides_only_what_was_launched_after_it() -> None:
    """Found by seed 2050: the list after a restore was 43 seconds out of date."""
    old_list = Fault(0.0, FaultKind.EVENTUAL, 3000.0, target=43)
    offering = CATALOGUE.skus[SkuName("cpu")].launch_options[0].offerings[0]
    world = SimulatedWorld(SETTING, Schedule(0, (), (old_list,)))
    world._begin(old_list)
    world._rewound()
    moment = world._rewound_at
    machines = [
        Instance(
            ProviderMachineId(f"i-{n}"),
            LaunchRequestId("c-1"),
            SkuName("cpu"),
            offering,
            "o",
            at,
        )
        for n, at in enumerate((moment - 60.0, moment - 20.0, moment + 1.0))
    ]
    before = [world._hidden(machine) for machine in machines]
    _ = [page async for page in world.providers[offering.provider].machines()]
    world._unlisted_since_rewound.clear()
    after = [world._hidden(machine) for machine in machines]
    assert (before, after) == ([True, True, False], [False, True, False])
