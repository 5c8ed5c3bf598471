"""Makes the template with which GitHub's hooks create the pod of a job. Pure.

The hooks merge the file of ACTIONS_RUNNER_CONTAINER_HOOK_TEMPLATE into each pod that they create
(actions/runner-container-hooks 0.8, `mergePodSpecWithOptions` and `mergeContainerWithOptions` in
packages/k8s/src/k8s/utils.ts): volumes, variables and volume mounts are added, `$job` names the job's
container, whose image and name stay, and every other field replaces that of the hooks. So the template has no
init containers: the hooks need their own, `fs-init`.

The runner's pod has the template as an annotation, and kubelet writes it to the volume `api-access`. Only the
job's pod requests the accelerators: the runner's pod would hold them idle.
"""

import json
from collections.abc import Mapping
from typing import Any

from autoscaler.providers.kubernetes.identity import ownership
from autoscaler.providers.kubernetes.manifest.accelerator_script import check_command
from autoscaler.providers.kubernetes.manifest.container_modes import (
    API_ACCESS_FOLDER,
    API_ACCESS_VOLUME,
)
from autoscaler.providers.kubernetes.manifest.shared_memory import FOLDER, memory_volume
from autoscaler.providers.kubernetes.manifest.visible_gpus import hide_other_gpus
from autoscaler.providers.kubernetes.settings import KubernetesSettings, PodOption

TEMPLATE = f"{ownership.PREFIX}job-pod"
"""The annotation of the runner's pod with the template, as JSON."""

TEMPLATE_FILE = "job-pod.json"

_PLACEMENT = (
    "nodeSelector",
    "tolerations",
    "affinity",
    "runtimeClassName",
    "schedulerName",
    "priorityClassName",
)
"""The fields of the runner's pod, with its overlay, that decide on the node."""

CREATION_SECONDS = 600
"""How long the hooks wait by default until a job's pod runs (`DEFAULT_WAIT_FOR_POD_TIME_SECONDS`)."""


def add_template_file(
    spec: Mapping[str, Any], settings: KubernetesSettings, option: PodOption
) -> None:
    """Give the runner's pod a file for the template, which `add_template` adds after the overlay."""
    wait = CREATION_SECONDS + (settings.pending_timeout if settings.provisioner else 0)
    env = {
        "ACTIONS_RUNNER_CONTAINER_HOOK_TEMPLATE": f"{API_ACCESS_FOLDER}/{TEMPLATE_FILE}",
        # The job's pod may wait for a node as long as that of a runner.
        "ACTIONS_RUNNER_PREPARE_JOB_TIMEOUT_SECONDS": str(int(wait)),
    }
    if option.accelerator is not None:
        env["RUNNER_AGENT_ACCELERATORS"] = "in-job-pod"
    [runner] = spec["containers"]
    runner["env"] += [{"name": name, "value": value} for name, value in env.items()]
    [access] = [one for one in spec["volumes"] if one["name"] == API_ACCESS_VOLUME]
    field = {"fieldPath": f"metadata.annotations['{TEMPLATE}']"}
    source = {"downwardAPI": {"items": [{"path": TEMPLATE_FILE, "fieldRef": field}]}}
    access["projected"]["sources"].append(source)


def add_template(pod: Mapping[str, Any], option: PodOption) -> None:
    """Give the runner's pod, with its overlay, the template for the pod of its job."""
    annotations = pod["metadata"]["annotations"]
    annotations[TEMPLATE] = json.dumps(_template(pod["spec"], option), sort_keys=True)
    if option.accelerator is not None:
        annotations[ownership.QUOTA_UNITS] = str(option.accelerator.count)


def has_template(option: PodOption) -> bool:
    """Return whether the job's container gets resources in a pod of its own."""
    hooks = option.hooks
    return hooks is not None and bool(option.accelerator or hooks.resources)


def _template(runner: Mapping[str, Any], option: PodOption) -> dict[str, Any]:
    """Return the template. The scheduler puts the job's pod on a node where the runner's pod could be."""
    annotations = {ownership.QUOTA: option.quota, ownership.DO_NOT_DISRUPT: "true"}
    job = _job_container(option)
    volume = memory_volume(option.shared_memory, job["resources"]["limits"].get("memory"))
    job["volumeMounts"] = [{"name": volume["name"], "mountPath": FOLDER}]
    template: dict[str, Any] = {
        "metadata": {"annotations": annotations},
        "spec": {
            **{key: runner[key] for key in _PLACEMENT if key in runner},
            # No step of a job needs the API server.
            "automountServiceAccountToken": False,
            "containers": [job],
            "volumes": [volume],
        },
    }
    hide_other_gpus(template["spec"], option.accelerator)
    return template


def _job_container(option: PodOption) -> dict[str, Any]:
    """Return the fields of the job's container that the hooks take over.

    The hooks run the first step once the pod is `Running`. It is not before the handler has ended (Kubernetes
    documentation, "Attach Handlers to Container Lifecycle Events"). If the handler fails, kubelet kills the
    container (`startContainer` in its kuberuntime_container.go), and the hooks fail the job.
    """
    accelerator, check = option.accelerator, option.accelerator_check
    resources = dict(option.hooks.resources) if option.hooks is not None else {}
    limits = dict(resources)
    found: dict[str, Any] = {
        "name": "$job",
        "resources": {"requests": resources, "limits": limits},
    }
    if accelerator is not None:
        limits[accelerator.resource] = str(accelerator.count)
        if check is not None:
            command = check_command(accelerator.count, check)
            found["lifecycle"] = {"postStart": {"exec": {"command": command}}}
    return found
