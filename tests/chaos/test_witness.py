"""What must never happen is noticed: one case for each thing that the witness looks at."""

import asyncio
import json
from dataclasses import replace

import pytest

from autoscaler.model.calls import Call, CallState
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.identifiers import CallId, MachineId, ProviderMachineId, RunnerName, SkuName
from autoscaler.model.jobs import JobState
from autoscaler.simulator.world.instances import Instance, Seat
from autoscaler.simulator.world.jobs import Registration, SimulatedJob
from autoscaler.simulator.world.schedule import Fault, FaultKind, JobArrival, Schedule
from autoscaler.simulator.world.store import INSTALLATION, MemoryStore
from autoscaler.simulator.world.virtual_time import run
from autoscaler.simulator.world.weather import Weather
from autoscaler.simulator.world.witness import (
    LAUNCHED_WITHIN,
    NO_HOLD_LEFT,
    SERVED_WITHIN,
    Witness,
)
from tests.chaos.fleet import CATALOGUE, WEST
from tests.chaos.trial import play

CPU = SkuName("cpu")
OFFERING = CATALOGUE.skus[CPU].ladder[0].offerings[0]


def request(count: int = 1, token: str = "t-1", call: str = "c-1") -> str:
    return json.dumps(
        {"call": call, "sku": CPU, "offerings": [OFFERING.key], "count": count, "token": token}
    )


def stored(*requests: str, slots: int = 10) -> Witness:
    """A witness beside a store that holds calls with these requests."""
    store = MemoryStore()
    for text in requests:
        order = json.loads(text)
        call = Call(
            CallId(order["call"]),
            CPU,
            WEST,
            0,
            CapacityType.ON_DEMAND,
            (OFFERING.key,),
            tuple(MachineId(f"{n}") for n in range(slots)),
            order["token"],
            text,
            CallState.SENT,
            0.0,
        )
        store.records["call", call.id] = call
    return Witness(CATALOGUE, store)


def instance(number: int = 1, installation: str = INSTALLATION) -> Instance:
    machine = ProviderMachineId(f"i-{number}")
    return Instance(machine, CallId("c-1"), CPU, OFFERING, installation, 0.0)


def arrival() -> JobArrival:
    return JobArrival(0.0, 1, ("CPU", "linux"), 60.0)


def queued_job(number: int = 1, at: float = 0.0) -> SimulatedJob:
    job = SimulatedJob(replace(arrival(), job=number), JobState.QUEUED, at)
    job.words.append((at, job.word()))
    return job


def test_what_is_in_order_is_not_noted() -> None:
    witness = stored(request(6))
    witness.launching(request(6), repeated=False)
    witness.launching(request(6), repeated=True)
    witness.ending(instance())
    assert witness.violations == []


def test_a_request_that_was_not_stored() -> None:
    witness = stored()
    witness.launching(request(), repeated=False)
    assert witness.violations == ["call c-1 was sent before it was stored"]


def test_more_machines_than_slots() -> None:
    witness = stored(request(4), slots=3)
    witness.launching(request(4), repeated=False)
    assert witness.violations == ["call c-1 asks for more machines than it has slots"]


def test_a_slot_filled_twice() -> None:
    witness = stored(request())
    witness.launching(request(), repeated=False)
    witness.launching(request(token="t-2"), repeated=False)
    assert "a slot filled twice: call c-1 has another token" in witness.violations


def test_a_token_with_another_request() -> None:
    witness = stored(request(), request(2))
    witness.launching(request(), repeated=False)
    witness.launching(request(2), repeated=True)
    assert "token t-1 came with another request" in witness.violations


def test_a_cap_counts_what_runs_and_what_is_asked_for() -> None:
    witness = stored(request(3))
    for number in range(4):
        witness.began(instance(number))
    witness.launching(request(3), repeated=False)
    assert witness.violations == ["cap of cpu broken: 4 + 3 of 6"]
    witness.violations.clear()
    witness.ended(instance(0))
    witness.launching(request(3), repeated=True)
    assert witness.violations == [], "a repeat launches nothing"


def test_a_machine_at_work_one_that_listens_and_a_stranger_s() -> None:
    witness, machine = stored(), instance()
    registration = Registration(1, "org:acme", RunnerName("r"), frozenset({"cpu"}), 0.0)
    seat = Seat(machine, registration=registration, listens=True)
    witness.seats.append(seat)
    witness.ending(machine)
    registration.job = SimulatedJob(arrival(), JobState.IN_PROGRESS, 0.0)
    witness.ending(machine)
    witness.ending(instance(2, "another"))
    assert witness.violations == [
        "i-1 was stopped while its runner listened",
        "i-1 was stopped at work",
        "i-2 of another installation was ended",
    ]


def test_a_registration_that_was_not_stored_or_comes_too_early() -> None:
    witness = stored()
    witness.seats.append(Seat(instance(), MachineId("m1")))
    witness.minting(RunnerName("ci-x-m1-1"))
    assert witness.violations == [
        "ci-x-m1-1 was minted before it was stored",
        "ci-x-m1-1 was minted before its machine's gate",
    ]


def test_a_configuration_handed_out_twice() -> None:
    witness = stored()
    one, other = (Seat(instance(n), gate_passed=True) for n in (1, 2))
    witness.granted(one, "SECRET")
    witness.granted(one, "SECRET")
    assert witness.violations == []
    witness.granted(other, "SECRET")
    assert witness.violations == ["one configuration reached two machines: i-2"]


def test_a_job_left_beside_a_machine_that_fits_it() -> None:
    witness, job = stored(), queued_job()
    seat = Seat(instance(), parked_since=0.0)
    witness.seats.append(seat)
    late = SERVED_WITHIN + 1.0
    witness.look([job], late, calm=10.0)
    seat.parked_since = late - 10.0
    witness.look([job], late, calm=late)
    assert witness.violations == []
    seat.parked_since = 0.0
    witness.look([job], late, calm=late)
    assert witness.violations == ["job 1 starves beside a parked machine"]


def looked_at(witness: Witness, jobs: list[SimulatedJob], calm: float = NO_HOLD_LEFT) -> list[str]:
    """What is noted in one minute more than a machine may take to be asked for."""
    for minute in range(int(LAUNCHED_WITHIN / 60.0) + 2):
        witness.look(jobs, minute * 60.0, calm + 1.0)
    return witness.violations


def test_a_job_without_a_machine_on_its_way_while_there_is_room() -> None:
    witness = stored()
    job = queued_job()
    assert looked_at(witness, [job], calm=NO_HOLD_LEFT - 1.0) == [], "a hold may be left"
    assert looked_at(witness, [job]) == [
        "job 1 starves: there is room, and no machine is on its way"
    ]


def test_machines_on_their_way_are_for_the_oldest_jobs() -> None:
    witness = stored()
    oldest, youngest = queued_job(1), queued_job(2, at=5.0)
    boots = Seat(instance())
    witness.seats.append(boots)
    assert looked_at(witness, [oldest]) == []
    assert looked_at(witness, [youngest, oldest]) == [
        "job 2 starves: there is room, and no machine is on its way"
    ]
    witness.violations.clear()
    boots.instance.ended_at = 1.0
    assert len(looked_at(witness, [youngest, oldest])) == 2


@pytest.mark.parametrize("running", [6, 5])
def test_nobody_starves_under_a_cap_that_is_reached(running: int) -> None:
    witness = stored()
    for number in range(running):
        witness.began(instance(number))
    starves = looked_at(witness, [queued_job()])
    assert bool(starves) is (running < 6)


def test_a_job_that_nothing_was_done_for_is_wrong_in_the_end() -> None:
    schedule = Schedule(
        0,
        (JobArrival(5.0, 1, ("gpu",), 60.0),),
        (Fault(0.0, FaultKind.WEBHOOK_VANISHED, 60.0),),
    )
    assert play(schedule).violations == (
        "job 1 starves beside a parked machine",
        "job 1 starves: there is room, and no machine is on its way",
        "job 1 is queued in the end",
        "job 1 ended as None and is not known so",
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


def test_of_every_n_things_the_nth_is_hit_while_the_fault_holds() -> None:
    async def scenario() -> None:
        weather = Weather((Fault(10.0, FaultKind.THROTTLED, 20.0, every=3),), 0.0)
        assert weather.strikes(FaultKind.THROTTLED) is None
        await asyncio.sleep(15.0)
        calm = [weather.calm_for]
        hit = [weather.strikes(FaultKind.THROTTLED) is not None for _ in range(6)]
        assert hit == [False, False, True, False, False, True]
        await asyncio.sleep(35.0)
        assert weather.strikes(FaultKind.THROTTLED) is None
        calm.append(weather.calm_for)
        assert calm == [None, 20.0]
        assert weather.hits == {FaultKind.THROTTLED: 2}

    run(scenario())


def test_more_machines_than_were_asked_for() -> None:
    witness = stored(request(2))
    witness.launching(request(2), repeated=False)
    for number in range(2):
        witness.began(instance(number))
    assert witness.violations == []
    witness.began(instance(2))
    assert witness.violations == ["a slot filled twice: call c-1 has a machine too many"]


def test_a_job_run_again_whose_machine_nobody_took() -> None:
    witness = stored()
    job = SimulatedJob(arrival(), JobState.COMPLETED, 0.0, killed="taken back")
    witness.running_again(job)
    assert witness.violations == []
    job.killed = ""
    witness.running_again(job)
    assert witness.violations == ["job 1 was run again, and no machine was taken from it"]


def test_a_machine_of_an_id_that_was_given_up_stays_ours_by_its_record() -> None:
    witness = stored()
    witness.ending(instance(3, "given-up"))
    assert witness.violations == ["i-3 of another installation was ended"]
