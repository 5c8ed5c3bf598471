"""A changed catalogue counts at once: what is planned is what a freshly loaded store would plan."""

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.model import events as e
from autoscaler.model.catalogue import Access, Catalogue, Deadlines, IdlePolicy, Limits, Scope, Sku
from autoscaler.model.jobs.job import JobState, RunOrigin
from autoscaler.model.machines.launch_requests import LaunchRequest, LaunchRequestState
from autoscaler.model.machines.machine import MachineState, TerminationReason
from autoscaler.model.operators import HoldKind, sku_target
from autoscaler.model.plan import Intent, ReadRunner, Terminate
from tests.ledger.builders import ALICE, GPU, START, World
from tests.planner.fleets import catalogue, offering, sku

HOUR = 3600.0


def ends(world: World) -> list[tuple[TerminationReason, str]]:
    return [(end.reason_code, end.reason) for end in world.intents(Terminate)]


def alive(world: World, seconds: float) -> World:
    """The time advances, and the agent of each machine polls."""
    world.after(seconds)
    for machine in world.state.machines:
        world.do(e.MachineSeen, machine, True)
    return world


def changed(world: World, **fields: Any) -> World:
    world.ledger.change_catalogue(catalogue(replace(sku(), **fields)))
    return world


def kept(idle: IdlePolicy) -> World:
    world = World(catalogue(sku(idle=idle)))
    world.make_ready()
    return world


def test_a_machine_gets_the_longer_age_that_was_configured_shortly_before_its_end() -> None:
    world = kept(IdlePolicy(minimum=1, timeout=10 * HOUR, max_age=HOUR))
    alive(world, HOUR - 10.0)
    changed(world, idle=IdlePolicy(minimum=1, timeout=10 * HOUR, max_age=2 * HOUR))
    for _ in range(60):
        assert ends(alive(world, 60.0)) == []
    world.now = START + 2 * HOUR
    assert ends(alive(world, 0.0)) == [(TerminationReason.MAX_AGE, "ready for 7200 s")]


def test_a_machine_ends_at_once_that_is_older_than_the_age_that_was_configured() -> None:
    world = kept(IdlePolicy(minimum=1, timeout=10 * HOUR, max_age=3 * HOUR))
    alive(world, 2 * HOUR)
    changed(world, idle=IdlePolicy(minimum=1, timeout=10 * HOUR, max_age=HOUR))
    assert ends(world) == [(TerminationReason.MAX_AGE, "ready for 3600 s")]


@pytest.mark.parametrize("after", [1.0, 899.0])
def test_a_booting_machine_gets_the_longer_deadline_that_was_configured(after: float) -> None:
    world = World()
    world.launch(1)
    changed(world.after(after), deadlines=Deadlines(boot=HOUR))
    assert ends(world.after(HOUR - after - 1.0)) == []
    assert ends(world.after(1.0)) == [
        (TerminationReason.DEADLINE, "no attestation before the boot deadline")
    ]


@pytest.mark.parametrize(
    ("state", "fields", "before", "after"),
    [
        ("launched", {"deadlines": Deadlines(boot=60.0)}, 900.0, 60.0),
        ("booted", {"deadlines": Deadlines(health_checks=HOUR)}, 600.0, HOUR),
        ("ready", {"deadlines": Deadlines(ready_silence=500.0)}, 300.0, 500.0),
        ("assigned", {"deadlines": Deadlines(ready_silence=HOUR)}, 300.0, HOUR),
        ("at work", {"lifetime": 600.0}, 900.0, 600.0),
    ],
)
def test_every_deadline_follows_the_configuration(
    state: str, fields: dict[str, Any], before: float, after: float
) -> None:
    world = World()
    if state in ("launched", "booted"):
        world.launch(1)
    if state == "booted":
        world.boot("c0")
    if state in ("ready", "assigned"):
        world.make_ready()
    if state == "assigned":
        world.register("c0")
    if state == "at work":
        world.ready()
    assert world.machine("c0").due == START + before
    world.ledger.take_changes()
    changed(world, **fields)
    assert world.machine("c0").due == START + after
    assert world.ledger.take_changes().records == (world.machine("c0"),)
    changed(world, **fields)
    assert not world.ledger.take_changes(), "the store gets only what has changed"
    world.now = START + after - 0.1
    assert not world.intents(Terminate) + world.intents(ReadRunner)
    world.now = START + after
    assert len(world.intents(Terminate)) == 1


# --- any change ---------------------------------------------------------------------------------------

MOSTLY = st.sampled_from([True, True, True, False])
MOMENTS = st.sampled_from([60.0, 300.0, 900.0, HOUR, 2 * HOUR])
PLACES = (
    offering(zone="a"),
    offering("c7i.large", zone="b"),
    offering(zone="c", until=START + HOUR),
)


@st.composite
def skus(draw: st.DrawFn, name: str) -> Sku:
    one = sku(
        name,
        offerings=tuple(draw(st.lists(st.sampled_from(PLACES), min_size=1, unique=True))),
        labels=draw(st.sampled_from([(), ("shared",)])),
        max_machines=draw(st.sampled_from([None, 1, 3])),
        idle=IdlePolicy(draw(st.integers(0, 2)), draw(MOMENTS), max_age=draw(MOMENTS)),
    )
    (option,) = one.launch_options
    return replace(
        one,
        launch_options=(replace(option, longest_wait=draw(st.sampled_from([0.0, HOUR]))),),
        unlabelled=draw(st.booleans()),
        fair_share=draw(st.sampled_from([0.5, 1.0])),
        deadlines=Deadlines(draw(MOMENTS), draw(MOMENTS), draw(MOMENTS)),
        lifetime=draw(MOMENTS),
        access=Access(
            draw(st.sampled_from([("*",), ("*",), ("acme/other",)])),
            forks=draw(MOSTLY),
            public_repositories=draw(MOSTLY),
            branches=draw(st.sampled_from([(), (), ("main",)])),
        ),
    )


@st.composite
def catalogues(draw: st.DrawFn) -> Catalogue:
    names = draw(st.lists(st.sampled_from(["gpu", "cpu"]), min_size=1, unique=True))
    limits = Limits(machines=draw(st.sampled_from([None, 2])))
    scopes = draw(st.sampled_from([(Scope("acme", None),), (Scope("acme", "widgets"),)]))
    return replace(catalogue(*(draw(skus(name)) for name in names), limits=limits), scopes=scopes)


ORIGINS = st.builds(RunOrigin, st.booleans(), st.booleans(), st.sampled_from([None, "main", "dev"]))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A fleet after some hours: jobs of two repositories, and machines in every state."""
    world = World(draw(catalogues()))
    for job in range(draw(st.integers(1, 6))):
        labels = draw(
            st.sampled_from([("gpu",), ("gpu",), ("cpu",), ("shared",), ("linux",), ("other",)])
        )
        repository = draw(st.sampled_from(["acme/widgets", "acme/other"]))
        world.observe(job, JobState.QUEUED, labels, repository=repository, run_id=job)
        if draw(st.booleans()):
            world.do(e.RunRead, job, draw(ORIGINS))
    if not draw(MOSTLY):
        world.do(e.HeldByOperator, HoldKind.PAUSED, sku_target(GPU), ALICE)
    for _ in range(draw(st.integers(0, 7))):
        world.carry_out()
        for request in tuple(world.state.open_launch_requests.values()):
            answer(world, request)
        for machine in tuple(world.state.machines.values()):
            if draw(MOSTLY):
                advance(world, machine.id, machine.state)
        world.after(draw(st.sampled_from([1.0, 1.0, 59.0, 301.0, 1000.0])))
    return world


def answer(world: World, request: LaunchRequest) -> None:
    """The provider launches all machines of a request."""
    if request.state is LaunchRequestState.RECORDED:
        world.do(e.LaunchRequestPrepared, request.id, "body")
        world.do(e.LaunchRequestSent, request.id)
    world.answer(request.id, *(f"i-{slot}" for slot in request.slots))


def advance(world: World, machine: Any, state: MachineState) -> None:
    """One machine does the next step of its life."""
    work = world.machine(machine).work
    if state is MachineState.LAUNCHED:
        world.boot(machine)
    elif state is MachineState.BOOTED:
        world.do(e.HealthChecksReported, machine, True, "ok")
    elif state is MachineState.READY:
        world.do(e.MachineSeen, machine, True)
    elif state is MachineState.ASSIGNED and work.runner is not None and not work.may_run_job:
        world.do(e.RunnerRegistered, work.runner, 7)
        world.do(e.ConfigurationSent, work.runner)
        world.do(e.RunnerListening, work.runner)
    elif state is MachineState.ASSIGNED and work.runner is not None:
        start_job(world, work.runner)


def start_job(world: World, runner: Any) -> None:
    demand = world.runner(runner).demand
    for job in tuple(world.state.jobs.values()):
        if job.state is JobState.QUEUED and job.demand == demand:
            world.observe(
                job.id,
                JobState.IN_PROGRESS,
                job.labels,
                repository=job.repository,
                runner_name=runner,
            )
            return


def restarted(world: World, known: Catalogue) -> World:
    again = copy.copy(world)
    again.catalogue = known
    again.restart(1.0)
    return again


def planned(world: World) -> tuple[tuple[Intent, ...], Any, Any]:
    made = world.plan()
    return made.intents, dict(made.waiting), made.again_at


@given(worlds(), catalogues(), st.lists(st.tuples(MOMENTS, st.booleans()), max_size=4))
def test_a_changed_catalogue_is_used_as_a_freshly_loaded_store_uses_it(
    world: World, known: Catalogue, later: list[tuple[float, bool]]
) -> None:
    loaded, reloaded = restarted(world, known), restarted(world, world.catalogue)
    reloaded.ledger.change_catalogue(known)
    assert planned(reloaded) == planned(loaded)
    assert states(reloaded) == states(loaded)
    for seconds, polls in later:
        for one in (loaded, reloaded):
            one.carry_out()
            if polls:
                alive(one, seconds)
                one.github_lists()
            else:
                one.after(seconds)
        assert planned(reloaded) == planned(loaded)


def states(world: World) -> tuple[Any, ...]:
    state = world.state
    return state.machines, state.jobs, dict(state.unmatched), state.unread
