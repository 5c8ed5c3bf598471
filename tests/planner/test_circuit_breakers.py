"""Circuit breakers: a SKU whose machines fail launches one probe at a time, says why, and recovers."""

import dataclasses

import pytest

from autoscaler.controller.reporting.fleet_counts import fleet_counts
from autoscaler.model import events as e
from autoscaler.model.catalogue import CapacityType, IdlePolicy, LaunchOption, Offering
from autoscaler.model.cooldowns import boots_key, exits_key, launch_option_key, open_circuit
from autoscaler.model.identifiers import MachineId, ProviderName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import ExitReason, MachineState, TerminationReason
from autoscaler.model.plan import Launch
from autoscaler.model.reasons.table import WaitCode
from autoscaler.planner.circuit_breakers import CircuitBreakers
from tests.ledger.builders import GPU, GPU_CLASS, World, failure
from tests.planner.fleets import EAST, apply_plan, catalogue, sku

WEST = ProviderName("west")
POD = Offering(WEST, "pod", "", CapacityType.ON_DEMAND, 0.0, "pods", 1)
TWO_OPTIONS = dataclasses.replace(
    sku(),
    launch_options=(*sku().launch_options, LaunchOption(WEST, (CapacityType.ON_DEMAND,), (POD,))),
)


def launched(world: World) -> int:
    return sum(launch.count for launch in world.intents(Launch))


def reasons(world: World) -> str:
    return "; ".join(run.message for run in world.plan().waiting[GPU_CLASS])


def start(world: World, number: int = 0) -> list[MachineId]:
    """Carry out the plan. The providers launch every requested machine."""
    before = set(world.state.launch_requests)
    world.carry_out()
    machines: list[MachineId] = []
    for call in [call for key, call in world.state.launch_requests.items() if key not in before]:
        world.do(e.LaunchRequestPrepared, call.id, "{}")
        world.do(e.LaunchRequestSent, call.id)
        world.answer(call.id, *(f"i-{slot}" for slot in call.slots))
        machines.extend(call.slots)
    assert len(machines) == number
    return machines


def fails(world: World, machine: MachineId) -> None:
    world.boot(machine)
    world.do(e.HealthChecksReported, machine, False, "no gpu")
    gone(world, machine, TerminationReason.SURPLUS)


def gone(world: World, machine: MachineId, reason_code: TerminationReason) -> None:
    world.do(e.TerminationRequested, machine, reason_code, "it is over")
    world.lists(world.listed(machine, terminated=True), complete=False)


def becomes_ready(world: World, machine: MachineId) -> None:
    world.boot(machine)
    world.do(e.HealthChecksReported, machine, True, "ok")


def in_storm(jobs: int = 10, minimum: int = 0) -> World:
    """Return a world in which three machines of a SKU failed, after all holds ended."""
    world = World(catalogue(sku(idle=IdlePolicy(minimum))))
    for name in "abc":
        (machine,) = world.launch(1, name)
        fails(world, machine)
    world.queue(*range(1, jobs + 1))
    world.after(30)
    return world


@pytest.mark.case(
    "machines of a SKU fail one after the other: it launches one machine at a time, gives the "
    "reason, and recovers with the first that becomes ready",
    topic="EC2's machines",
    source="Karpenter: disruption; GAR#5007",
)
def test_after_three_failures_in_a_row_one_probe_at_a_time_is_launched() -> None:
    world = in_storm()
    for hold in (60, 120, 240):
        (probe,) = start(world, 1)
        assert launched(world) == 0
        fails(world, probe)
        assert launched(world) == 0
        world.after(hold - 1)
        assert launched(world) == 0
        world.after(1)
        assert launched(world) == 1


def test_the_first_machine_that_becomes_ready_closes_the_circuit() -> None:
    world = in_storm()
    (probe,) = start(world, 1)
    becomes_ready(world, probe)
    assert launched(world) == 9


def test_no_probe_is_launched_while_machines_from_before_the_circuit_opened_boot() -> None:
    world = World()
    world.queue(*range(1, 11))
    machines = start(world, 10)
    for machine in machines[:9]:
        fails(world, machine)
    world.after(800)
    assert launched(world) == 0
    assert "consecutive machines did not become ready" in reasons(world)
    fails(world, machines[9])
    world.after(900)
    assert launched(world) == 1


@pytest.mark.case(
    "machines of a SKU fail one after the other: it launches one machine at a time, gives the "
    "reason, and recovers with the first that becomes ready",
    topic="EC2's machines",
    source="Karpenter: disruption; GAR#5007",
)
def test_every_waiting_job_has_a_reason() -> None:
    world = in_storm()
    assert [(run.count, run.blocked) for run in world.plan().waiting[GPU_CLASS]] == [
        (1, False),
        (9, True),
    ]
    assert reasons(world).endswith(
        "circuit breaker of gpu open until a machine becomes ready: 3 consecutive machines did not "
        "become ready, the last one: health checks: no gpu; a probe is under way"
    )


def test_an_open_circuit_limits_launches_for_a_ready_minimum() -> None:
    world = in_storm(jobs=0, minimum=5)
    assert launched(world) == 1
    world = in_storm(jobs=2, minimum=5)
    assert launched(world) == 1


def test_the_metrics_show_an_open_circuit_until_it_closes() -> None:
    world = in_storm()
    assert fleet_counts(world.state, world.now).circuits_open == (GPU,)
    (probe,) = start(world, 1)
    becomes_ready(world, probe)
    assert fleet_counts(world.state, world.now).circuits_open == ()
    assert fleet_counts(in_exit_storm(1).state, 0.0).circuits_open == (GPU,)


def test_an_open_circuit_does_not_limit_another_sku() -> None:
    world = World(catalogue(sku("gpu"), sku("cpu")))
    for name in "abc":
        fails(world, world.launch(1, name)[0])
    world.queue(1, 2, 3)
    world.queue(4, 5, 6, labels=("cpu",))
    world.after(30)
    assert {launch.sku: launch.count for launch in world.intents(Launch)} == {"gpu": 1, "cpu": 3}


def test_a_probe_that_is_terminated_for_being_late_makes_room_for_the_next() -> None:
    """In one plan, and the next plan is empty (rule 2)."""
    world = World(catalogue(TWO_OPTIONS))
    for name in "abc":
        fails(world, world.launch(1, name)[0])
    world.queue(1, 2, 3)
    (probe,) = start(world, 1)
    assert world.machine(probe).provider == WEST
    world.after(900)
    made = world.plan()
    assert [type(intent).__name__ for intent in made.intents] == ["Terminate", "Launch"]
    apply_plan(world.ledger, made, world.now, "next-")
    assert world.plan().intents == ()


@pytest.mark.case(
    "machines of one launch option fail while another one works: the bad one gets a probe now and"
    " then",
    topic="EC2's machines",
    source="Karpenter liveness.go",
)
def test_an_option_whose_machines_fail_gets_a_probe_while_another_option_serves() -> None:
    world = World(catalogue(TWO_OPTIONS))
    for name in "abc":
        fails(world, world.launch(1, name)[0])
    world.queue(*range(1, 11))
    (probe,) = start(world, 1)
    assert world.machine(probe).provider == WEST
    becomes_ready(world, probe)
    counted = fleet_counts(world.state, world.now)
    assert (counted.circuits_open, counted.option_circuits_open) == ((), ((GPU, EAST),))
    world.after(30)
    counts = {launch.provider: launch.count for launch in world.intents(Launch)}
    assert counts == {EAST: 1, WEST: 8}
    machines = start(world, 9)
    world.queue(11, 12)
    assert {launch.provider: launch.count for launch in world.intents(Launch)} == {WEST: 2}
    (first,) = (m for m in machines if world.machine(m).provider == EAST)
    becomes_ready(world, first)
    assert {launch.provider: launch.count for launch in world.intents(Launch)} == {EAST: 2}
    assert open_circuit(world.state.cooldowns, launch_option_key(GPU, 0)) is None
    assert fleet_counts(world.state, world.now).option_circuits_open == ()


# --- runners that leave at once -------------------------------------------------------------------


def leaves(world: World, machine: MachineId) -> None:
    runner = world.assignment(machine)
    world.now += 3
    world.do(e.MachineExited, machine, "the runner exited with status 1")
    for job in tuple(world.state.reads):
        world.observe(job, JobState.QUEUED, read=True)
    gone(world, machine, TerminationReason.EXITED)
    assert world.runner(runner).job is None


def serve_badly(world: World, hours: float) -> int:
    """GitHub refuses the runner version: every machine becomes ready, and its runner leaves without a job."""
    until, count = world.now + hours * 3600, 0
    while world.now < until:
        before = set(world.state.machines)
        start(world, launched(world))
        for machine in [m for m in world.state.machines if m not in before]:
            becomes_ready(world, machine)
            count += 1
        for known in tuple(world.state.machines.values()):
            if known.state is MachineState.READY:
                leaves(world, known.id)
        world.after(10)
    return count


@pytest.mark.case(
    "runners exit at once without a job, each time (refused for their age): one machine at a "
    "time until one gets a job",
    topic="EC2's machines",
    source="community#194762",
)
def test_runners_that_are_refused_do_not_launch_without_end() -> None:
    world = World()
    world.queue(1)
    assert serve_badly(world, 6) <= 3 + 30
    assert "the last one: the runner of machine" in reasons(world)


def in_exit_storm(jobs: int) -> World:
    world = World()
    for name in "abc":
        leaves(world, world.make_ready(1, name)[0])
    world.queue(*range(1, jobs + 1))
    return world


def test_during_the_backoff_nothing_is_launched_and_the_reason_is_shown() -> None:
    world = in_exit_storm(5)
    assert launched(world) == 0
    assert reasons(world).endswith("; a probe follows")
    world.after(30)
    assert launched(world) == 1
    assert reasons(world).startswith("a machine for the job is about to be requested")
    assert "circuit breaker of gpu open until a runner gets a job: 3 or more" in reasons(world)
    assert reasons(world).endswith("; a probe is under way")


@pytest.mark.parametrize("stage", ["requested", "ready", "named", "deregistering", "listening"])
def test_a_probe_lasts_until_its_runner_gets_a_job_or_leaves(stage: str) -> None:
    world = in_exit_storm(5)
    world.after(30)
    (probe,) = start(world, 1)
    if stage != "requested":
        becomes_ready(world, probe)
    if stage in ("named", "deregistering"):
        name = world.name(probe)
        if stage == "deregistering":
            world.do(e.RunnerDeregistrationRequested, name, "no queued job needs it")
    if stage == "listening":
        world.assignment(probe)
    assert launched(world) == 0


def test_a_probe_that_ends_while_its_runner_is_deregistered_allows_another_probe() -> None:
    world = in_exit_storm(5)
    world.after(30)
    (probe,) = start(world, 1)
    becomes_ready(world, probe)
    world.do(e.RunnerDeregistrationRequested, world.name(probe), "no queued job needs it")
    world.after(301.0)
    assert launched(world) == 1
    world.carry_out()
    assert launched(world) == 0


def test_the_first_runner_that_gets_a_job_closes_the_circuit() -> None:
    world = in_exit_storm(5)
    world.after(30)
    (probe,) = start(world, 1)
    becomes_ready(world, probe)
    runner = world.assignment(probe)
    assert launched(world) == 0
    world.starts(1, runner)
    assert open_circuit(world.state.cooldowns, exits_key(GPU)) is None
    assert launched(world) == 4


def test_a_probe_that_is_passed_over_for_minutes_does_not_stop_the_next_probe() -> None:
    world = in_exit_storm(5)
    world.after(30)
    (probe,) = start(world, 1)
    becomes_ready(world, probe)
    runner = world.assignment(probe)
    world.after(180)
    assert world.runner(runner).passed_over
    assert launched(world) == 1


def test_ready_machines_do_not_close_the_circuit_that_only_a_job_closes() -> None:
    world = in_exit_storm(3)
    world.make_ready(1, "x")
    assert open_circuit(world.state.cooldowns, exits_key(GPU)) is not None
    assert open_circuit(world.state.cooldowns, boots_key(GPU)) is None


@pytest.mark.case(
    "the machines of a SKU never boot: after each probe that misses its deadline, the next one waits for the "
    "growing hold",
    topic="EC2's machines",
    source="Karpenter: disruption; GAR#5007",
)
@pytest.mark.parametrize("boots", [True, False])
def test_a_probe_that_misses_its_deadline_is_not_replaced_before_the_hold(boots: bool) -> None:
    world = in_storm()
    deadlines = world.catalogue.skus[GPU].deadlines
    for hold in (60, 120, 240):
        (probe,) = start(world, 1)
        if boots:
            world.boot(probe)
        world.after(int(deadlines.health_checks if boots else deadlines.boot))
        made = world.plan()
        assert [type(intent).__name__ for intent in made.intents] == ["Terminate"]
        apply_plan(world.ledger, made, world.now, f"late-{hold}-")
        world.lists(world.listed(probe, terminated=True), complete=False)
        assert launched(world) == 0
        world.after(hold - 1)
        assert launched(world) == 0
        code = WaitCode.HEALTH_CHECK if boots else WaitCode.BOOT_DEADLINE
        assert {run.code for run in world.plan().waiting[GPU_CLASS]} == {code}
        world.after(1)
        assert launched(world) == 1


def test_after_refusals_for_configuration_an_accepted_probe_lets_every_job_have_a_machine() -> None:
    world = World()
    for name in "abcd":
        world.send(1, name)
        world.answer(name, failures=[failure(FailureClass.CONFIGURATION)])
        world.after(60)
    world.queue(*range(1, 11))
    assert launched(world) == 1
    start(world, 1)
    assert launched(world) == 9, "before the probe is ready"


def test_machines_that_cannot_start_are_probed_one_at_a_time_although_each_is_accepted() -> None:
    world = World()
    world.queue(*range(1, 11))
    for hold in (60, 120, 240, 480, 900, 900):
        probes = start(world, launched(world))
        for probe in probes:
            ended = world.listed(probe, terminated=True)
            world.lists(dataclasses.replace(ended, failure=FailureClass.CONFIGURATION))
        row = world.state.cooldowns[launch_option_key(GPU, 0)]
        assert row.until - world.now == hold
        assert launched(world) == 0
        world.after(hold)
    assert launched(world) == 1


def test_a_late_probe_keeps_the_breaker_open_that_refused_launches_opened() -> None:
    world = World()
    for name in "abc":
        world.send(1, name)
        world.answer(name, failures=[failure(FailureClass.UNKNOWN)])
        world.after(3600)
    world.queue(*range(1, 11))
    start(world, 1)
    world.after(int(world.catalogue.skus[GPU].deadlines.boot))
    apply_plan(world.ledger, world.plan(), world.now, "late-")
    assert world.plan().intents == ()
    assert open_circuit(world.state.cooldowns, launch_option_key(GPU, 0)) is not None


def test_a_late_machine_is_replaced_at_once_by_another_launch_option() -> None:
    world = World(catalogue(TWO_OPTIONS))
    for name in "abc":
        fails(world, world.launch(1, name)[0])
    world.queue(1)
    world.after(30)
    start(world, 1)
    world.after(int(world.catalogue.skus[GPU].deadlines.boot))
    made = world.plan()
    assert [one.offerings for one in made.intents if isinstance(one, Launch)] == [(POD.key,)]
    apply_plan(world.ledger, made, world.now, "late-")
    assert world.plan().intents == ()


def test_a_ready_probe_that_the_plan_terminates_no_longer_counts_as_a_probe() -> None:
    world = in_exit_storm(1)
    world.after(30)
    (probe,) = start(world, 1)
    becomes_ready(world, probe)
    world.after(300)
    made = world.plan()
    assert [type(intent).__name__ for intent in made.intents] == ["Terminate", "Launch"]
    apply_plan(world.ledger, made, world.now, "next-")
    assert world.plan().intents == ()


def reason(world: World, *ended: str) -> str | None:
    """Return the reason why no machine may be launched after these machines are terminated."""
    breakers = CircuitBreakers(world.fleet(), {MachineId(machine) for machine in ended})
    blocked = breakers.sku_blocked(GPU)
    return blocked.message if blocked is not None else None


def test_a_booting_probe_counts_unless_it_is_the_one_that_is_terminated() -> None:
    world = in_storm()
    (probe,) = start(world, 1)
    (other,) = world.make_ready(1, "x")
    fails(world, world.launch(1, "y")[0])
    assert reason(world, other) is None  # the machine that became ready closed the circuit
    world = in_storm()
    (probe,) = start(world, 1)
    assert reason(world) is not None
    assert reason(world, "a0", "b0") is not None
    assert reason(world, "a0", probe) is None


def test_a_listening_probe_counts_unless_it_is_the_one_that_is_terminated() -> None:
    world = in_exit_storm(5)
    world.after(30)
    (probe,) = start(world, 1)
    becomes_ready(world, probe)
    world.assignment(probe)
    assert reason(world) is not None
    assert reason(world, probe) is None


def test_a_terminated_passed_over_probe_does_not_make_another_machine_surplus() -> None:
    world = in_exit_storm(5)
    world.after(30)
    (probe,) = start(world, 1)
    becomes_ready(world, probe)
    world.assignment(probe)
    world.after(180)
    world.make_ready(1, "x")
    assert reason(world, probe) is not None
    assert reason(world, probe, "x0") is None


def test_without_idle_runners_no_probe_is_in_progress() -> None:
    world = in_exit_storm(5)
    world.after(30)
    fleet = dataclasses.replace(world.fleet(), runners_without_job={})
    assert CircuitBreakers(fleet, ()).sku_blocked(GPU) is None


@pytest.mark.case(
    "GitHub refuses its newest runner during an outage: the controller tries one machine now and "
    "then",
    topic="Runner and listener",
    source="actions/runner#4613",
)
def test_a_refused_image_is_launched_only_as_a_probe_until_it_is_replaced() -> None:
    """After an outage in which GitHub refused even new runners, one probe shows that it is over."""
    world = World()
    world.queue(*range(1, 6))
    for name in "ab":
        (one,) = world.make_ready(1, name)
        world.lists(dataclasses.replace(world.listed(one), image="ami-old"), complete=False)
        world.assignment(one)
        world.do(e.MachineExited, one, "it is deprecated", ExitReason.VERSION_DEPRECATED)
        for job in tuple(world.state.reads):
            world.observe(job, JobState.QUEUED, read=True)
        gone(world, one, TerminationReason.EXITED)
    assert launched(world) == 0
    assert reasons(world).startswith("circuit breaker of gpu open until its image is replaced: ")
    assert "in image ami-old" in reasons(world)
    world.after(300)
    assert launched(world) == 1
    world.do(e.CircuitClosed, GPU, "another image")
    assert launched(world) == 5
