"""Failures count against the host on which they happened, and against the option if a second host fails."""

from dataclasses import replace

import pytest

from autoscaler.ledger.failures.host_failures import (
    AVOIDED,
    MOST_HOSTS,
    hosts_to_avoid,
    others_work,
)
from autoscaler.model import events as e
from autoscaler.model.cooldowns import (
    active_cooldown,
    avoided_hosts,
    boots_key,
    launch_option_key,
    offering_key,
)
from autoscaler.model.identifiers import MachineId, SkuName
from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.model.plan import Launch
from tests.ledger.builders import GPU, World
from tests.planner.fleets import EAST

CAPACITY, CONFIGURATION = FailureClass.CAPACITY, FailureClass.CONFIGURATION
OPTION = launch_option_key(GPU, 0)
SOLD = offering_key("east/g5.xlarge/a/on-demand")


def on_host(world: World, host: str, name: str, count: int = 1) -> tuple[MachineId, ...]:
    """Launch machines, which a listing shows on this host."""
    machines = world.launch(count, name)
    for machine in machines:
        world.lists(replace(world.listed(machine), host=host), complete=False)
    world.now += 5.0
    return machines


def fails(
    world: World, machine: str, failure: FailureClass | None = CONFIGURATION, after: float = 0.0
) -> None:
    """A machine ends on its host before it was ready."""
    world.now += after
    host = world.machine(machine).placement.host
    shown = replace(world.listed(machine, terminated=True), host=host, reason="StartError: driver")
    world.lists(replace(shown, failure=failure, scope=FailureScope.HOST), complete=False)


def becomes_ready(world: World, machine: str) -> None:
    world.boot(machine)
    world.do(e.HealthChecksReported, MachineId(machine), True, "ok")


def avoided(world: World) -> tuple[str, ...]:
    return hosts_to_avoid(world.state, GPU, EAST, world.now)


def held(world: World, key: str) -> bool:
    return active_cooldown(world.state.cooldowns, key, world.now) is not None


@pytest.mark.case(
    "one node of a cluster is faulty: it alone is avoided, and its SKU is launched on the others at once",
    topic="Kubernetes",
    source="NVIDIA/k8s-device-plugin#1223",
)
@pytest.mark.parametrize("failure", [CAPACITY, CONFIGURATION, FailureClass.UNKNOWN, None])
def test_a_failure_on_one_host_counts_against_that_host_alone(failure: FailureClass | None) -> None:
    world = World()
    world.queue(1, 2, 3, 4)
    for machine in on_host(world, "node-1", "c", 4):
        fails(world, machine, failure, after=1.0)
    assert avoided(world) == ("node-1",)
    assert not any(held(world, key) for key in (OPTION, SOLD, boots_key(GPU)))
    assert boots_key(GPU) not in world.state.cooldowns
    assert sum(launch.count for launch in world.intents(Launch)) == 4
    [found] = avoided_hosts(world.state.cooldowns, world.now)
    assert (found.sku, found.provider, found.host) == (GPU, EAST, "node-1")
    assert found.row.failures == 1, "machines that were in flight at the same time count once"
    world.now += AVOIDED.first
    assert avoided(world) == ()


def test_failed_checks_and_missed_deadlines_count_against_the_host_that_the_proof_names() -> None:
    world = World()
    for name, host in (("c", "node-1"), ("d", "node-2")):
        (machine,) = world.launch(1, name)
        world.do(e.MachineAttested, machine, "nonce", host)
        world.now += 1.0
        world.do(e.HealthChecksReported, machine, False, "gpu_query: no answer")
    assert avoided(world) == ("node-1", "node-2")
    assert world.state.cooldowns[boots_key(GPU)].failures == 1, "the second host counts"


def test_a_machine_without_a_host_counts_as_before() -> None:
    world = World()
    (machine,) = on_host(world, "", "c")
    fails(world, machine)
    assert avoided(world) == ()
    assert held(world, OPTION)


def test_the_launch_option_is_held_once_a_second_host_fails_in_the_same_way() -> None:
    world = World()
    (first,) = on_host(world, "node-1", "c")
    (second,) = on_host(world, "node-2", "d")
    fails(world, first)
    assert not held(world, OPTION)
    fails(world, second, after=1.0)
    assert held(world, OPTION)
    assert avoided(world) == ("node-1", "node-2")


@pytest.mark.parametrize("meanwhile", ["another class", "ready elsewhere"])
def test_a_second_host_counts_alone_if_it_fails_otherwise_or_others_became_ready(
    meanwhile: str,
) -> None:
    world = World()
    (first,) = on_host(world, "node-1", "c")
    (second,) = on_host(world, "node-2", "d")
    (third,) = on_host(world, "node-3", "x")
    fails(world, first)
    assert not others_work(world.state, GPU, EAST, world.now)
    if meanwhile == "ready elsewhere":
        becomes_ready(world, third)
        assert others_work(world.state, GPU, EAST, world.now)
    fails(world, second, CONFIGURATION if meanwhile == "ready elsewhere" else CAPACITY, after=1.0)
    assert not held(world, OPTION)
    assert not held(world, SOLD)
    assert avoided(world) == ("node-1", "node-2")


def test_a_host_that_fails_again_is_avoided_for_longer() -> None:
    world = World()
    for number in range(4):
        (machine,) = on_host(world, "node-1", f"c{number}-")
        fails(world, machine)
        [found] = avoided_hosts(world.state.cooldowns, world.now)
        assert found.row.until - world.now == AVOIDED.delay(number)
        world.now = found.row.until
    assert not held(world, OPTION)


def test_a_machine_that_becomes_ready_ends_the_avoidance_of_its_host() -> None:
    world = World()
    (first, second) = on_host(world, "node-1", "c", 2)
    fails(world, first)
    becomes_ready(world, second)
    assert avoided(world) == ()
    (third,) = on_host(world, "node-1", "d")
    fails(world, third)
    [found] = avoided_hosts(world.state.cooldowns, world.now)
    assert found.row.failures == 1


def test_a_ready_machine_whose_host_is_not_known_shows_that_some_host_works() -> None:
    """Before Kubernetes 1.30, only a listing names the node."""
    world = World()
    (first,) = on_host(world, "node-1", "c")
    fails(world, first)
    world.make_ready(1, "d")
    assert others_work(world.state, GPU, EAST, world.now)
    assert avoided(world) == ("node-1",)


def test_an_avoided_host_that_gets_a_machine_although_others_work_means_that_they_are_full() -> (
    None
):
    world = World()
    (first,) = on_host(world, "node-1", "c")
    (other,) = on_host(world, "node-2", "d")
    fails(world, first)
    becomes_ready(world, other)
    (again,) = on_host(world, "node-1", "x")
    fails(world, again)
    assert not held(world, OPTION)
    assert world.state.cooldowns[SOLD].failure is CAPACITY
    assert held(world, SOLD)


def test_a_machine_at_work_shows_that_its_host_works_however_long_ago_it_became_ready() -> None:
    """The other nodes are full of long jobs: the faulty one must not put the launch option on hold."""
    world = World()
    (other,) = on_host(world, "node-2", "o")
    becomes_ready(world, other)
    world.assignment(other)
    for name in ("c", "d", "x"):
        world.now += 1.0
        (machine,) = on_host(world, "node-1", name)
        fails(world, machine)
        assert not held(world, OPTION)
        assert others_work(world.state, GPU, EAST, world.now)
    assert held(world, SOLD)


def test_an_avoided_host_that_gets_a_machine_is_the_only_one_unless_others_work() -> None:
    """A cluster of one node: an error of the image must not launch pods without end."""
    world = World()
    (first,) = on_host(world, "node-1", "c")
    fails(world, first)
    (again,) = on_host(world, "node-1", "d")
    fails(world, again)
    assert held(world, OPTION)


def test_only_the_hosts_that_are_avoided_longest_are_in_a_request() -> None:
    world = World()
    for number in range(MOST_HOSTS + 2):
        (machine,) = on_host(world, f"node-{number:02}", f"c{number}-")
        fails(world, machine)
    assert len(avoided(world)) == MOST_HOSTS
    assert "node-00" not in avoided(world)
    assert hosts_to_avoid(world.state, SkuName("other"), EAST, world.now) == ()


def test_the_end_of_a_machine_that_was_ready_says_nothing_about_its_host() -> None:
    world = World()
    (machine,) = on_host(world, "node-1", "c")
    becomes_ready(world, machine)
    fails(world, machine, CAPACITY)
    assert avoided(world) == ()
    assert not held(world, SOLD)


def test_a_pod_that_was_deleted_says_nothing_about_its_host() -> None:
    world = World()
    (machine,) = on_host(world, "node-1", "c")
    shown = replace(world.listed(machine, terminated=True), host="node-1", deleted=True)
    world.lists(replace(shown, reason="Deleted: the pod was deleted"), complete=False)
    assert avoided(world) == ()


def test_avoided_hosts_survive_a_restart() -> None:
    world = World()
    (machine,) = on_host(world, "node-1", "c")
    fails(world, machine)
    world.restart(30.0)
    assert avoided(world) == ("node-1",)
