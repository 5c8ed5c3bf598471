"""Each invariant reports its violation: one test for each."""

import asyncio
import json
from dataclasses import replace

import pytest

from autoscaler.model.catalogue import CapacityType
from autoscaler.model.identifiers import (
    LaunchRequestId,
    MachineId,
    ProviderMachineId,
    RunnerName,
    SkuName,
)
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.launch_requests import LaunchRequest, LaunchRequestState
from autoscaler.model.machines.machine import (
    Machine,
    MachineState,
    Placement,
    Termination,
    TerminationReason,
)
from autoscaler.simulator.world.controller.store import INSTALLATION, MemoryStore
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.instances import POWERED_OFF, Instance, MachineActivity
from autoscaler.simulator.world.invariants import (
    LAUNCHED_WITHIN,
    NO_HOLD_LEFT,
    SERVED_WITHIN,
    Invariants,
)
from autoscaler.simulator.world.jobs import Registration, SimulatedJob
from autoscaler.simulator.world.schedule import Fault, FaultKind, Fleet, JobArrival, Schedule
from tests.chaos.fleet import CATALOGUE, EAST, WEST
from tests.chaos.trial import play
from tests.controller.virtual_time import on_virtual_time

CPU = SkuName("cpu")
OFFERING = CATALOGUE.skus[CPU].launch_options[0].offerings[0]


def request(count: int = 1, token: str = "t-1", call: str = "c-1") -> str:
    return json.dumps(
        {
            "launch_request": call,
            "sku": CPU,
            "offerings": [OFFERING.key],
            "count": count,
            "token": token,
        }
    )


def stored(*requests: str, slots: int = 10) -> Invariants:
    """Return invariants over a store with these launch requests."""
    store = MemoryStore()
    for text in requests:
        order = json.loads(text)
        call = LaunchRequest(
            LaunchRequestId(order["launch_request"]),
            CPU,
            WEST,
            0,
            CapacityType.ON_DEMAND,
            (OFFERING.key,),
            tuple(MachineId(f"{n}") for n in range(slots)),
            order["token"],
            text,
            LaunchRequestState.SENT,
            0.0,
        )
        store.records["launch_request", call.id] = call
    return Invariants(CATALOGUE, store)


def launch(invariants: Invariants, text: str, *, repeated: bool) -> None:
    order = json.loads(text)
    invariants.launching(text, order, 0 if repeated else order["count"])


def instance(number: int = 1, installation: str = INSTALLATION) -> Instance:
    machine = ProviderMachineId(f"i-{number}")
    return Instance(machine, LaunchRequestId("c-1"), CPU, OFFERING, installation, 0.0)


def keep_record(store: MemoryStore, instance: Instance, termination: Termination) -> None:
    """Store the record of a machine that is being terminated."""
    record = Machine(
        MachineId(f"m-{instance.id}"),
        CPU,
        WEST,
        instance.launch_request,
        0,
        0.0,
        MachineState.TERMINATING,
        0.0,
        Placement(1.0, (), instance.id),
        termination=termination,
    )
    store.records["machine", record.id] = record


def arrival() -> JobArrival:
    return JobArrival(0.0, 1, ("CPU", "linux"), 60.0)


def queued_job(number: int = 1, at: float = 0.0) -> SimulatedJob:
    job = SimulatedJob(replace(arrival(), job=number), JobState.QUEUED, at)
    job.snapshots.append((at, job.snapshot()))
    return job


def test_correct_behaviour_is_no_violation() -> None:
    invariants = stored(request(6))
    launch(invariants, request(6), repeated=False)
    launch(invariants, request(6), repeated=True)
    invariants.terminating(instance())
    assert invariants.violations == []


def test_sending_a_request_before_it_is_stored_is_a_violation() -> None:
    invariants = stored()
    launch(invariants, request(), repeated=False)
    assert invariants.violations == ["launch request c-1 was sent before it was stored"]


def test_asking_for_more_machines_than_slots_is_a_violation() -> None:
    invariants = stored(request(4), slots=3)
    launch(invariants, request(4), repeated=False)
    assert invariants.violations == ["launch request c-1 asks for more machines than it has slots"]


def test_a_second_token_for_a_launch_request_is_a_violation() -> None:
    invariants = stored(request())
    launch(invariants, request(), repeated=False)
    launch(invariants, request(token="t-2"), repeated=False)
    assert "a slot filled twice: launch request c-1 has another token" in invariants.violations


def test_one_token_for_two_requests_is_a_violation() -> None:
    invariants = stored(request(), request(2))
    launch(invariants, request(), repeated=False)
    launch(invariants, request(2), repeated=True)
    assert "token t-1 came with another request" in invariants.violations


def test_limits_count_running_and_requested_machines() -> None:
    invariants = stored(request(3))
    for number in range(4):
        invariants.began(instance(number))
    launch(invariants, request(3), repeated=False)
    assert invariants.violations == ["cap of cpu broken: 4 + 3 of 6"]
    invariants.violations.clear()
    invariants.ended(instance(0))
    launch(invariants, request(3), repeated=True)
    assert invariants.violations == [], "a repeat launches nothing"


@pytest.mark.parametrize("known", [True, False])
def test_machines_that_no_list_has_shown_to_a_rewound_store_do_not_count(known: bool) -> None:
    invariants = stored(request(3))
    for number in range(4):
        one = instance(number)
        invariants.began(one)
        if known:
            keep_record(invariants._store, one, Termination())
    invariants.hidden = lambda one: one.offering.provider == OFFERING.provider
    launch(invariants, request(3), repeated=False)
    assert (invariants.violations == []) is not known
    invariants.violations.clear()
    invariants.hidden = lambda one: one.offering.provider == EAST
    launch(invariants, request(3), repeated=False)
    assert len(invariants.violations) == 1, "the machines of another provider count"


def test_terminating_a_busy_or_listening_machine_or_one_of_others_is_a_violation() -> None:
    invariants, machine = stored(), instance()
    registration = Registration(1, "org:acme", RunnerName("r"), frozenset({"cpu"}), 0.0)
    activity = MachineActivity(machine, registration=registration, listens=True)
    invariants.activities.append(activity)
    invariants.terminating(machine)
    registration.job = SimulatedJob(arrival(), JobState.IN_PROGRESS, 0.0)
    invariants.terminating(machine)
    invariants.terminating(instance(2, "another"))
    assert invariants.violations == [
        "i-1 was stopped while its runner listened",
        "i-1 was stopped at work",
        "i-2 of another installation was terminated",
    ]


@pytest.mark.parametrize(
    ("reason", "deregistered", "allowed"),
    [
        (TerminationReason.OPERATOR, True, True),
        (TerminationReason.OPERATOR, False, False),
        (TerminationReason.EXITED, True, False),
    ],
)
def test_an_operator_may_terminate_a_machine_once_its_only_job_is_over(
    reason: TerminationReason, deregistered: bool, allowed: bool
) -> None:
    """Found by seed 1050: an operator terminated a machine between its job's end and its runner's exit."""
    store, machine = MemoryStore(), instance()
    invariants = Invariants(CATALOGUE, store)
    keep_record(store, machine, Termination(reason))
    registration = Registration(1, "org:acme", RunnerName("r"), frozenset({"cpu"}), 0.0)
    registration.job = SimulatedJob(arrival(), JobState.COMPLETED, 0.0)
    registration.deleted_at = 60.0 if deregistered else None
    invariants.activities.append(MachineActivity(machine, registration=registration, listens=True))
    invariants.terminating(machine)
    assert (invariants.violations == []) is allowed


def test_registering_before_storing_or_before_the_health_checks_is_a_violation() -> None:
    invariants = stored()
    invariants.activities.append(MachineActivity(instance(), MachineId("m1")))
    invariants.registering(RunnerName("ci-x-m1-1"))
    assert invariants.violations == [
        "ci-x-m1-1 was registered before it was stored",
        "ci-x-m1-1 was registered before its machine passed its health checks",
    ]


def test_one_configuration_for_two_machines_is_a_violation() -> None:
    invariants = stored()
    one, other = (MachineActivity(instance(n), health_checks_passed=True) for n in (1, 2))
    invariants.assigned(one, "SECRET")
    invariants.assigned(one, "SECRET")
    assert invariants.violations == []
    invariants.assigned(other, "SECRET")
    assert invariants.violations == ["one configuration reached two machines: i-2"]


def test_a_job_that_waits_beside_a_ready_machine_starves() -> None:
    invariants, job = stored(), queued_job()
    activity = MachineActivity(instance(), ready_since=0.0)
    invariants.activities.append(activity)
    late = SERVED_WITHIN + 1.0
    invariants.check([job], late, calm=10.0)
    activity.ready_since = late - 10.0
    invariants.check([job], late, calm=late)
    assert invariants.violations == []
    activity.ready_since = 0.0
    invariants.check([job], late, calm=late)
    assert invariants.violations == ["job 1 starves beside a ready machine"]


def checked_each_minute(
    invariants: Invariants, jobs: list[SimulatedJob], calm: float = NO_HOLD_LEFT
) -> list[str]:
    """Return the violations of checks each minute, until one minute after a launch was due."""
    for minute in range(int(LAUNCHED_WITHIN / 60.0) + 2):
        invariants.check(jobs, minute * 60.0, calm + 1.0)
    return invariants.violations


def test_a_job_without_a_launch_starves_while_the_limits_allow_one() -> None:
    invariants = stored()
    job = queued_job()
    assert checked_each_minute(invariants, [job], calm=NO_HOLD_LEFT - 1.0) == [], (
        "a hold may be left"
    )
    assert checked_each_minute(invariants, [job]) == [
        "job 1 starves: there is room, and no machine is on its way"
    ]


def test_machines_that_are_launched_count_for_the_oldest_jobs() -> None:
    invariants = stored()
    oldest, youngest = queued_job(1), queued_job(2, at=5.0)
    boots = MachineActivity(instance())
    invariants.activities.append(boots)
    assert checked_each_minute(invariants, [oldest]) == []
    assert checked_each_minute(invariants, [youngest, oldest]) == [
        "job 2 starves: there is room, and no machine is on its way"
    ]
    invariants.violations.clear()
    boots.instance.ended_at = 1.0
    assert len(checked_each_minute(invariants, [youngest, oldest])) == 2


@pytest.mark.parametrize("running", [6, 5])
def test_jobs_do_not_starve_while_the_limit_is_reached(running: int) -> None:
    invariants = stored()
    for number in range(running):
        invariants.began(instance(number))
    starves = checked_each_minute(invariants, [queued_job()])
    assert bool(starves) is (running < 6)


def test_a_job_that_never_ran_is_a_violation_at_the_end() -> None:
    schedule = Schedule(
        0,
        (JobArrival(5.0, 1, ("gpu",), 60.0),),
        (Fault(0.0, FaultKind.WEBHOOK_VANISHED, 60.0),),
    )
    assert play(schedule).violations == (
        "job 1 starves beside a ready machine",
        "job 1 starves: there is room, and no machine is on its way",
        "job 1 is queued in the end",
        "job 1 ended as None and is recorded otherwise",
    )


@pytest.mark.case(
    "an old answer, `waiting`, arrives after the job was approved",
    topic="GitHub's REST API",
    source="GitHub: using the REST API",
)
def test_lists_correct_an_old_answer_about_an_approval() -> None:
    """Found by seed 59: an answer from before the approval kept the job `waiting` for ever."""
    jobs = (
        JobArrival(2892.4, 22, ("cpu", "Linux"), 90.0, approved=51.0),
        JobArrival(3270.2, 33, ("big",), 37.0, approved=225.0),
    )
    stale = Fault(1594.6, FaultKind.STALE_JOB, 4422.0, every=2, target=51)
    without = play(Schedule(59, jobs, (stale,)))
    assert "job 33 is queued in the end" in without.violations
    assert play(Schedule(59, jobs, (stale,), lists=True)).violations == ()


def test_an_interrupted_job_that_github_never_showed_need_not_be_reported() -> None:
    """Found by seed 625. An idle machine took job 15; all webhooks were lost, and the lists hid its run."""
    jobs = (
        JobArrival(1780.2, 69, ("arm",), 3670.8),
        JobArrival(2066.31, 15, ("arm",), 393.8, repository="acme/gadgets"),
    )
    faults = (
        Fault(1788.2, FaultKind.WEBHOOK_VANISHED, 3070.8),
        Fault(1788.2, FaultKind.WRONG_ANSWERS, 3070.8),
        Fault(2200.3, FaultKind.INTERRUPTED, 120.0, target=47),
    )
    assert play(Schedule(625, jobs, faults, lists=True)).violations == ()


def test_a_job_that_github_never_showed_after_a_restore_need_not_be_recorded() -> None:
    """Found by seed 950: job 10 is newer than the backup, and ended while GitHub answered nothing."""
    jobs = (
        JobArrival(1044.51, 5, ("gpu", "no-rerun"), 545.7),
        JobArrival(1053.34, 6, ("gpu", "no-rerun"), 173.5),
        JobArrival(1380.47, 9, ("gpu",), 1397.7, cancelled=612.7),
        JobArrival(1380.97, 10, ("gpu",), 1534.0, repository="acme/gadgets"),
    )
    faults = (
        Fault(973.0, FaultKind.HUNG_BOOT, 1260.0, every=2),
        Fault(2173.0, FaultKind.GITHUB_5XX, 1800.0),
        Fault(2173.0, FaultKind.STORE_RESTORED, 3600.0, target=1993),
        Fault(3194.3, FaultKind.WEBHOOK_VANISHED, 3140.6),
    )
    assert play(Schedule(950, jobs, faults, lists=True)).violations == ()


def test_an_operator_waits_for_the_end_of_an_incident_at_github() -> None:
    """Found by seed 1050 with clusters: GitHub's list lacked a busy runner that the backup did not know."""
    jobs = (JobArrival(2319.8, 74, ("cpu",), 4590.8),)
    faults = (
        Fault(2325.8, FaultKind.WRONG_ANSWERS, 3990.8),
        Fault(2398.0, FaultKind.STORE_RESTORED, 3600.0, target=2218),
    )
    schedule = Schedule(1050, jobs, faults, lists=True, fleet=Fleet.KUBERNETES)
    assert play(schedule).violations == ()


@on_virtual_time
async def test_a_fault_hits_every_nth_call_while_it_lasts() -> None:
    fault_schedule = FaultSchedule((Fault(10.0, FaultKind.THROTTLED, 20.0, every=3),), 0.0)
    assert fault_schedule.hit(FaultKind.THROTTLED) is None
    await asyncio.sleep(15.0)
    calm = [fault_schedule.calm_for]
    hit = [fault_schedule.hit(FaultKind.THROTTLED) is not None for _ in range(6)]
    assert hit == [False, False, True, False, False, True]
    await asyncio.sleep(35.0)
    assert fault_schedule.hit(FaultKind.THROTTLED) is None
    calm.append(fault_schedule.calm_for)
    assert calm == [None, 20.0]
    assert fault_schedule.hits == {FaultKind.THROTTLED: 2}


def test_more_machines_than_requested_are_a_violation() -> None:
    invariants = stored(request(2))
    launch(invariants, request(2), repeated=False)
    for number in range(2):
        invariants.began(instance(number))
    assert invariants.violations == []
    invariants.began(instance(2))
    assert invariants.violations == [
        "a slot filled twice: launch request c-1 has a machine too many"
    ]


@pytest.mark.parametrize("rewound", [False, True])
def test_a_second_pod_for_a_slot_whose_pod_has_served_is_a_violation(rewound: bool) -> None:
    """Unless the store was restored: it does not know that the pod has served. Found by cluster seed 100570."""
    invariants = stored(request(1))
    first, second = instance(1), instance(2)
    first.slot = second.slot = "gpus/ci-1-0"
    invariants.began(first)
    first.reason = POWERED_OFF
    invariants.ended(first)
    if rewound:
        invariants.rewound()
    invariants.began(second)
    said = "a slot filled twice: there is another pod gpus/ci-1-0"
    assert invariants.violations == ([] if rewound else [said])


def test_a_rerun_of_a_job_whose_machine_was_not_reclaimed_is_a_violation() -> None:
    invariants = stored()
    job = SimulatedJob(arrival(), JobState.COMPLETED, 0.0, killed="taken back")
    invariants.running_again(job)
    assert invariants.violations == []
    job.killed = ""
    invariants.running_again(job)
    assert invariants.violations == ["job 1 was run again, and no machine was taken from it"]


def test_a_machine_with_an_unknown_id_belongs_to_the_fleet_by_its_record() -> None:
    invariants = stored()
    invariants.terminating(instance(3, "given-up"))
    assert invariants.violations == ["i-3 of another installation was terminated"]
