"""Accelerators of jobs that GitHub's hooks run in pods of their own."""

from collections.abc import Mapping
from typing import Any

import pytest

from autoscaler.model.identifiers import ProviderName
from autoscaler.providers.kubernetes.capacity.accelerators import Usage, free_units, known_of
from autoscaler.providers.kubernetes.identity import ownership
from autoscaler.providers.kubernetes.listing.machines import offering, quota_usage
from autoscaler.providers.kubernetes.manifest.overlay import OverlayError
from autoscaler.providers.kubernetes.manifest.pod import named_pod, pod_template
from autoscaler.providers.kubernetes.manifest.visible_gpus import VARIABLE
from autoscaler.providers.kubernetes.settings import (
    Accelerator,
    PodOption,
)
from tests.providers.container_hooks import TEMPLATE, file_of, job_pod, step_pod, variables
from tests.providers.kubernetes_pods import (
    OPTION,
    SKU,
    hooks,
    make_order,
    make_settings,
    wanted,
    with_changes,
)
from tests.providers.test_kubernetes_capacity import KEY, node, pod

GPU = "amd.com/gpu"
RESOURCES = {"cpu": "14", "memory": "100Gi"}
HOOKS = hooks(resources=RESOURCES)
HOOKED = with_changes(OPTION, container_mode=HOOKS, accelerator_check=wanted("amd"))
NAME = "ci-0123456789abcdef-0"


def runner_pod(option: PodOption = HOOKED, **settings: Any) -> dict[str, Any]:
    made = make_settings(options={(SKU, 0): option}, **settings)
    return named_pod(pod_template(made, option, make_order()), NAME, 0)


def requested(found: Mapping[str, Any]) -> dict[str, str | None]:
    """The accelerators in the limits of each container, by its name."""
    return {
        one["name"]: one.get("resources", {}).get("limits", {}).get(GPU)
        for kind in ("initContainers", "containers")
        for one in found["spec"].get(kind, ())
    }


@pytest.mark.case(
    "a job with `container:` has no GPU: the hooks give its pod no resources",
    topic="Kubernetes",
    source="ARC#1730",
)
def test_the_jobs_container_alone_requests_the_accelerators() -> None:
    runner = runner_pod()
    assert not any(requested(runner).values())
    job = job_pod(runner, services={"redis": "redis:8"})
    assert requested(job) == {"fs-init": None, "job": "2", "redis": None}
    [container] = [one for one in job["spec"]["containers"] if one["name"] == "job"]
    assert container["resources"]["requests"] == RESOURCES
    assert container["resources"]["limits"] == {**RESOURCES, GPU: "2"}


def test_the_hooks_keep_what_they_need_of_the_jobs_pod() -> None:
    job, plain = job_pod(runner_pod()), job_pod(runner_pod(with_changes(HOOKED, accelerator=None)))
    bare = job_pod(runner_pod(with_changes(OPTION, accelerator=None, container_mode=hooks())))
    for found in (job, plain):
        assert found["spec"]["initContainers"] == bare["spec"]["initContainers"]
        assert found["spec"]["restartPolicy"] == "Never"
        [container], [wanted] = found["spec"]["containers"], bare["spec"]["containers"]
        for key in ("name", "image", "command", "args"):
            assert container[key] == wanted[key]
        assert [one for one in container["env"] if one["name"] != VARIABLE] == wanted["env"]
        assert container["volumeMounts"][: len(wanted["volumeMounts"])] == wanted["volumeMounts"]
        assert {"name": "shared-memory", "mountPath": "/dev/shm"} in container["volumeMounts"]
        mounted = {one["name"] for one in container["volumeMounts"]}
        assert mounted == {one["name"] for one in found["spec"]["volumes"]}


def test_the_jobs_pod_goes_where_the_runners_pod_may_be() -> None:
    affinity: dict[str, Any] = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}
    }
    added = {"key": "team", "operator": "Exists"}
    overlay = {
        "spec": {"affinity": affinity, "tolerations": [added], "nodeSelector": {"zone": "a"}}
    }
    runner = runner_pod(with_changes(HOOKED, runtime_class="nvidia", overlay=overlay))
    spec = job_pod(runner)["spec"]
    for key in ("nodeSelector", "tolerations", "affinity", "runtimeClassName"):
        assert spec[key] == runner["spec"][key]
    assert added in spec["tolerations"]
    assert {"key": GPU, "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]
    assert spec["nodeSelector"]["zone"] == "a"


def test_the_jobs_pod_keeps_its_node_and_has_no_rights_at_the_api_server() -> None:
    job = job_pod(runner_pod())
    assert job["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
    assert job["spec"]["automountServiceAccountToken"] is False
    # Otherwise the provider would list it as a machine.
    assert job["metadata"]["labels"] == {"runner-pod": NAME}


def test_the_check_runs_before_the_first_step_and_nothing_else_has_it() -> None:
    """The hooks wait for the phase Running, which follows the handler."""
    job = job_pod(runner_pod(), services={"redis": "redis:8"})
    handlers = {one["name"]: one.get("lifecycle") for one in job["spec"]["containers"]}
    assert handlers["redis"] is None
    assert handlers["job"]["postStart"]["exec"]["command"][:2] == ["sh", "-c"]
    assert handlers["job"]["postStart"]["exec"]["command"][3:] == ["sh", "2", "", "0"]


def test_a_step_with_an_image_of_its_own_requests_the_accelerators_again() -> None:
    """There is one template for all pods of the hooks (`readExtensionFromFile`)."""
    assert requested(step_pod(runner_pod())) == {"job": "2"}


def test_the_agent_looks_for_no_accelerators_that_another_pod_has() -> None:
    marker = {"name": "RUNNER_AGENT_ACCELERATORS", "value": "in-job-pod"}
    spec = runner_pod()["spec"]
    assert all(
        marker in one["env"] for one in [*spec.get("initContainers", ()), *spec["containers"]]
    )
    for option in (OPTION, with_changes(HOOKED, accelerator=None)):
        assert "RUNNER_AGENT_ACCELERATORS" not in str(runner_pod(option))


@pytest.mark.parametrize(("provisioner", "seconds"), [(True, "1500"), (False, "600")])
def test_the_hooks_wait_as_long_for_a_node_as_the_controller(
    provisioner: bool, seconds: str
) -> None:
    env = variables(runner_pod(provisioner=provisioner))
    assert env["ACTIONS_RUNNER_PREPARE_JOB_TIMEOUT_SECONDS"] == seconds


def test_without_resources_for_the_job_an_operator_may_mount_a_template() -> None:
    mode = hooks("container-hooks")
    env = [{"name": TEMPLATE, "value": "/template/pod.yaml"}]
    overlay = {"spec": {"containers": [{"name": "runner", "env": env}]}}
    own = with_changes(OPTION, accelerator=None, container_mode=mode, overlay=overlay)
    assert variables(runner_pod(own))[TEMPLATE] == "/template/pod.yaml"
    with pytest.raises(OverlayError, match=TEMPLATE):
        runner_pod(with_changes(own, accelerator=OPTION.accelerator))


@pytest.mark.parametrize(
    ("option", "overlay", "words"),
    [
        (
            OPTION,
            {"env": [{"name": "RUNNER_AGENT_ACCELERATORS", "value": "in-job-pod"}]},
            "allowed",
        ),
        (HOOKED, {"env": [{"name": "RUNNER_AGENT_ACCELERATORS", "value": "here"}]}, "must stay"),
        (HOOKED, {"resources": {"limits": {GPU: "2"}}}, "nothing would count it"),
    ],
)
def test_an_overlay_moves_no_accelerator_out_of_the_check(
    option: PodOption, overlay: dict[str, Any], words: str
) -> None:
    changed = {"spec": {"containers": [{"name": "runner", **overlay}]}}
    with pytest.raises(OverlayError, match=words):
        runner_pod(with_changes(option, overlay=changed))


def test_an_overlay_cannot_write_the_template() -> None:
    overlay = {"metadata": {"annotations": {"gpu-runner-autoscaler/job-pod": "{}"}}}
    for option in (OPTION, HOOKED):
        with pytest.raises(OverlayError, match="relies on it"):
            runner_pod(with_changes(option, overlay=overlay))


def test_kubelet_writes_the_template_where_the_hooks_read_it() -> None:
    runner = runner_pod()
    assert file_of(runner, variables(runner)[TEMPLATE]) is not None


def test_a_runners_pod_counts_the_accelerators_that_its_job_will_have() -> None:
    settings = make_settings(options={(SKU, 0): HOOKED})
    expected = ((KEY, 2),)
    assert quota_usage(settings.name, runner_pod()) == expected
    offered = offering(settings, HOOKED)
    assert ((offered.quota_key, offered.quota_units),) == expected
    broken = runner_pod()
    broken["metadata"]["annotations"][ownership.QUOTA_UNITS] = "many"
    assert quota_usage(ProviderName("cluster"), broken) == ((KEY, 1),)


def on(found: dict[str, Any], name: str, namespace: str = "runners") -> dict[str, Any]:
    """The pod on a node."""
    return {
        **found,
        "metadata": {**found["metadata"], "namespace": namespace},
        "spec": {**found["spec"], "nodeName": name},
        "status": {"phase": "Running"},
    }


@pytest.mark.parametrize(
    ("pods", "units"),
    [
        # The job has not begun, so its accelerators are free, and the ledger counts them already.
        ([on(runner_pod(), "cpu")], 8),
        ([on(runner_pod(), "gpu")], 8),
        ([on(runner_pod(), "cpu"), on(job_pod(runner_pod()), "gpu")], 8),
        ([on(runner_pod(), "gpu"), on(job_pod(runner_pod()), "gpu"), pod("gpu", "3")], 4),
        # A step's pod holds two more, which the ledger does not count.
        ([on(job_pod(runner_pod()), "gpu"), on(step_pod(runner_pod()), "gpu")], 6),
        ([on(job_pod(runner_pod()), "gpu", "of-the-other")], 6),
        (
            [
                on(
                    job_pod(
                        {**runner_pod(), "metadata": {**runner_pod()["metadata"], "name": "x-1-0"}}
                    ),
                    "gpu",
                )
            ],
            6,
        ),
    ],
    ids=["cpu node", "same node", "running", "others", "step", "namespace", "fleet"],
)
def test_the_accelerators_of_a_job_count_once(pods: list[dict[str, Any]], units: int) -> None:
    settings = make_settings(options={(SKU, 0): HOOKED})
    used = Usage(settings)
    used.add(pods)
    nodes = [known_of(node("gpu")), known_of(node("cpu", "0"))]
    assert free_units(settings, nodes, used) == {KEY: units}


@pytest.mark.parametrize(
    ("accelerator", "shown"),
    [(Accelerator("nvidia.com/gpu", 1), []), (OPTION.accelerator, ["void"])],
)
def test_the_jobs_container_sees_the_gpus_that_it_requests_and_no_others(
    accelerator: Accelerator | None, shown: list[str]
) -> None:
    found = job_pod(runner_pod(with_changes(HOOKED, accelerator=accelerator)))
    [container] = found["spec"]["containers"]
    assert [one["value"] for one in container["env"] if one["name"] == VARIABLE] == shown


@pytest.mark.parametrize(("configured", "size"), [(None, "32Gi"), ("8Gi", "8Gi")])
def test_the_jobs_pod_has_a_dev_shm_of_its_own(configured: str | None, size: str) -> None:
    mode = hooks(resources={"memory": "64Gi"})
    option = with_changes(HOOKED, container_mode=mode, shared_memory=configured)
    found = job_pod(runner_pod(option))["spec"]
    [container] = found["containers"]
    [mount] = [one for one in container["volumeMounts"] if one["mountPath"] == "/dev/shm"]
    [volume] = [one for one in found["volumes"] if one["name"] == mount["name"]]
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": size}
