"""A SKU's circuit breaker: what opens it, what does not, what closes it."""

from dataclasses import replace

import pytest

from autoscaler.ledger.failures.circuits import open_circuits, refused_image
from autoscaler.model import events as e
from autoscaler.model.cooldowns import boots_key, exits_key, launch_option_key, open_circuit
from autoscaler.model.identifiers import MachineId, SkuName
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.model.machines.machine import ExitReason, TerminationReason
from autoscaler.model.operators import sku_target
from tests.ledger.builders import ALICE, GPU, World
from tests.planner.fleets import EAST, catalogue, sku


def boots(world: World) -> int:
    row = world.state.cooldowns.get(boots_key(GPU))
    return row.failures if row is not None else 0


def exits(world: World) -> int:
    row = world.state.cooldowns.get(exits_key(GPU))
    return row.failures if row is not None else 0


def late_boot(world: World, name: str) -> None:
    (machine,) = world.launch(1, name)
    world.do(e.TerminationRequested, machine, TerminationReason.DEADLINE, "no attestation")


def late_health_checks(world: World, name: str) -> None:
    (machine,) = world.launch(1, name)
    world.boot(machine)
    world.do(
        e.TerminationRequested,
        machine,
        TerminationReason.DEADLINE,
        "its health checks did not end in time",
    )


def failing_health_checks(world: World, name: str) -> None:
    (machine,) = world.launch(1, name)
    world.boot(machine)
    world.do(e.HealthChecksReported, machine, False, "no gpu")


def ended_by_itself(world: World, name: str) -> None:
    (machine,) = world.launch(1, name)
    world.lists(world.listed(machine, terminated=True))


def ended_by_itself_as_an_event_reports(world: World, name: str) -> None:
    (machine,) = world.launch(1, name)
    world.lists(replace(world.listed(machine), leaving=True))


def notice(world: World, machine: MachineId, kind: NoticeKind) -> None:
    known = world.machine(machine).placement.provider_id
    world.do(e.MachineNoticed, EAST, known, kind, world.now, "shutting-down")
    world.do(e.TerminationRequested, machine, TerminationReason.INTERRUPTED, kind.value)


BAD = [
    late_boot,
    late_health_checks,
    failing_health_checks,
    ended_by_itself,
    ended_by_itself_as_an_event_reports,
]


@pytest.mark.case(
    "machines of a SKU fail one after the other: it launches one machine at a time, gives the "
    "reason, and recovers with the first that becomes ready",
    topic="EC2's machines",
    source="Karpenter: disruption; GAR#5007",
)
def test_every_failure_before_ready_counts_towards_the_circuit_breaker() -> None:
    world = World()
    for number, fate in enumerate(BAD, start=1):
        fate(world, fate.__name__)
        assert boots(world) == number


def test_a_machine_that_becomes_ready_closes_the_circuit() -> None:
    world = World()
    for fate in BAD:
        fate(world, fate.__name__)
    assert open_circuit(world.state.cooldowns, boots_key(GPU)) is not None
    world.make_ready(1, "good")
    assert boots(world) == 0
    rows = [
        row.event for row in world.ledger.take_changes().history if row.event.startswith("circuit")
    ]
    assert rows == ["circuit_opened", "circuit_closed"]


def test_two_failures_in_a_row_do_not_open_the_circuit() -> None:
    world = World()
    late_boot(world, "a")
    late_boot(world, "b")
    assert open_circuit(world.state.cooldowns, boots_key(GPU)) is None
    world.make_ready(1, "good")
    assert not [
        row for row in world.ledger.take_changes().history if row.event.startswith("circuit")
    ]


def test_late_health_checks_after_a_reboot_are_not_a_failed_boot() -> None:
    world = World()
    (machine,) = world.make_ready()
    world.boot(machine)
    world.do(
        e.TerminationRequested,
        machine,
        TerminationReason.DEADLINE,
        "its health checks did not end in time",
    )
    assert boots(world) == 0


def test_a_machine_terminated_before_its_boot_deadline_is_not_a_failure() -> None:
    world = World()
    for reason_code in (
        TerminationReason.SURPLUS,
        TerminationReason.OPERATOR,
        TerminationReason.MAX_AGE,
    ):
        (machine,) = world.launch(1, reason_code.value)
        world.do(e.TerminationRequested, machine, reason_code, "not needed")
    assert boots(world) == 0


def test_a_machine_that_its_provider_interrupts_is_not_a_failed_boot() -> None:
    world = World()
    for kind in (NoticeKind.SPOT_INTERRUPTION, NoticeKind.REBALANCE_RECOMMENDATION):
        (machine,) = world.launch(1, kind.value)
        notice(world, machine, kind)
    assert boots(world) == 0


def test_each_sku_has_its_own_circuit_breaker() -> None:
    world = World(catalogue(sku("gpu"), sku("cpu")))
    for name in "abc":
        late_boot(world, name)
    assert open_circuit(world.state.cooldowns, boots_key(SkuName("cpu"))) is None
    world.make_ready(1, "x", "cpu")
    assert boots(world) == 3


def leaves(world: World, name: str, after: float = 5.0) -> str:
    """A runner that listens and leaves without a job."""
    runner = world.ready(name)
    world.now += after
    world.do(e.MachineExited, world.runner(runner).machine, "the runner exited with status 1")
    return runner


@pytest.mark.case(
    "runners exit at once without a job, each time (refused for their age): one machine at a "
    "time until one gets a job",
    topic="EC2's machines",
    source="community#194762",
)
def test_runners_that_exit_at_once_without_a_job_count_as_consecutive_failures() -> None:
    world = World()
    world.queue(1)
    for number, name in enumerate("abc", start=1):
        leaves(world, name)
        assert exits(world) == number
    assert world.job(1).passed_over == ()
    row = open_circuit(world.state.cooldowns, exits_key(GPU))
    assert row is not None
    assert "machine c0 exited without a job: the runner exited with status 1" in row.reason


@pytest.mark.parametrize(("after", "counted"), [(59.9, 1), (60.0, 0)])
def test_only_runners_that_leave_within_a_minute_count_as_failures(
    after: float, counted: int
) -> None:
    world = World()
    leaves(world, "a", after)
    assert exits(world) == counted


def test_each_further_failure_doubles_the_open_time_up_to_a_quarter_of_an_hour() -> None:
    world, quota_usage = World(), []
    for number in range(10):
        leaves(world, f"n{number}")
        row = world.state.cooldowns[exits_key(GPU)]
        quota_usage.append(row.until - world.now)
        world.now = max(world.now, row.until)
    assert quota_usage == [0, 0, 30, 60, 120, 240, 480, 900, 900, 900]


def test_machines_launched_together_count_as_one_failure_while_the_circuit_is_open() -> None:
    world = World()
    for name in "abcdef":
        leaves(world, name, 0.0)
    assert exits(world) == 3


@pytest.mark.case(
    "runners exit at once without a job, each time (refused for their age): one machine at a "
    "time until one gets a job",
    topic="EC2's machines",
    source="community#194762",
)
def test_a_runner_that_had_a_job_resets_the_failure_count() -> None:
    world = World()
    runners = [leaves(world, name) for name in "abc"]
    world.observe(1, JobState.COMPLETED, runner_name=runners[0], read=True)
    assert exits(world) == 0
    leaves(world, "d")
    assert exits(world) == 1


def test_a_runner_with_a_one_second_job_is_not_a_failure() -> None:
    world = World()
    for number, name in enumerate("abcd", start=1):
        runner = world.ready(name)
        world.starts(number, runner)
        world.now += 1
        world.do(e.MachineExited, world.runner(runner).machine, "done")
    assert exits(world) == 0


def test_a_registration_that_its_machine_released_is_not_a_failure() -> None:
    world = World()
    for name in "abc":
        runner = world.ready(name)
        world.do(e.RunnerClosed, runner, "released idle by its machine")
        world.do(e.MachineExited, world.runner(runner).machine, "released")
    assert exits(world) == 0


def test_an_exit_before_the_acknowledgement_counts_towards_the_circuit_breaker() -> None:
    world = World()
    runner = world.register(world.make_ready(1, "a")[0])
    world.do(e.ConfigurationSent, runner)
    world.now += 600
    world.do(e.MachineExited, MachineId("a0"), "the runner could not be started: OSError")
    assert exits(world) == 1


def test_open_circuits_survive_a_restart() -> None:
    world = World()
    for name in "abc":
        leaves(world, name)
    for name in "def":
        late_boot(world, name)
    world.restart(10.0)
    assert open_circuit(world.state.cooldowns, exits_key(GPU)) is not None
    assert open_circuit(world.state.cooldowns, boots_key(GPU)) is not None


def test_the_counters_of_machines_and_runners_follow_each_change() -> None:
    world = World()
    counters = world.state
    world.send(2)
    assert {key: set(ids) for key, ids in counters.booting.items()} == {(GPU, 0): {"c0", "c1"}}
    world.answer("c", "i-1", "i-2")
    world.boot("c0")
    world.do(e.HealthChecksReported, MachineId("c0"), True, "ok")
    assert set(counters.booting[GPU, 0]) == {"c1"}
    runner = world.assignment("c0", DemandClass("org:acme", "Default", ("gpu",), (GPU,)))
    assert counters.runners_without_job == {GPU: 1}
    world.queue(1)
    world.after(180)
    assert world.runner(runner).passed_over
    assert counters.runners_without_job == {GPU: 0}


def is_refused(world: World, name: str, image: str = "ami-old", after: float = 5.0) -> str:
    """GitHub refuses a runner for its version; returns the runner."""
    (machine,) = world.make_ready(1, name)
    world.lists(replace(world.listed(machine), image=image), complete=False)
    runner = world.assignment(machine)
    world.now += after
    world.do(e.MachineExited, machine, "it is deprecated", ExitReason.VERSION_DEPRECATED)
    return runner


@pytest.mark.parametrize("after", [5.0, 600.0])
def test_the_second_runner_that_github_refuses_for_its_version_opens_the_breaker(
    after: float,
) -> None:
    """Also a runner that listened for a while: GitHub refuses it when it asks for jobs."""
    world = World()
    is_refused(world, "z", after=after)
    assert open_circuit(world.state.cooldowns, exits_key(GPU)) is None, "a job may have said so"
    assert refused_image(world.state, GPU) == ""
    is_refused(world, "a", after=after)
    row = open_circuit(world.state.cooldowns, exits_key(GPU))
    assert row is not None
    assert (row.failures, row.until - world.now, row.image) == (3, 300.0, "ami-old")
    assert row.reason == (
        "GitHub refuses actions/runner of unknown version in image ami-old: it is deprecated"
    )


def test_machines_of_the_same_image_count_once_while_the_breaker_is_open() -> None:
    world, quota_usage = World(), []
    for name in "abcd":
        is_refused(world, name, after=0.0)
    assert exits(world) == 3
    for number in range(5):
        world.now = world.state.cooldowns[exits_key(GPU)].until
        is_refused(world, f"n{number}", after=0.0)
        quota_usage.append(world.state.cooldowns[exits_key(GPU)].until - world.now)
    assert quota_usage == [600, 1200, 2400, 3600, 3600]


@pytest.mark.case(
    "a job with root reports that GitHub refuses its runner's version",
    topic="Hostile input",
    source="GitHub: secure use",
)
def test_a_false_exit_reason_of_a_runner_with_a_job_does_not_keep_the_circuit_open() -> None:
    """A job with root may report any exit reason. GitHub's report of the job counts, before it or after it."""
    world = World()
    world.queue(1, 2)
    runner = world.ready("a")
    world.starts(1, runner)
    world.do(e.MachineExited, MachineId("a0"), "lie", ExitReason.VERSION_DEPRECATED)
    assert exits(world) == 0
    late = is_refused(world, "b")
    assert exits(world) == 1
    world.observe(2, JobState.IN_PROGRESS, runner_name=late)
    assert exits(world) == 0
    is_refused(world, "c")
    assert open_circuit(world.state.cooldowns, exits_key(GPU)) is None


def test_two_machines_of_two_images_do_not_agree_that_github_refuses_one() -> None:
    world = World()
    is_refused(world, "a", image="ami-a")
    is_refused(world, "b", image="ami-b")
    assert open_circuit(world.state.cooldowns, exits_key(GPU)) is None
    is_refused(world, "c", image="ami-b")
    assert open_circuit(world.state.cooldowns, exits_key(GPU)) is not None
    assert refused_image(world.state, GPU) == "ami-b"


@pytest.mark.parametrize("reason", ExitReason)
def test_what_one_machine_says_after_its_assignment_puts_nothing_on_hold(
    reason: ExitReason,
) -> None:
    """Whether GitHub's report of the job arrives before it, after it or not at all."""
    for arrives in ("before", "after", "never"):
        world = World()
        world.queue(1, 2)
        runner = world.ready("a")
        if arrives == "before":
            world.starts(1, runner)
        known = dict(world.state.cooldowns)
        world.now += 1.0
        world.do(e.HealthChecksReported, MachineId("a0"), False, "a job says so")
        world.do(e.MachineExited, MachineId("a0"), "a job says so", reason)
        if arrives == "after":
            world.starts(1, runner)
        held = [row for row in world.state.cooldowns.values() if row.until > world.now]
        assert held == [], arrives
        assert open_circuits(world.state, GPU) == []
        if arrives != "never":
            assert {k: v for k, v in world.state.cooldowns.items() if v.failures} == known
        assert not world.state.on_hold


def test_a_job_on_another_image_does_not_close_the_circuit() -> None:
    world = World()
    world.queue(1)
    (old,) = world.make_ready(1, "p")
    is_refused(world, "a")
    is_refused(world, "b")
    world.starts(1, world.assignment(old))
    assert exits(world) == 3


def test_a_replaced_image_closes_the_circuit_and_the_refused_image_is_remembered() -> None:
    world = World()
    is_refused(world, "z")
    is_refused(world, "a")
    world.do(e.CircuitClosed, GPU, "another image")
    row = world.state.cooldowns[exits_key(GPU)]
    assert (row.failures, row.until, row.image) == (0, world.now, "")
    leaves(world, "b")
    assert refused_image(world.state, GPU) == "ami-old"
    assert exits(world) == 1


def test_a_job_on_the_new_image_resets_its_failure_count() -> None:
    world = World()
    world.queue(1)
    is_refused(world, "a")
    world.do(e.CircuitClosed, GPU, "another image")
    leaves(world, "b")
    leaves(world, "c")
    assert exits(world) == 2
    world.starts(1, world.ready("d"))
    assert exits(world) == 0


def test_early_exits_after_an_image_was_replaced_do_not_name_the_old_image() -> None:
    """The circuit opens for early exits, so replacing an image does not close it."""
    world = World()
    is_refused(world, "a")
    world.do(e.CircuitClosed, GPU, "another image")
    for name in "bcd":
        leaves(world, name)
    (row,) = open_circuits(world.state, GPU)
    assert (row.failures, row.image) == (3, "")


def test_an_operator_closes_every_circuit_of_a_sku() -> None:
    world = World()
    is_refused(world, "a")
    is_refused(world, "b")
    for name in "xyz":
        late_boot(world, name)
    world.do(e.RetriedByOperator, sku_target(GPU), ALICE)
    for key in (exits_key(GPU), boots_key(GPU), launch_option_key(GPU, 0)):
        assert (world.state.cooldowns[key].failures, world.state.cooldowns[key].image) == (0, "")
    assert refused_image(world.state, GPU) == ""


def test_a_replaced_image_does_not_close_the_circuit_of_failed_boots() -> None:
    world = World()
    for name in "xyz":
        late_boot(world, name)
    world.do(e.CircuitClosed, GPU, "another image")
    assert boots(world) == 3


def test_runners_of_machines_that_shut_down_do_not_count_as_failures() -> None:
    """EC2 often interrupts several spot machines at once, just after they became ready."""
    world = World()
    for name in "abcd":
        machine = world.runner(world.ready(name)).machine
        world.do(e.MachineExited, machine, "shut down", ExitReason.STOPPED)
    assert exits(world) == 0
