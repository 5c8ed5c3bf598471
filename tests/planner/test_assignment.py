"""Which machines get a registration now, and which registrations are deregistered."""

import dataclasses

import pytest

from autoscaler.model import events as e
from autoscaler.model.catalogue import RegistrationRate, Scope
from autoscaler.model.identifiers import MachineId
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.plan import Assign, DeregisterRunner, Launch, Terminate
from tests.ledger.builders import GPU, GPU_CLASS, World
from tests.planner.fleets import catalogue, sku

LINUX = DemandClass("org:acme", "Default", ("gpu", "linux"), (GPU,))


def assigned(world: World) -> list[tuple[str, tuple[str, ...]]]:
    return [(g.machine, g.demand.labels) for g in world.intents(Assign)]


@pytest.mark.case(
    "GitHub removes idle JIT runners after minutes: a machine is ready without a registration, and "
    "gets one when a job waits",
    topic="Runner and listener",
    source="actions/runner#4726; actions/runner#4248; ubicloud#2957",
)
def test_a_ready_machine_is_assigned_only_when_a_job_waits() -> None:
    world = World()
    world.make_ready()
    assert world.plan().intents == ()
    world.queue(1)
    assert world.plan().intents == (Assign(MachineId("c0"), GPU_CLASS),)


@pytest.mark.parametrize(
    ("jobs", "turns", "machines"),
    [
        (1, 5, ["c0"]),
        (2, 5, ["b0", "c0"]),
        (3, 5, ["a0", "b0", "c0"]),
        (4, 5, ["a0", "b0", "c0"]),
        (2, 1, ["b0"]),
        (3, 2, ["a0", "b0"]),
    ],
)
def test_among_needed_machines_the_longest_ready_is_assigned_first(
    jobs: int, turns: int, machines: list[str]
) -> None:
    world = World(catalogue(registration=RegistrationRate(burst=turns, per_second=0.001)))
    for name in "abc":
        world.make_ready(1, name)
        world.now += 1
    world.queue(*range(jobs))
    assert [machine for machine, _ in assigned(world)] == machines


def test_a_job_gets_one_assignment_across_plans() -> None:
    world = World()
    world.make_ready(3)
    world.queue(1)
    assert len(world.carry_out().intents) == 1
    assert world.plan().intents == ()
    world.queue(2)
    assert len(world.intents(Assign)) == 1


def test_the_registration_budget_goes_to_the_class_of_the_oldest_job_first() -> None:
    world = World(catalogue(registration=RegistrationRate(burst=2, per_second=0.1)))
    world.make_ready(4)
    for job, labels in enumerate([("gpu", "linux"), ("gpu",), ("gpu", "linux"), ("gpu",)]):
        world.queue(job, labels=labels)
        world.now += 1
    assert [labels for _, labels in assigned(world)] == [("gpu", "linux"), ("gpu",)]


def test_a_class_with_ready_machines_of_several_skus_waits_for_its_turn() -> None:
    """Its second job is the youngest, so that job's machine of the other SKU is assigned last."""
    skus = sku("a", labels=("x",)), sku("b", labels=("x",))
    world = World(catalogue(*skus, registration=RegistrationRate(burst=2, per_second=0.1)))
    world.make_ready(1, "a", "a")
    world.make_ready(2, "b", "b")
    for job, label in enumerate(("x", "b", "x")):
        world.queue(job, labels=(label,))
        world.now += 1
    assert assigned(world) == [("a0", ("x",)), ("b0", ("b",))]


def test_a_class_takes_no_more_machines_of_a_sku_than_are_matched_to_it() -> None:
    """The youngest job fits SKU a alone, so the second job uses the machine of SKU b."""
    world = World(catalogue(sku("a", labels=("x",)), sku("b", labels=("x",))))
    world.make_ready(2, "a", "a")
    world.make_ready(1, "b", "b")
    for job, label in enumerate(("x", "x", "a")):
        world.queue(job, labels=(label,))
        world.now += 1
    assert assigned(world) == [("a0", ("x",)), ("b0", ("x",)), ("a1", ("a",))]


def test_a_job_with_a_ready_machine_is_assigned_it_behind_a_thousand_without() -> None:
    world = World(catalogue(sku("a"), sku("b")))
    world.queue(*range(1_100), labels=("a",))
    world.now += 1
    world.queue(1_100, labels=("b",))
    world.make_ready(1, "b", "b")
    assert assigned(world) == [("b0", ("b",))]


@pytest.mark.parametrize(("waited", "assignments"), [(0.0, 0), (9.9, 0), (10.0, 1), (25.0, 2)])
def test_without_registration_budget_nothing_is_assigned(waited: float, assignments: int) -> None:
    world = World(catalogue(registration=RegistrationRate(burst=2, per_second=0.1)))
    world.make_ready(5)
    world.queue(1, 2, 3, 4, 5)
    assert len(world.carry_out().intents) == 2
    world.now += waited
    assert len(world.intents(Assign)) == assignments


def test_no_runner_registers_in_a_scope_on_hold() -> None:
    world = World()
    world.make_ready(2)
    world.queue(1, 2)
    world.do(e.RunnerRegistrationFailed, world.name("c0"), FailureClass.UNKNOWN, "503", world.now)
    assert assigned(world) == []
    world.now += 30
    assert len(assigned(world)) == 1, "one probe"


def test_a_probe_of_each_class_registers_until_github_accepts_one() -> None:
    """GitHub may refuse one class alone. Many invalid requests at once would extend the outage."""
    world = World(catalogue(sku("a"), sku("b")))
    for name in "ab":
        world.make_ready(3, name, name)
        world.queue(*(100 * ord(name) + n for n in range(3)), labels=(name,))
    world.carry_out()
    for machine in world.state.machines.values():
        if machine.work.runner is not None:
            world.do(
                e.RunnerRegistrationFailed,
                machine.work.runner,
                FailureClass.CONFIGURATION,
                "401",
                world.now,
            )
    world.after(60)
    assert sorted(labels for _, labels in assigned(world)) == [("a",), ("b",)]
    world.carry_out()
    assert assigned(world) == [], "each has a probe under way"
    probes = [r for r in world.state.runners.values() if r.named_at == world.now]
    accepted, refused_again = sorted(probes, key=lambda r: r.demand.labels)
    world.do(
        e.RunnerRegistrationFailed,
        refused_again.name,
        FailureClass.CONFIGURATION,
        "no such group",
        world.now,
    )
    assert assigned(world) == []
    world.do(e.RunnerRegistered, accepted.name, 7)
    assert len(assigned(world)) == 5


def test_jobs_that_idle_runners_serve_get_no_second_runner() -> None:
    world = World()
    world.ready("a")
    world.make_ready(2, "b")
    world.queue(1, 2)
    assert len(world.intents(Assign)) == 1


def test_a_booting_machine_is_not_assigned() -> None:
    world = World()
    world.launch(1)
    world.boot("c0")
    world.queue(1)
    assert world.plan().intents == ()


def test_a_machine_serves_any_class_of_its_sku_and_none_of_another() -> None:
    world = World(catalogue(sku("gpu"), sku("cpu")))
    world.make_ready(1, "g")
    world.queue(1, labels=("cpu",))
    assert world.intents(Assign) == []
    assert [launch.sku for launch in world.intents(Launch)] == ["cpu"]


def test_a_registration_without_a_waiting_job_is_deregistered() -> None:
    world = World()
    world.make_ready()
    world.queue(1)
    name = world.register("c0")
    assert world.plan().intents == ()
    world.completes(1)
    assert world.plan().intents == (DeregisterRunner(name, "no queued job needs it"),)


def test_the_newest_registrations_are_deregistered_first() -> None:
    world = World()
    world.make_ready(3)
    world.queue(1, 2, 3)
    names = []
    for machine in ("c0", "c1", "c2"):
        names.append(world.register(machine))
        world.now += 1
    world.completes(1)
    world.completes(2)
    assert [w.runner for w in world.intents(DeregisterRunner)] == [names[2], names[1]]


def test_a_registration_that_was_sent_to_its_machine_is_not_deregistered() -> None:
    world = World()
    world.queue(1)
    world.do(e.ConfigurationSent, world.register(world.make_ready()[0]))
    world.completes(1)
    assert world.plan().intents == ()


def test_a_machine_whose_registration_is_deregistered_serves_another_class() -> None:
    world = World()
    world.make_ready()
    world.queue(1)
    name = world.register("c0")
    world.completes(1)
    world.queue(2, labels=("gpu", "linux"))
    assert world.plan().intents == (DeregisterRunner(name, "no queued job needs it"),)
    world.carry_out()
    assert world.plan().intents == ()
    world.do(e.RunnerDeregistered, name, "204")
    assert world.plan().intents == (Assign(MachineId("c0"), LINUX),)


def test_registrations_from_before_a_restart_are_deregistered_once() -> None:
    world = World()
    world.queue(1)
    name = world.register(world.make_ready()[0])
    world.restart(5.0)
    world.do(e.MachineSeen, MachineId("c0"))
    assert world.plan().intents == (
        DeregisterRunner(name, "its JIT configuration was lost in a restart"),
    )
    world.carry_out()
    assert world.plan().intents == ()


def test_machines_of_deregistered_runners_serve_another_class_without_a_launch() -> None:
    world = World()
    world.register(world.make_ready()[0])
    world.restart(5.0)
    world.queue(1, labels=("gpu", "linux"))
    assert [type(i) for i in world.plan().intents] == [DeregisterRunner]
    world.queue(2)
    assert [type(i) for i in world.plan().intents] == [DeregisterRunner, Launch]


def test_no_registration_is_deregistered_from_a_machine_that_is_terminated() -> None:
    world = World()
    world.queue(1)
    world.register(world.make_ready()[0])
    world.after(301.0)
    intents = world.plan().intents
    assert [type(i) for i in intents if isinstance(i, (Terminate, DeregisterRunner))] == [Terminate]


def test_a_registration_with_more_labels_serves_a_smaller_job() -> None:
    world = World()
    world.make_ready()
    world.register("c0", LINUX)
    world.queue(1)
    assert world.plan().intents == ()


def test_a_registration_with_fewer_labels_does_not() -> None:
    world = World()
    world.make_ready()
    name = world.register("c0")
    world.queue(1, labels=("gpu", "linux"))
    assert world.plan().intents == (DeregisterRunner(name, "no queued job needs it"),)


def test_an_account_without_registration_budget_does_not_stop_others() -> None:
    known = catalogue(registration=RegistrationRate(burst=1, per_second=0.001))
    world = World(dataclasses.replace(known, scopes=(Scope("acme", None), Scope("zeta", None))))
    world.make_ready(3)
    for job, repository, labels in (
        (1, "acme/widgets", ("gpu",)),
        (2, "acme/widgets", ("gpu", "linux")),
        (3, "zeta/widgets", ("gpu",)),
    ):
        world.observe(job, JobState.QUEUED, labels, repository=repository)
        world.now += 1
    scopes = [
        (assignment.demand.scope, assignment.demand.labels) for assignment in world.intents(Assign)
    ]
    assert scopes == [("org:acme", ("gpu",)), ("org:zeta", ("gpu",))]


def test_jobs_with_an_idle_runner_do_not_count_for_the_age_of_their_class() -> None:
    world = World(catalogue(registration=RegistrationRate(burst=2, per_second=0.001)))
    world.ready("r")
    world.make_ready(2)
    for job, labels in enumerate([("gpu",), ("gpu", "linux"), ("gpu",)]):
        world.queue(job, labels=labels)
        world.now += 1
    assert [labels for _, labels in assigned(world)] == [("gpu", "linux")]


def test_only_surplus_registrations_are_deregistered() -> None:
    world = World()
    world.queue(1, 2, 3)
    names = [world.register(machine) for machine in world.make_ready(3)]
    world.completes(1)
    taken = [DeregisterRunner(name, "no queued job needs it") for name in names[2:]]
    assert list(world.plan().intents) == taken
    ((left,),) = world.plan().waiting.values()
    assert (left.count, left.message) == (
        2,
        "a runner for the job registers or is idle; GitHub has not assigned the job yet",
    )


def test_deregistered_machines_serve_as_many_jobs_of_another_class() -> None:
    world = World()
    world.queue(1, 2, 3)
    for machine in world.make_ready(3):
        world.register(machine)
    for job in (1, 2, 3):
        world.completes(job)
    world.queue(4, 5, 6, labels=("gpu", "linux"))
    assert [type(intent) for intent in world.plan().intents] == [DeregisterRunner] * 3
