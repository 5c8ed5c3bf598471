"""Machines that cannot start, and machines whose host is lost and that never disappear."""

from dataclasses import replace

import pytest

from autoscaler.ledger.machines.reruns import ASK_AGAIN, due_reruns
from autoscaler.model import events as e
from autoscaler.model.cooldowns import active_cooldown, offering_key
from autoscaler.model.identifiers import MachineId
from autoscaler.model.machines.due import SILENCE, TERMINATE_AGAIN
from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.model.machines.machine import ExitReason, MachineState, TerminationReason
from autoscaler.model.plan import Launch, Terminate
from tests.ledger.builders import World
from tests.ledger.test_interruptions import at_work, due, fails, notice, opted_in

CAPACITY, CONFIGURATION = FailureClass.CAPACITY, FailureClass.CONFIGURATION
SOLD = offering_key("east/g5.xlarge/a/on-demand")


def cannot_start(world: World, machine: str = "c0", failure: FailureClass = CAPACITY) -> None:
    """A list shows a pod that no node takes."""
    shown = replace(world.listed(machine), cannot_start=True, reason="Code: m", failure=failure)
    world.lists(shown, complete=False)


def terminates(world: World, machine: str = "c0") -> None:
    [end] = world.intents(Terminate)
    world.do(e.TerminationRequested, end.machine, end.reason_code, end.reason)


@pytest.mark.case(
    "no node takes a pod, or its image cannot be pulled: the pod is deleted at once, and the next launch "
    "option is used when the pod is gone",
    topic="Kubernetes",
    source="Kubernetes: Pod Lifecycle",
)
def test_a_machine_that_cannot_start_is_terminated_before_another_is_launched() -> None:
    world = World()
    world.queue(1)
    world.launch(1)
    cannot_start(world)
    machine = world.machine("c0")
    assert (machine.state, machine.failure) == (MachineState.FAILED, CAPACITY)
    assert active_cooldown(world.state.cooldowns, SOLD, world.now) is not None
    [end] = world.intents(Terminate)
    assert (end.machine, end.reason_code) == ("c0", TerminationReason.CANNOT_START)
    assert world.intents(Launch) == []
    terminates(world)
    assert world.intents(Launch) == []
    world.now += 1.0
    world.lists(world.listed("c0", terminated=True), complete=False)
    assert machine.state is MachineState.TERMINATED
    assert len(world.intents(Launch)) == 1


def test_a_job_never_has_two_machines_while_one_that_cannot_start_exists() -> None:
    world = World()
    world.queue(1)
    world.launch(1)
    cannot_start(world)
    terminates(world)
    for _ in range(3):
        world.now += TERMINATE_AGAIN.longest
        [again] = world.intents(Terminate)
        assert (again.machine, world.intents(Launch)) == ("c0", [])
        terminates(world)
    world.lists(world.listed("c0", terminated=True), complete=False)
    assert len(world.intents(Launch)) == 1


def test_a_machine_that_cannot_start_counts_no_failed_boot() -> None:
    world = World()
    world.queue(1, 2, 3, 4)
    world.launch(4)
    for machine in ("c0", "c1", "c2", "c3"):
        cannot_start(world, machine)
    assert [row for row in world.state.cooldowns.values() if "boots" in row.key] == []


def test_a_ready_machine_that_seems_unable_to_start_stays() -> None:
    """Another container of its pod may be the one that cannot start."""
    world = World()
    world.make_ready(1)
    cannot_start(world)
    assert world.machine("c0").state is MachineState.READY


def test_after_a_restart_a_machine_that_has_not_spoken_is_not_given_up() -> None:
    """A restored store may be older than the machine's assignment."""
    world = World()
    world.launch(1)
    world.restart(60.0)
    cannot_start(world)
    assert world.machine("c0").state is MachineState.LAUNCHED


@pytest.mark.case(
    "a node is drained, lost, restarted or under pressure: its pods' jobs were interrupted, and nothing is put "
    "on hold, because other nodes may have room",
    topic="Kubernetes",
    source="Kubernetes: Disruptions",
)
@pytest.mark.parametrize("ready", [True, False])
def test_the_loss_of_one_host_puts_nothing_on_hold(ready: bool) -> None:
    world = World()
    world.queue(1)
    if ready:
        world.ready()
    else:
        world.launch(1)
    shown = replace(world.listed("c0", terminated=True), reason="DeletionByPodGC: the node is gone")
    shown = replace(shown, failure=CAPACITY, scope=FailureScope.MACHINE)
    world.lists(shown, complete=False)
    machine = world.machine("c0")
    assert machine.state is MachineState.TERMINATED
    kind = machine.interruption.kind
    assert kind is (NoticeKind.SCHEDULED_CHANGE if ready else None)
    assert world.state.cooldowns == {}
    # The listening runner may have run the job, so the job is read at GitHub first.
    assert len(world.intents(Launch)) == (0 if ready else 1)


def refused(world: World, machine: str = "c0") -> e.ListedMachine:
    """A list shows a pod that kubelet did not admit, with the class of one that has not run."""
    shown = replace(world.listed(machine, terminated=True), not_admitted=True)
    return replace(shown, reason="UnexpectedAdmissionError: no device", failure=CAPACITY)


@pytest.mark.case(
    "kubelet or a node starts again and refuses a pod that has run: its job is interrupted, and nothing is put "
    "on hold",
    topic="Kubernetes",
    source="kubernetes/kubernetes#138446; kubernetes/kubernetes#125579",
)
@pytest.mark.parametrize("failure", [CAPACITY, None])
@pytest.mark.parametrize("ready", [True, False])
def test_a_refusal_of_a_machine_that_has_run_is_the_fault_of_one_machine(
    ready: bool, failure: FailureClass | None
) -> None:
    world = World()
    world.queue(1)
    if ready:
        world.ready()
    else:
        world.launch(1)
        world.boot("c0")
    world.lists(replace(refused(world), failure=failure), complete=False)
    machine = world.machine("c0")
    assert machine.state is MachineState.TERMINATED
    kind = NoticeKind.SCHEDULED_CHANGE if ready else None
    assert machine.interruption.kind is kind
    assert world.state.cooldowns == {}


def test_a_refusal_of_a_machine_that_has_not_run_is_a_lack_of_capacity() -> None:
    world = World()
    world.queue(1)
    world.launch(1)
    world.lists(refused(world), complete=False)
    assert active_cooldown(world.state.cooldowns, SOLD, world.now) is not None


def test_the_job_of_a_machine_that_its_host_refuses_is_rerun() -> None:
    world = World(opted_in())
    machine = at_work(world)
    world.lists(refused(world, machine), complete=False)
    fails(world.after(600.0))
    assert due(world.after(ASK_AGAIN.first)) == [(1,)]


def silent(world: World, machine: str) -> None:
    """GitHub shows that the work of a silent machine is over."""
    world.do(e.RunnerRead, MachineId(machine), True, "job 1 is over")


@pytest.mark.case(
    "a node dies under a job: its pod stays Terminating until the node is deleted, and the job is rerun",
    topic="Kubernetes",
    source="Kubernetes: Nodes, and Pod garbage collection",
)
@pytest.mark.parametrize("fails_after", [600.0, 1000.0])
def test_a_job_under_a_pod_that_never_disappears_is_rerun(fails_after: float) -> None:
    world = World(opted_in())
    machine = at_work(world)
    begun = world.now
    world.now = begun + 340.0
    notice(world, machine, NoticeKind.SCHEDULED_CHANGE)
    world.now = begun + fails_after
    fails(world)
    world.now = max(world.now, begun + SILENCE)
    silent(world, machine)
    assert world.machine(machine).interruption.taken_at is not None
    [[rerun]] = due_reruns(world.state, world.now + ASK_AGAIN.first)
    assert rerun.job == 1


def test_a_job_that_fails_while_its_agent_speaks_is_not_rerun() -> None:
    world = World(opted_in())
    machine = at_work(world)
    notice(world, machine, NoticeKind.SCHEDULED_CHANGE)
    world.now += SILENCE
    world.do(e.MachineSeen, MachineId(machine), False)
    world.now += SILENCE - 1.0
    fails(world)
    silent(world, machine)
    assert world.machine(machine).interruption.taken_at is None
    assert world.state.reruns == {}


def test_a_job_under_a_silent_machine_without_a_notice_is_not_rerun() -> None:
    world = World(opted_in())
    machine = at_work(world)
    world.now += SILENCE
    fails(world)
    silent(world, machine)
    assert world.state.reruns == {}


@pytest.mark.case(
    "a node dies while the watch is silent: a list shows its pod's disruption before the pod is removed",
    topic="Kubernetes",
    source="Kubernetes: Nodes, and Pod garbage collection",
)
@pytest.mark.parametrize("shown", [True, False])
def test_a_disruption_that_only_a_list_showed_explains_why_a_pod_disappeared(shown: bool) -> None:
    world = World(opted_in())
    machine = at_work(world)
    world.now += 340.0
    leaving = replace(world.listed(machine), leaving=True, reason="DeletionByTaintManager")
    if shown:
        world.lists(replace(leaving, failure=CAPACITY, scope=FailureScope.MACHINE))
    assert world.machine(machine).state is MachineState.ASSIGNED
    for _ in range(2):
        world.now += 61.0
        world.lists()
    assert world.machine(machine).state is MachineState.LOST
    fails(world)
    assert [one.job for one in world.state.reruns.values()] == ([1] if shown else [])
    assert world.state.cooldowns == {}, "other nodes may have room"


@pytest.mark.parametrize("ended", [True, False])
def test_a_disruption_of_a_pod_that_ended_before_is_no_interruption(ended: bool) -> None:
    world = World(opted_in())
    machine = at_work(world)
    if ended:
        world.do(e.MachineExited, MachineId(machine), "left")
    leaving = replace(world.listed(machine), leaving=True, reason="EvictionByEvictionAPI")
    world.lists(replace(leaving, failure=CAPACITY, scope=FailureScope.MACHINE))
    assert (world.machine(machine).interruption.kind is None) is ended


@pytest.mark.case(
    "a node is drained while the watch is silent: the agent reports that it was stopped, and then a list "
    "shows why",
    topic="Kubernetes",
    source="Kubernetes: Disruptions",
)
def test_a_disruption_that_only_a_list_showed_explains_why_an_agent_was_stopped() -> None:
    world = World(opted_in())
    machine = at_work(world)
    world.do(e.MachineExited, MachineId(machine), "stopped", ExitReason.STOPPED)
    leaving = replace(world.listed(machine), leaving=True, reason="EvictionByEvictionAPI")
    world.lists(replace(leaving, failure=CAPACITY, scope=FailureScope.MACHINE))
    fails(world)
    assert [one.job for one in world.state.reruns.values()] == [1]


@pytest.mark.case(
    "a person or a node provisioner deletes a pod without an eviction: its job is rerun",
    topic="Kubernetes",
    source="Kubernetes: Pod Lifecycle",
)
@pytest.mark.parametrize("gone", [True, False])
@pytest.mark.parametrize("stopped", [True, False])
def test_a_deletion_by_others_interrupts_a_job(stopped: bool, gone: bool) -> None:
    world = World(opted_in())
    machine = at_work(world)
    if stopped:
        world.do(e.MachineExited, MachineId(machine), "stopped", ExitReason.STOPPED)
    world.lists(replace(world.listed(machine), leaving=True, deleted=True, reason="Deleted"))
    if gone:
        world.lists(replace(world.listed(machine, terminated=True), deleted=True, reason="Deleted"))
    elif not stopped:
        for _ in range(2):
            world.now += 61.0
            world.lists()
    fails(world)
    assert [one.job for one in world.state.reruns.values()] == [1]
    assert world.state.cooldowns == {}, "a deletion says nothing about capacity"


def test_a_deletion_by_others_that_shows_after_the_machine_is_lost_interrupts_its_job() -> None:
    world = World(opted_in())
    machine = at_work(world)
    for _ in range(2):
        world.now += 61.0
        world.lists()
    assert world.machine(machine).state is MachineState.LOST
    fails(world)
    gone = replace(world.listed(machine, terminated=True), deleted=True, reason="Deleted")
    world.lists(gone, complete=False)
    assert [one.job for one in world.state.reruns.values()] == [1]


@pytest.mark.parametrize("exits", [True, False])
def test_the_deletion_of_a_machine_by_the_controller_interrupts_nothing(exits: bool) -> None:
    world = World(opted_in())
    machine = at_work(world)
    if exits:
        world.do(e.MachineExited, MachineId(machine), "left")
    else:
        world.do(e.TerminationRequested, MachineId(machine), TerminationReason.OPERATOR, "asked")
    world.lists(replace(world.listed(machine), leaving=True, deleted=True, reason="Deleted"))
    world.lists(replace(world.listed(machine, terminated=True), deleted=True, reason="Deleted"))
    fails(world)
    assert world.machine(machine).interruption.kind is None
    assert world.state.reruns == {}


@pytest.mark.case(
    "a node dies and the API server answers no read: the controller deletes the silent pod after its job is "
    "over, and only then learns why the pod disappeared",
    topic="Kubernetes",
    source="Kubernetes: Nodes, and Pod garbage collection",
)
@pytest.mark.parametrize("gone", [True, False])
@pytest.mark.parametrize("means_at", [340.0, 601.0])
def test_a_disruption_may_explain_a_machine_that_was_terminated_because_it_was_silent(
    gone: bool, means_at: float
) -> None:
    """Found by seed 2643 with clusters. A disruption after the end of the job explains nothing."""
    world = World(opted_in())
    machine = at_work(world)
    begun = world.now
    fails(world.after(600.0))
    silent(world.after(SILENCE), machine)
    silent(world.after(SILENCE), machine)
    terminates(world)
    if gone:
        world.after(61.0).lists()
        world.after(61.0).lists()
    expected = MachineState.TERMINATED if gone else MachineState.TERMINATING
    assert world.machine(machine).state is expected
    notice(world.after(60.0), machine, NoticeKind.SCHEDULED_CHANGE, begun + means_at)
    found = [one.job for group in due_reruns(world.state, world.now + 60.0) for one in group]
    assert found == ([1] if means_at < 600.0 else [])
    assert world.machine(machine).state is expected
