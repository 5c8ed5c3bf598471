"""What must never happen is noticed: one case for each thing that the invariants looks at."""

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
from autoscaler.model.jobs import JobState
from autoscaler.model.launch_requests import LaunchRequest, LaunchRequestState
from autoscaler.model.machines import (
    Machine,
    MachineState,
    Placement,
    Termination,
    TerminationReason,
)
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.instances import Instance, Seat
from autoscaler.simulator.world.invariants import (
    LAUNCHED_WITHIN,
    NO_HOLD_LEFT,
    SERVED_WITHIN,
    Invariants,
)
from autoscaler.simulator.world.jobs import Registration, SimulatedJob
from autoscaler.simulator.world.schedule import Fault, FaultKind, JobArrival, Schedule
from autoscaler.simulator.world.store import INSTALLATION, MemoryStore
from autoscaler.simulator.world.virtual_time import run
from tests.chaos.fleet import CATALOGUE, WEST
from tests.chaos.trial import play

CPU = SkuName("cpu")
OFFERING = CATALOGUE.skus[CPU].launch_options[0].offerings[0]


def request(count: int = 1, token: str = "t-1", call: str = "c-1") -> str:
    return json.dumps(
        {"call": call, "sku": CPU, "offerings": [OFFERING.key], "count": count, "token": token}
    )


def stored(*requests: str, slots: int = 10) -> Invariants:
    """A invariants beside a store that holds calls with these requests."""
    store = MemoryStore()
    for text in requests:
        order = json.loads(text)
        call = LaunchRequest(
            LaunchRequestId(order["call"]),
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


def arrival() -> JobArrival:
    return JobArrival(0.0, 1, ("CPU", "linux"), 60.0)


def queued_job(number: int = 1, at: float = 0.0) -> SimulatedJob:
    job = SimulatedJob(replace(arrival(), job=number), JobState.QUEUED, at)
    job.words.append((at, job.word()))
    return job


def test_correct_behaviour_is_no_violation() -> None:
    invariants = stored(request(6))
    launch(invariants, request(6), repeated=False)
    launch(invariants, request(6), repeated=True)
    invariants.ending(instance())
    assert invariants.violations == []


def test_a_request_that_was_not_stored() -> None:
    invariants = stored()
    launch(invariants, request(), repeated=False)
    assert invariants.violations == ["call c-1 was sent before it was stored"]


def test_more_machines_than_slots() -> None:
    invariants = stored(request(4), slots=3)
    launch(invariants, request(4), repeated=False)
    assert invariants.violations == ["call c-1 asks for more machines than it has slots"]


def test_a_slot_filled_twice() -> None:
    invariants = stored(request())
    launch(invariants, request(), repeated=False)
    launch(invariants, request(token="t-2"), repeated=False)
    assert "a slot filled twice: call c-1 has another token" in invariants.violations


def test_a_token_with_another_request() -> None:
    invariants = stored(request(), request(2))
    launch(invariants, request(), repeated=False)
    launch(invariants, request(2), repeated=True)
    assert "token t-1 came with another request" in invariants.violations


def test_a_cap_counts_what_runs_and_what_is_asked_for() -> None:
    invariants = stored(request(3))
    for number in range(4):
        invariants.began(instance(number))
    launch(invariants, request(3), repeated=False)
    assert invariants.violations == ["cap of cpu broken: 4 + 3 of 6"]
    invariants.violations.clear()
    invariants.ended(instance(0))
    launch(invariants, request(3), repeated=True)
    assert invariants.violations == [], "a repeat launches nothing"


def test_a_machine_at_work_one_that_listens_and_a_stranger_s() -> None:
    invariants, machine = stored(), instance()
    registration = Registration(1, "org:acme", RunnerName("r"), frozenset({"cpu"}), 0.0)
    seat = Seat(machine, registration=registration, listens=True)
    invariants.seats.append(seat)
    invariants.ending(machine)
    registration.job = SimulatedJob(arrival(), JobState.IN_PROGRESS, 0.0)
    invariants.ending(machine)
    invariants.ending(instance(2, "another"))
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
    record = Machine(
        MachineId("m1"),
        CPU,
        WEST,
        machine.call,
        0,
        0.0,
        MachineState.TERMINATING,
        0.0,
        Placement(1.0, (), machine.id),
        termination=Termination(reason),
    )
    store.records["machine", record.id] = record
    registration = Registration(1, "org:acme", RunnerName("r"), frozenset({"cpu"}), 0.0)
    registration.job = SimulatedJob(arrival(), JobState.COMPLETED, 0.0)
    registration.deleted_at = 60.0 if deregistered else None
    invariants.seats.append(Seat(machine, registration=registration, listens=True))
    invariants.ending(machine)
    assert (invariants.violations == []) is allowed


def test_a_registration_that_was_not_stored_or_comes_too_early() -> None:
    invariants = stored()
    invariants.seats.append(Seat(instance(), MachineId("m1")))
    invariants.registering(RunnerName("ci-x-m1-1"))
    assert invariants.violations == [
        "ci-x-m1-1 was registered before it was stored",
        "ci-x-m1-1 was registered before its machine passed its health checks",
    ]


def test_a_configuration_handed_out_twice() -> None:
    invariants = stored()
    one, other = (Seat(instance(n), health_checks_passed=True) for n in (1, 2))
    invariants.assigned(one, "SECRET")
    invariants.assigned(one, "SECRET")
    assert invariants.violations == []
    invariants.assigned(other, "SECRET")
    assert invariants.violations == ["one configuration reached two machines: i-2"]


def test_a_job_left_beside_a_machine_that_fits_it() -> None:
    invariants, job = stored(), queued_job()
    seat = Seat(instance(), ready_since=0.0)
    invariants.seats.append(seat)
    late = SERVED_WITHIN + 1.0
    invariants.look([job], late, calm=10.0)
    seat.ready_since = late - 10.0
    invariants.look([job], late, calm=late)
    assert invariants.violations == []
    seat.ready_since = 0.0
    invariants.look([job], late, calm=late)
    assert invariants.violations == ["job 1 starves beside a ready machine"]


def looked_at(
    invariants: Invariants, jobs: list[SimulatedJob], calm: float = NO_HOLD_LEFT
) -> list[str]:
    """What is noted in one minute more than a machine may take to be asked for."""
    for minute in range(int(LAUNCHED_WITHIN / 60.0) + 2):
        invariants.look(jobs, minute * 60.0, calm + 1.0)
    return invariants.violations


def test_a_job_without_a_machine_on_its_way_while_there_is_room() -> None:
    invariants = stored()
    job = queued_job()
    assert looked_at(invariants, [job], calm=NO_HOLD_LEFT - 1.0) == [], "a hold may be left"
    assert looked_at(invariants, [job]) == [
        "job 1 starves: there is room, and no machine is on its way"
    ]


def test_machines_on_their_way_are_for_the_oldest_jobs() -> None:
    invariants = stored()
    oldest, youngest = queued_job(1), queued_job(2, at=5.0)
    boots = Seat(instance())
    invariants.seats.append(boots)
    assert looked_at(invariants, [oldest]) == []
    assert looked_at(invariants, [youngest, oldest]) == [
        "job 2 starves: there is room, and no machine is on its way"
    ]
    invariants.violations.clear()
    boots.instance.ended_at = 1.0
    assert len(looked_at(invariants, [youngest, oldest])) == 2


@pytest.mark.parametrize("running", [6, 5])
def test_waiting_jobs_are_no_starvation_while_the_cap_is_reached(running: int) -> None:
    invariants = stored()
    for number in range(running):
        invariants.began(instance(number))
    starves = looked_at(invariants, [queued_job()])
    assert bool(starves) is (running < 6)


def test_a_job_that_nothing_was_done_for_is_wrong_in_the_end() -> None:
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
def test_an_old_answer_about_an_approval_is_put_right_by_the_lists() -> None:
    """Found by seed 59: `waiting` of before the approval was believed after it, for ever."""
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


def test_a_fault_hits_every_nth_call_while_it_lasts() -> None:
    async def scenario() -> None:
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

    run(scenario())


def test_more_machines_than_were_asked_for() -> None:
    invariants = stored(request(2))
    launch(invariants, request(2), repeated=False)
    for number in range(2):
        invariants.began(instance(number))
    assert invariants.violations == []
    invariants.began(instance(2))
    assert invariants.violations == ["a slot filled twice: call c-1 has a machine too many"]


def test_a_rerun_of_a_job_whose_machine_was_not_reclaimed_is_a_violation() -> None:
    invariants = stored()
    job = SimulatedJob(arrival(), JobState.COMPLETED, 0.0, killed="taken back")
    invariants.running_again(job)
    assert invariants.violations == []
    job.killed = ""
    invariants.running_again(job)
    assert invariants.violations == ["job 1 was run again, and no machine was taken from it"]


def test_a_machine_of_an_id_that_was_given_up_stays_ours_by_its_record() -> None:
    invariants = stored()
    invariants.ending(instance(3, "given-up"))
    assert invariants.violations == ["i-3 of another installation was terminated"]
