"""What the statuses of pods mean: states, reasons, failure classes, quotas, notices."""

from typing import Any

import pytest

from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.providers.kubernetes.listing.machines import (
    disruption_notice,
    listed_machine,
    offering,
    pod_notice,
)
from tests.providers.kubernetes_pods import CPU_OPTION, OPTION, make_pod, make_settings

CAPACITY, CONFIGURATION = FailureClass.CAPACITY, FailureClass.CONFIGURATION
MACHINE, HOST = FailureScope.MACHINE, FailureScope.HOST

LOW = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi."
NOT_ADMITTED = "Pod was rejected: The node had condition: [DiskPressure]. "
SHUTS_DOWN = "Pod was rejected as the node is shutting down."
TOO_MUCH = "Pod ephemeral local storage usage exceeds the total limit of containers 10Gi."


def ended(reason: str = "", message: str = "why", **more: Any) -> dict[str, Any]:
    return {"phase": "Failed", "reason": reason, "message": message, **more}


def terminated(reason: str, status: int, kind: str = "containerStatuses") -> dict[str, Any]:
    state = {"terminated": {"reason": reason, "exitCode": status, "message": "m"}}
    return {"phase": "Failed", kind: [{"name": "runner", "state": state}]}


def waiting(reason: str, kind: str = "containerStatuses") -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": "not found"}}
    return {"phase": "Pending", kind: [{"name": "runner", "state": state}]}


def disrupted(reason: str, phase: str = "Failed") -> dict[str, Any]:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "why"}
    return {"phase": phase, "conditions": [condition]}


def unscheduled(reason: str = "Unschedulable") -> dict[str, Any]:
    message = "0/50 nodes are available: 50 Insufficient nvidia.com/gpu."
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return {"phase": "Pending", "conditions": [condition]}


@pytest.mark.parametrize(
    ("status", "failure", "code"),
    [
        (ended("Evicted", LOW), CAPACITY, "Evicted"),
        (ended("Evicted", TOO_MUCH), None, "Evicted"),
        (ended("Terminated"), CAPACITY, "Terminated"),
        (ended("NodeLost"), CAPACITY, "NodeLost"),
        (ended("Preempting"), CAPACITY, "Preempting"),
        (disrupted("PreemptionByScheduler"), CAPACITY, "PreemptionByScheduler"),
        (disrupted("DeletionByTaintManager"), CAPACITY, "DeletionByTaintManager"),
        (disrupted("EvictionByEvictionAPI"), CAPACITY, "EvictionByEvictionAPI"),
        (disrupted("DeletionByPodGC"), CAPACITY, "DeletionByPodGC"),
        (ended("OutOfnvidia.com/gpu"), CAPACITY, "OutOfnvidia.com/gpu"),
        (ended("UnexpectedAdmissionError"), CAPACITY, "UnexpectedAdmissionError"),
        (ended("TopologyAffinityError"), CAPACITY, "TopologyAffinityError"),
        (ended("SMTAlignmentError"), CAPACITY, "SMTAlignmentError"),
        (ended("TaintToleration"), CAPACITY, "TaintToleration"),
        (ended("ReasonOfNextYear", NOT_ADMITTED), CAPACITY, "ReasonOfNextYear"),
        (
            ended("PodFeatureUnsupported", f"Pod was rejected: {LOW}"),
            CAPACITY,
            "PodFeatureUnsupported",
        ),
        (ended("DeadlineExceeded", "  Pod was rejected:\n no"), CAPACITY, "DeadlineExceeded"),
        (ended("", NOT_ADMITTED), CAPACITY, "Rejected"),
        (ended("", SHUTS_DOWN), CAPACITY, "Rejected"),
        (ended("NodeShutdown", SHUTS_DOWN), CAPACITY, "NodeShutdown"),
        (terminated("ContainerStatusUnknown", 137), CAPACITY, "ContainerStatusUnknown"),
        (terminated("Unknown", 255), CAPACITY, "Unknown"),
        (ended("DeadlineExceeded"), None, "DeadlineExceeded"),
        (terminated("OOMKilled", 137), None, "OOMKilled"),
        (terminated("Error", 1), None, "Error"),
        (terminated("Error", 2, "initContainerStatuses"), None, "Error"),
        (terminated("StartError", 128), CONFIGURATION, "StartError"),
        ({"phase": "Succeeded"}, None, "Succeeded"),
        (terminated("Completed", 0) | {"phase": "Succeeded"}, None, "Succeeded"),
    ],
)
def test_an_ended_pod_has_the_right_reason(
    status: dict[str, Any], failure: FailureClass | None, code: str
) -> None:
    found = listed_machine(make_settings(), make_pod(status))
    assert found.terminated
    assert not found.leaving
    assert found.failure is failure
    assert found.reason.partition(":")[0] == code
    assert found.quota_usage == ()


@pytest.mark.case(
    "a node is drained, lost, restarted or under pressure: its pods' jobs were interrupted, and nothing is put "
    "on hold, because other nodes may have room",
    topic="Kubernetes",
    source="Kubernetes: Disruptions",
)
@pytest.mark.parametrize(
    ("status", "scope"),
    [
        (disrupted("EvictionByEvictionAPI"), MACHINE),
        (disrupted("DeletionByTaintManager"), MACHINE),
        (disrupted("DeletionByPodGC"), MACHINE),
        (disrupted("DeletionByDeviceTaintManager"), MACHINE),
        (disrupted(""), MACHINE),
        (ended("Terminated"), MACHINE),
        (ended("Evicted", LOW), HOST),
        (terminated("ContainerStatusUnknown", 137), HOST),
        (terminated("Unknown", 255), HOST),
        (disrupted("PreemptionByScheduler"), None),
        (ended("Preempting") | disrupted("TerminationByKubelet"), None),
        (ended("OutOfpods"), HOST),
        (ended("UnexpectedAdmissionError"), HOST),
        (ended("TopologyAffinityError"), HOST),
        (ended("ANewReason", "Pod was rejected: no such device"), HOST),
        (ended("Evicted", NOT_ADMITTED), HOST),
        (ended("NodeShutdown", SHUTS_DOWN), HOST),
        (ended("NodeShutdown", f"Pod was rejected: {SHUTS_DOWN}"), HOST),
    ],
)
def test_only_a_preemption_means_that_capacity_is_short(
    status: dict[str, Any], scope: FailureScope | None
) -> None:
    found = listed_machine(make_settings(), make_pod(status))
    assert (found.failure, found.scope) == (CAPACITY, scope)


@pytest.mark.case(
    "a job writes more than its pod's limit of ephemeral storage: kubelet evicts the pod, and the job is not "
    "rerun, as after too much memory",
    topic="Kubernetes",
    source="Kubernetes: Local ephemeral storage",
)
def test_a_pod_that_exceeds_its_own_limit_is_not_interrupted() -> None:
    found = listed_machine(make_settings(), make_pod(ended("Evicted", TOO_MUCH)))
    assert (found.failure, found.reason) == (None, f"Evicted: {TOO_MUCH}")


def held_up(reason: str, said: str) -> dict[str, Any]:
    """A pod whose first container waits for this reason."""
    state = {"waiting": {"reason": reason, "message": said}}
    containers = [{"name": "runner", "state": state}]
    return make_pod({"phase": "Pending", "containerStatuses": containers})


HOPELESS = [
    ("InvalidImageName", 'Failed to apply default image tag "A:b": invalid reference format'),
    (
        "CreateContainerConfigError",
        'container has runAsNonRoot and image will run as root (pod: "p_runners(u)", container: runner)',
    ),
    (
        "CreateContainerConfigError",
        "container has runAsNonRoot and image has non-numeric user (runner), cannot verify user is non-root",
    ),
    (
        "CreateContainerError",
        "failed to generate container spec: unable to find user runner: no matching entries in passwd file",
    ),
    (
        "RunContainerError",
        'failed to create containerd task: OCI runtime create failed: exec: "dockerd": '
        "executable file not found in $PATH: unknown",
    ),
]
RETRIED = [
    ("CreateContainerError", "context deadline exceeded"),
    (
        "CreateContainerError",
        'failed to reserve container name "runner_p_runners_u_0": name is reserved for "5d"',
    ),
    (
        "CreateContainerConfigError",
        "failed to sync configmap cache: timed out waiting for the condition",
    ),
    ("CreateContainerConfigError", 'secret "license" not found'),
    ("RunContainerError", "failed to create containerd task: context deadline exceeded: unknown"),
    ("PreStartHookError", "failed to update topology manager"),
    ("ErrImageNeverPull", 'Container image "runner:1" is not present with pull policy of Never'),
    ("ImageInspectError", "rpc error: code = Unavailable desc = connection refused"),
]


@pytest.mark.parametrize(("reason", "said"), HOPELESS)
def test_a_pod_that_kubelet_can_never_start_has_a_reason_of_configuration(
    reason: str, said: str
) -> None:
    found = listed_machine(make_settings(), held_up(reason, said))
    assert (found.leaving, found.terminated) == (False, False)
    assert (found.cannot_start, found.failure) == (True, CONFIGURATION)
    of_all_nodes = reason in ("InvalidImageName", "CreateContainerConfigError")
    assert found.scope is (None if of_all_nodes else HOST)
    assert (found.error, found.reason) == (reason, f"{reason}: container runner: {said}")


@pytest.mark.case(
    "a busy node fails to create or start a container: kubelet repeats it every ten seconds, and the pod "
    "is kept for ten minutes",
    topic="Kubernetes",
    source="kubelet kuberuntime_container.go",
)
@pytest.mark.parametrize(("reason", "said"), RETRIED)
def test_a_pod_is_kept_while_kubelet_may_start_its_container(reason: str, said: str) -> None:
    pod = held_up(reason, said)
    found = listed_machine(make_settings(), pod)
    assert (found.cannot_start, found.failure, found.state) == (False, None, reason)
    assert pod_notice(make_settings(), pod, 0.0) is None
    overdue = listed_machine(make_settings(), pod, overdue=True)
    assert (overdue.cannot_start, overdue.failure) == (True, CONFIGURATION)
    assert overdue.reason == found.reason == f"{reason}: container runner: {said}"
    assert overdue.scope is (None if said == 'secret "license" not found' else HOST)


LOG = "runner-agent: attested\nrunner-agent: ending: the health checks failed: gpu_query, disk\n"
MISMATCH = (
    "failed to create containerd task: OCI runtime create failed: nvidia-container-cli: "
    "initialization error: nvml error: driver/library version mismatch: unknown"
)


@pytest.mark.case(
    "a node has another driver than its libraries, a full disk, a broken container runtime or a GPU that fails "
    "its checks: the failure counts against that node first",
    topic="Kubernetes",
    source="NVIDIA/k8s-device-plugin#1431",
)
@pytest.mark.parametrize(
    ("reason", "message", "scope"),
    [
        ("StartError", MISMATCH, HOST),
        ("ContainerCannotRun", "no space left on device", HOST),
        ("StartError", 'exec: "python3": executable file not found in $PATH: unknown', HOST),
        ("Error", LOG, HOST),
        ("Error", "runner-agent: ending: the controller does not answer", HOST),
        ("OOMKilled", "", None),
    ],
)
def test_a_container_that_its_node_fails_counts_against_the_node(
    reason: str, message: str, scope: FailureScope | None
) -> None:
    state = {"terminated": {"reason": reason, "exitCode": 128, "message": message}}
    pod = make_pod({"phase": "Failed", "containerStatuses": [{"name": "runner", "state": state}]})
    pod["spec"]["nodeName"] = "gpu-1"
    found = listed_machine(make_settings(), pod)
    assert (found.scope, found.host) == (scope, "gpu-1")
    if message is LOG:
        assert found.reason.endswith("the health checks failed: gpu_query, disk")


@pytest.mark.parametrize(
    ("reason", "said", "scope"),
    [
        ("ErrImagePull", "failed to extract layer: no space left on device", HOST),
        ("ErrImagePull", "dial tcp: lookup ghcr.io on 10.96.0.10:53: no such host", HOST),
        ("ErrImagePull", "tls: failed to verify certificate: x509: unknown authority", HOST),
        ("ImagePullBackOff", "429 Too Many Requests: toomanyrequests", HOST),
        ("ImagePullBackOff", "authorization failed: no basic auth credentials", HOST),
        ("CreateContainerConfigError", "failed to prepare subPath for volumeMount", HOST),
        ("CreateContainerConfigError", 'configmap "c" not found', None),
        ("CreateContainerConfigError", "couldn't find key k in Secret runners/s", None),
        ("SignatureValidationFailed", "no valid signature", None),
    ],
)
def test_what_another_node_may_do_counts_against_the_node(
    reason: str, said: str, scope: FailureScope | None
) -> None:
    assert listed_machine(make_settings(), held_up(reason, said), overdue=True).scope is scope


IMAGE = "ghcr.io/acme/runner:9"
RESOLVING = f'failed to pull and unpack image "{IMAGE}": failed to resolve reference "{IMAGE}": '
REFUSED_PULLS = [
    f"rpc error: code = NotFound desc = {RESOLVING}{IMAGE}: not found",
    f'failed to pull and unpack image "{IMAGE}": failed to resolve image: {IMAGE}: not found',
    "rpc error: code = Unknown desc = reading manifest 9 in ghcr.io/acme/runner: manifest unknown",
    "reading manifest 9 in quay.io/acme/runner: name unknown: repository not found",
    "reading manifest 9 in docker.io/acme/runner: errors: denied: requested access to the resource is denied",
    'choosing an image: no image found in manifest list for architecture "arm64", variant "v8", OS "linux"',
    f'rpc error: code = NotFound desc = failed to pull and unpack image "{IMAGE}": '
    "no match for platform in manifest: not found",
    f"{RESOLVING}pull access denied, repository does not exist or may require authorization: server message: "
    "insufficient_scope: authorization failed",
]
FAILED_PULLS = [
    'rpc error: code = DeadlineExceeded desc = failed to pull and unpack image: failed to do request: Head "'
    'https://ghcr.io/v2/acme/runner/manifests/9": dial tcp 140.82.121.33:443: i/o timeout',
    "unexpected status from HEAD request to https://ghcr.io/v2/acme/runner: 503 Service Unavailable",
    "429 Too Many Requests: toomanyrequests: You have reached your unauthenticated pull rate limit",
    "dial tcp: lookup ghcr.io on 10.96.0.10:53: no such host",
    "dial tcp: lookup ghcr.io on 10.96.0.10:53: server not found",
    f"{RESOLVING}no resolve hosts: not found",
    f"{RESOLVING}failed to authorize: failed to fetch anonymous token: unexpected status from GET request to "
    "https://ghcr.io/token: 401 Unauthorized",
    # The credential provider of the node did not answer.
    f"{RESOLVING}pull access denied, repository does not exist or may require authorization: "
    "authorization failed: no basic auth credentials",
    f'failed to pull and unpack image "{IMAGE}": mkdir /var/lib/containerd/tmpmounts: permission denied',
    f'failed to pull and unpack image "{IMAGE}": content at https://ghcr.io/v2/blobs/sha256:5d not found',
    "",
]


def back_off(error: str, image: str = IMAGE) -> dict[str, Any]:
    """A pod whose image kubelet does not pull now, because it failed to."""
    said = f'Back-off pulling image "{image}"'
    return held_up("ImagePullBackOff", f"{said}: ErrImagePull: {error}" if error else said)


@pytest.mark.parametrize("error", REFUSED_PULLS)
def test_a_pod_cannot_start_if_the_registry_has_no_image_for_it(error: str) -> None:
    found = listed_machine(make_settings(), back_off(error))
    assert (found.cannot_start, found.failure) == (True, CONFIGURATION)
    assert found.scope is HOST, "another node may have other credentials or another mirror"
    assert found.reason.endswith(error[-100:])


def test_an_error_that_repeats_a_long_image_name_keeps_its_cause() -> None:
    image = f"123456789012.dkr.ecr.us-east-1.amazonaws.com/ci/gpu-runner-cuda@sha256:{'5d' * 32}"
    error = REFUSED_PULLS[0].replace(IMAGE, image)
    assert len(error) > 500
    found = listed_machine(make_settings(), back_off(error, image))
    assert found.cannot_start
    assert found.reason.startswith("ImagePullBackOff: container runner: Back-off pulling image ")
    assert found.reason.endswith(f"{image}: not found")
    assert len(found.reason) <= 500


@pytest.mark.case(
    "a registry does not answer, or answers 401, 5xx or 429: kubelet pulls again, and the pod is kept",
    topic="Kubernetes",
    source="Kubernetes: Images",
)
@pytest.mark.parametrize("error", FAILED_PULLS)
def test_a_pod_is_kept_while_another_pull_may_succeed(error: str) -> None:
    pod = back_off(error)
    found = listed_machine(make_settings(), pod)
    assert (found.cannot_start, found.failure, found.state) == (False, None, "ImagePullBackOff")
    assert error[-100:] in found.reason
    assert pod_notice(make_settings(), pod, 0.0) is None
    overdue = listed_machine(make_settings(), pod, overdue=True)
    assert (overdue.cannot_start, overdue.failure) == (True, CONFIGURATION)
    assert overdue.reason == found.reason


def crashing(restarts: int) -> dict[str, Any]:
    """A pod whose Docker daemon ends again and again, before the agent starts."""
    message = "back-off 40s restarting failed container=dind"
    dind = {
        "name": "dind",
        "restartCount": restarts,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": message}},
        "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
    }
    runner = {"name": "runner", "state": {"waiting": {"reason": "PodInitializing"}}}
    return make_pod(
        {"phase": "Pending", "initContainerStatuses": [dind], "containerStatuses": [runner]}
    )


@pytest.mark.case(
    "the Docker daemon beside the runner ends again and again, for example because the node allows no user "
    "namespaces",
    topic="Kubernetes",
    source="Kubernetes: Pod Lifecycle",
)
def test_a_sidecar_that_ends_again_and_again_keeps_the_pod_from_starting() -> None:
    once = listed_machine(make_settings(), crashing(restarts=1))
    assert (once.cannot_start, once.failure, once.state) == (False, None, "CrashLoopBackOff")
    found = listed_machine(make_settings(), crashing(restarts=3))
    assert (found.cannot_start, found.failure, found.scope) == (True, CONFIGURATION, HOST)
    assert found.reason == (
        "CrashLoopBackOff: container dind: back-off 40s restarting failed container=dind; "
        "it ended with status 1"
    )


@pytest.mark.parametrize(
    ("status", "refused"),
    [
        (ended("UnexpectedAdmissionError"), True),
        (ended("UnexpectedAdmissionError", "Pod was rejected: Allocate failed"), True),
        (ended("OutOfnvidia.com/gpu"), True),
        (ended("NodeAffinity"), True),
        (ended("Evicted", NOT_ADMITTED), True),
        (ended("Another", "Pod was rejected: for a reason of a later kubelet"), True),
        (ended("Evicted", LOW), False),
        (ended("Preempting"), False),
        (ended("UnexpectedAdmissionError") | disrupted("PreemptionByScheduler"), False),
        (terminated("Unknown", 255), False),
        (terminated("Error", 1), False),
        ({"phase": "Succeeded"}, False),
        ({"phase": "Running"}, False),
    ],
)
@pytest.mark.parametrize("deleted", [True, False])
def test_a_pod_that_kubelet_refuses_is_shown_as_not_admitted(
    status: dict[str, Any], refused: bool, deleted: bool
) -> None:
    assert listed_machine(make_settings(), make_pod(status, deleted)).not_admitted is refused


@pytest.mark.parametrize(
    ("limits", "words", "scope"),
    [
        ({"memory": "64Gi"}, "at its memory limit of 64Gi", None),
        ({}, "without a memory limit of its own: its node had no memory left", HOST),
    ],
)
def test_a_container_that_was_killed_for_its_memory_names_the_limit(
    limits: dict[str, str], words: str, scope: FailureScope | None
) -> None:
    pod = make_pod(terminated("OOMKilled", 137))
    [runner] = pod["spec"]["containers"]
    runner["resources"]["limits"] = limits
    found = listed_machine(make_settings(), pod)
    assert found.reason == f"OOMKilled: container runner ended with status 137, {words}"
    assert found.scope is scope


@pytest.mark.parametrize(
    ("policy", "reason"),
    [("Never", "Error: container cache ended with status 2"), ("Always", "Failed")],
)
def test_only_an_init_container_that_always_restarts_is_a_sidecar(policy: str, reason: str) -> None:
    pod = make_pod(terminated("Error", 2, "initContainerStatuses"))
    pod["status"]["initContainerStatuses"][0]["name"] = "cache"
    pod["spec"]["initContainers"] = [{"name": "cache", "restartPolicy": policy}]
    assert listed_machine(make_settings(), pod).reason == reason


def test_the_first_failure_to_pull_an_image_is_tried_again() -> None:
    found = listed_machine(make_settings(), make_pod(waiting("ErrImagePull")))
    assert not found.leaving
    assert (found.cannot_start, found.failure, found.state) == (False, None, "ErrImagePull")


def test_an_unschedulable_pod_waits_for_a_node_only_if_one_may_come() -> None:
    pod = make_pod(unscheduled())
    waits = listed_machine(make_settings(provisioner=True), pod)
    assert (waits.cannot_start, waits.failure, waits.state) == (False, None, "Unschedulable")
    assert "Insufficient nvidia.com/gpu" in waits.reason
    refused = listed_machine(make_settings(provisioner=False), pod)
    assert (refused.cannot_start, refused.failure) == (True, CAPACITY)


@pytest.mark.parametrize(
    "said",
    [
        'waiting for ephemeral volume controller to create the persistentvolumeclaim "a-work"',
        "pod has unbound immediate PersistentVolumeClaims. not found",
    ],
)
def test_a_pod_whose_claim_is_being_created_is_not_refused(said: str) -> None:
    status = unscheduled()
    status["conditions"][0]["message"] = f"0/1 nodes are available: {said}"
    assert not listed_machine(make_settings(provisioner=False), make_pod(status)).cannot_start


def test_a_pod_with_a_nominated_node_is_not_refused() -> None:
    pod = make_pod(unscheduled() | {"nominatedNodeName": "node-1"})
    assert not listed_machine(make_settings(provisioner=False), pod).cannot_start


def test_a_gated_pod_is_not_refused() -> None:
    gated = make_pod(unscheduled("SchedulingGated"))
    assert not listed_machine(make_settings(provisioner=False), gated).cannot_start


def test_a_deleted_pod_leaves_and_an_evicted_one_names_the_eviction() -> None:
    found = listed_machine(make_settings(), make_pod({"phase": "Running"}, deleted=True))
    assert (found.leaving, found.deleted) == (True, True)
    assert (found.terminated, found.failure) == (False, None)
    status = disrupted("EvictionByEvictionAPI", "Running")
    evicted = listed_machine(make_settings(), make_pod(status, deleted=True))
    assert (evicted.leaving, evicted.failure) == (True, CAPACITY)


def test_a_pod_that_was_killed_because_a_client_deleted_it_says_so() -> None:
    found = listed_machine(make_settings(), make_pod(terminated("Error", 143), deleted=True))
    assert (found.terminated, found.deleted) == (True, True)
    assert found.reason == "Error: container runner ended with status 143; the pod was deleted"


@pytest.mark.parametrize(
    ("status", "deleted"), [({"phase": "Succeeded"}, True), (terminated("Error", 1), False)]
)
def test_a_pod_that_ended_by_itself_was_not_deleted_before(
    status: dict[str, Any], deleted: bool
) -> None:
    assert not listed_machine(make_settings(), make_pod(status, deleted=deleted)).deleted


@pytest.mark.case(
    "a node is lost: its deleted pods stay until the node is deleted, and the reason names the node",
    topic="Kubernetes",
    source="Kubernetes: Nodes, and Pod garbage collection",
)
def test_a_deleted_pod_names_the_node_that_has_not_ended_it() -> None:
    pod = make_pod(disrupted("DeletionByTaintManager", "Running"), deleted=True)
    pod["spec"] |= {"nodeName": "gpu-7"}
    found = listed_machine(make_settings(), pod)
    assert found.reason == "DeletionByTaintManager: why; node gpu-7 has not confirmed its end yet"


def test_a_running_pod_counts_its_accelerators_and_price() -> None:
    found = listed_machine(make_settings(), make_pod({"phase": "Running"}))
    assert found.quota_usage == (("cluster/amd.com/gpu{accelerator=mi300x}", 2),)
    assert found.dollars_per_hour == 3.5
    assert (found.installation, found.launch_request) == ("f00dface", "0123456789abcdef")
    assert found.image == OPTION.image


def test_a_listed_pod_is_of_the_offering_that_was_sold() -> None:
    settings = make_settings()
    sold, found = offering(settings, OPTION), listed_machine(settings, make_pod())
    assert (found.instance_type, found.zone) == (sold.instance_type, sold.zone)
    assert found.quota_usage == ((sold.quota_key, sold.quota_units),)
    assert offering(settings, CPU_OPTION).quota_key == "cluster/pods"


@pytest.mark.parametrize("price", ["", "free", "nan", "-1", "1e300"])
def test_a_price_annotation_that_is_not_a_price_counts_as_zero(price: str) -> None:
    pod = make_pod()
    pod["metadata"]["annotations"]["gpu-runner-autoscaler/dollars-per-hour"] = price
    assert listed_machine(make_settings(), pod).dollars_per_hour == 0.0


def test_an_eviction_is_an_interruption_and_an_end_a_change_of_state() -> None:
    settings = make_settings()
    evicted = make_pod(disrupted("EvictionByEvictionAPI", "Running"), deleted=True)
    notice = pod_notice(settings, evicted, 5.0)
    assert notice is not None
    assert (notice.kind, notice.means_at) == (NoticeKind.SCHEDULED_CHANGE, 5.0)
    preempted = make_pod(disrupted("PreemptionByScheduler", "Running"), deleted=True)
    notice = pod_notice(settings, preempted, 5.0)
    assert notice is not None
    assert notice.kind is NoticeKind.SPOT_INTERRUPTION
    done = pod_notice(settings, make_pod({"phase": "Succeeded"}), 5.0)
    assert done is not None
    assert done.kind is NoticeKind.STATE_CHANGE
    assert pod_notice(settings, make_pod({"phase": "Running"}), 5.0) is None


@pytest.mark.case(
    "GitHub fails an evicted pod's job before the controller reads of the eviction",
    topic="Kubernetes",
    source="Kubernetes: Disruptions",
)
@pytest.mark.parametrize(
    ("decided", "means_at"),
    [
        ("2026-11-22T14:00:00Z", 1_795_356_000.0),
        ("2026-11-22T16:02:00Z", 1_795_356_060.0),  # the cluster's clock is two hours fast
        ("", 1_795_356_060.0),
    ],
)
def test_a_disruption_has_the_time_of_its_condition_but_never_a_later_one_than_now(
    decided: str, means_at: float
) -> None:
    status = disrupted("EvictionByEvictionAPI", "Running")
    status["conditions"][0]["lastTransitionTime"] = decided
    read_at = 1_795_356_060.0
    announced = disruption_notice(make_pod(status), read_at)
    notice = pod_notice(make_settings(), make_pod(status, deleted=True), read_at)
    assert announced is not None
    assert notice is not None
    assert (announced.means_at, notice.means_at) == (means_at, means_at)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("EvictionByEvictionAPI", NoticeKind.SCHEDULED_CHANGE),
        ("PreemptionByScheduler", NoticeKind.SPOT_INTERRUPTION),
    ],
)
def test_a_condition_is_an_interruption_only_once_the_pod_is_gone(
    reason: str, kind: NoticeKind
) -> None:
    pod = make_pod(disrupted(reason, "Running"))
    assert pod_notice(make_settings(), pod, 5.0) is None
    notice = disruption_notice(pod, 5.0)
    assert notice is not None
    assert (notice.kind, notice.detail) == (kind, f"{reason}: why")
    assert disruption_notice(make_pod({"phase": "Running"}), 5.0) is None
    found = listed_machine(make_settings(), pod)
    assert (found.leaving, found.failure) == (False, None), "it may keep its node after all"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (waiting("InvalidImageName"), NoticeKind.STATE_CHANGE),
        (unscheduled(), NoticeKind.STATE_CHANGE),
        (waiting("ErrImagePull"), None),
        (waiting("CreateContainerError"), None),
        (unscheduled("SchedulingGated"), None),
    ],
)
def test_a_pod_that_cannot_start_is_announced(
    status: dict[str, Any], said: NoticeKind | None
) -> None:
    notice = pod_notice(make_settings(provisioner=False), make_pod(status), 5.0)
    assert (notice.kind if notice is not None else None) is said
