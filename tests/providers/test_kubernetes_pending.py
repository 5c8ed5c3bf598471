"""How long a pod may wait for a node, an image or a container, by the controller's clock."""

from typing import Any

import pytest

from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.providers.kubernetes.listing.machines import identity, listed_machine
from autoscaler.providers.kubernetes.listing.pending import (
    SET_UP_TIMEOUT,
    START_TIMEOUT,
    PendingPods,
)
from tests.providers.doubles import ManualClock
from tests.providers.kubernetes_pods import make_pod, make_settings

UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient amd.com/gpu.",
}


def pending_pod(created: str = "2026-11-22T13:00:00Z") -> dict[str, Any]:
    pod = make_pod({"phase": "Pending", "conditions": [UNSCHEDULABLE]})
    pod["metadata"]["creationTimestamp"] = created
    return pod


@pytest.mark.case(
    "the API server's clock is hours ahead or behind",
    topic="Kubernetes",
    source="Kubernetes: ObjectMeta",
)
@pytest.mark.parametrize("created", ["1999-01-01T00:00:00Z", "2099-01-01T00:00:00Z"])
def test_the_wait_is_counted_from_the_creation_by_this_controller_s_clock(created: str) -> None:
    clock = ManualClock()
    pending, pod = PendingPods(clock, 900.0), pending_pod(created)
    pending.created([identity(pod).machine])
    clock.time += 600.0
    assert not pending.is_overdue(pod)
    pending.created([identity(pod).machine])  # a repeated request adopts the pod
    clock.time += 300.0
    assert pending.is_overdue(pod)


def test_after_a_restart_the_wait_begins_with_the_first_list() -> None:
    clock = ManualClock()
    pending, pod = PendingPods(clock, 900.0), pending_pod()
    assert not pending.is_overdue(pod)
    clock.time += 899.0
    assert not pending.is_overdue(pod)
    clock.time += 1.0
    assert pending.is_overdue(pod)


def test_a_pod_with_a_node_and_a_deleted_pod_wait_for_none() -> None:
    clock = ManualClock()
    pending, pod = PendingPods(clock, 900.0), pending_pod()
    pending.created([identity(pod).machine])
    clock.time += 1000.0
    on_a_node = {**pod, "spec": {**pod["spec"], "nodeName": "node"}}
    assert not pending.is_overdue(on_a_node)
    # Taken from its node again, as no pod is: its wait would begin anew.
    assert not pending.is_overdue(pod)
    deleted = {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-11-22T14:00:00Z"}}
    assert not pending.is_overdue(deleted)


@pytest.mark.parametrize(
    ("reason", "timeout"),
    [("ErrImagePull", SET_UP_TIMEOUT), ("CreateContainerError", START_TIMEOUT)],
)
def test_a_pod_waits_for_its_container_while_kubelet_tries_again(
    reason: str, timeout: float
) -> None:
    clock = ManualClock()
    pending, pod = PendingPods(clock, 900.0), pending_pod()
    pending.created([identity(pod).machine])
    clock.time += 800.0
    pod["spec"]["nodeName"] = "node"
    state = {"waiting": {"reason": reason, "message": "i/o timeout"}}
    failing = [{"name": "runner", "state": state}]
    pod["status"] = {"phase": "Pending", "containerStatuses": failing}
    # The wait for the node does not count.
    assert not pending.is_overdue(pod)
    clock.time += timeout - 1.0
    assert not pending.is_overdue(pod)
    pulled = {**pod, "status": {"phase": "Pending", "containerStatuses": []}}
    assert not pending.is_overdue(pulled)
    assert not pending.is_overdue(pod)
    clock.time += timeout
    assert pending.is_overdue(pod)
    pending.keep_only([])
    assert not pending.is_overdue(pod)


@pytest.mark.case(
    "a node cannot mount a volume or set up the pod network: the status shows no container and no reason",
    topic="Kubernetes",
    source="Kubernetes: Pod Lifecycle",
)
def test_a_pod_that_its_node_does_not_set_up_is_overdue_like_one_without_its_image() -> None:
    clock = ManualClock()
    not_set_up = {"type": "PodReadyToStartContainers", "status": "False"}
    pod = make_pod({"phase": "Pending", "conditions": [not_set_up]})
    pod["spec"]["nodeName"] = "node"
    pending = PendingPods(clock, 900.0)
    assert not pending.is_overdue(pod)
    clock.time += SET_UP_TIMEOUT - 1.0
    assert not pending.is_overdue(pod)
    set_up = {
        **pod,
        "status": {"phase": "Running", "conditions": [not_set_up | {"status": "True"}]},
    }
    assert not pending.is_overdue(set_up)
    assert not pending.is_overdue(pod)
    clock.time += SET_UP_TIMEOUT
    assert pending.is_overdue(pod)
    found = listed_machine(make_settings(), pod, overdue=True)
    assert (found.cannot_start, found.failure) == (True, FailureClass.UNKNOWN)
    assert found.reason == (
        "PodReadyToStartContainers: its node has not mounted its volumes or set up its network yet"
    )
    assert found.scope is FailureScope.HOST
    starting = listed_machine(make_settings(), pod)
    assert (starting.cannot_start, starting.failure, starting.state) == (False, None, "Pending")


def test_a_slow_pull_does_not_count_as_a_container_that_fails_to_be_created() -> None:
    clock = ManualClock()
    pending, pod = PendingPods(clock, 900.0), pending_pod()
    pod["spec"]["nodeName"] = "node"
    for reason in ("ErrImagePull", "CreateContainerError"):
        state = {"waiting": {"reason": reason, "message": "i/o timeout"}}
        failing = [{"name": "attest", "state": state}]
        pod["status"] = {"phase": "Pending", "initContainerStatuses": failing}
        assert not pending.is_overdue(pod)
        clock.time += START_TIMEOUT
    assert pending.is_overdue(pod)


def test_a_pod_whose_kubelet_reports_nothing_is_overdue_and_counts_against_its_node() -> None:
    clock = ManualClock()
    bound = {"type": "PodScheduled", "status": "True"}
    pod = make_pod({"phase": "Pending", "conditions": [bound]})
    pod["spec"]["nodeName"] = "node"
    pending = PendingPods(clock, 900.0)
    assert not pending.is_overdue(pod)
    clock.time += SET_UP_TIMEOUT
    assert pending.is_overdue(pod)
    found = listed_machine(make_settings(), pod, overdue=True)
    assert (found.cannot_start, found.scope, found.host) == (True, FailureScope.HOST, "node")


def test_a_pod_that_runs_is_never_overdue() -> None:
    clock = ManualClock()
    pending, pod = PendingPods(clock, 900.0), make_pod({"phase": "Running"})
    pod["spec"]["nodeName"] = "node"
    for _ in range(3):
        assert not pending.is_overdue(pod)
        clock.time += SET_UP_TIMEOUT


def test_pods_that_no_list_shows_are_dropped() -> None:
    clock = ManualClock()
    pending, pod = PendingPods(clock, 900.0), pending_pod()
    pending.created([identity(pod).machine])
    pending.keep_only([identity(pod).machine])
    clock.time += 900.0
    assert pending.is_overdue(pod)
    pending.keep_only([])
    assert not pending.is_overdue(pod)


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        (
            [UNSCHEDULABLE],
            "Unschedulable: no node within 60 s: 0/3 nodes are available: 3 Insufficient amd.com/gpu.",
        ),
        ([], "Unschedulable: no node within 60 s"),
    ],
)
def test_an_overdue_pod_cannot_start_for_lack_of_capacity(
    conditions: list[dict[str, str]], reason: str
) -> None:
    pod = make_pod({"phase": "Pending", "conditions": conditions})
    settings = make_settings(pending_timeout=60.0)
    found = listed_machine(settings, pod, overdue=True)
    assert (found.cannot_start, found.failure) == (True, FailureClass.CAPACITY)
    assert found.reason == reason
    assert found.scope is None
    assert not listed_machine(settings, pod).cannot_start
