"""The pods that GitHub's container hooks create, with the template of a runner's pod.

A translation of `createJobPod`, `createContainerStepPod`, `createContainerSpec`, `mergePodSpecWithOptions` and
`mergeContainerWithOptions` of actions/runner-container-hooks 0.8.1 (packages/k8s/src).
"""

import json
from collections.abc import Mapping
from typing import Any

TEMPLATE = "ACTIONS_RUNNER_CONTAINER_HOOK_TEMPLATE"
_VOLUMES = {"externals": "/__e", "work": "/__w", "github": "/github"}
_APPENDED = ("env", "volumeMounts", "ports")


def variables(runner_pod: Mapping[str, Any]) -> dict[str, str]:
    """The variables of the container that runs the hooks."""
    [runner] = [one for one in runner_pod["spec"]["containers"] if one["name"] == "runner"]
    return {one["name"]: one.get("value", "") for one in runner.get("env", ())}


def file_of(runner_pod: Mapping[str, Any], path: str) -> str | None:
    """A file of the runner that kubelet writes from an annotation, or None."""
    [runner] = [one for one in runner_pod["spec"]["containers"] if one["name"] == "runner"]
    volumes = {one["name"]: one for one in runner_pod["spec"]["volumes"]}
    for mount in runner["volumeMounts"]:
        for source in volumes[mount["name"]].get("projected", {}).get("sources", ()):
            for item in source.get("downwardAPI", {}).get("items", ()):
                field = item["fieldRef"]["fieldPath"]
                if f"{mount['mountPath']}/{item['path']}" == path and "['" in field:
                    annotation = field.partition("['")[2].removesuffix("']")
                    return str(runner_pod["metadata"]["annotations"][annotation])
    return None


def job_pod(
    runner_pod: Mapping[str, Any], image: str = "node:24", services: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The pod of a job with `container: IMAGE`, and with services by name."""
    found = _template(runner_pod)
    containers = [_container("job", image, found)]
    for name, one in (services or {}).items():
        service = _container(name, one, found)
        # All containers share one list, to which the merge adds (`CONTAINER_VOLUMES`).
        service["volumeMounts"] = containers[0]["volumeMounts"]
        containers.append(service)
    mounts = [{"name": name, "mountPath": f"/mnt/{name}"} for name in _VOLUMES]
    init = {
        "name": "fs-init",
        "image": variables(runner_pod)["ACTIONS_RUNNER_IMAGE"],
        "command": ["sh", "-c", "mv /home/runner/externals/* /mnt/externals/"],
        "securityContext": {"runAsGroup": 1001, "runAsUser": 1001},
        "volumeMounts": mounts,
    }
    own = {"securityContext": {"fsGroup": 1001}, "initContainers": [init]}
    return _pod(runner_pod, "workflow", containers, found, own)


def step_pod(runner_pod: Mapping[str, Any], image: str = "action:1") -> dict[str, Any]:
    """The pod of a step that is a container action."""
    found = _template(runner_pod)
    return _pod(runner_pod, "step-0a1b2c3d", [_container("job", image, found)], found, {})


def _template(runner_pod: Mapping[str, Any]) -> dict[str, Any] | None:
    path = variables(runner_pod).get(TEMPLATE)
    if path is None:
        return None
    text = file_of(runner_pod, path)
    assert text is not None, "the hooks fail if the file cannot be read"
    found: dict[str, Any] = json.loads(text)
    return found


def _container(name: str, image: str, template: Mapping[str, Any] | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": name,
        "image": image,
        "command": ["tail"],
        "args": ["-f", "/dev/null"],
        "env": [{"name": "GITHUB_ACTIONS", "value": "true"}],
        "volumeMounts": [{"name": volume, "mountPath": path} for volume, path in _VOLUMES.items()],
    }
    for one in (template or {"spec": {"containers": []}})["spec"]["containers"]:
        if one["name"] != f"${name}":
            continue
        for key, value in one.items():
            if key in _APPENDED:
                found[key] = [*found.get(key, ()), *value]
            elif key not in ("name", "image"):
                found[key] = value
    return found


def _pod(
    runner_pod: Mapping[str, Any],
    end: str,
    containers: list[dict[str, Any]],
    template: Mapping[str, Any] | None,
    own: Mapping[str, Any],
) -> dict[str, Any]:
    name = runner_pod["metadata"]["name"]
    metadata: dict[str, Any] = {
        "name": f"{name}-{end}",
        "labels": {"runner-pod": name},
        "annotations": {},
    }
    spec: dict[str, Any] = {
        "containers": containers,
        "restartPolicy": "Never",
        "volumes": [{"name": volume, "emptyDir": {}} for volume in _VOLUMES],
        **own,
    }
    if template is not None:
        for kind in ("labels", "annotations"):
            metadata[kind] |= template.get("metadata", {}).get(kind, {})
        for key, value in template["spec"].items():
            if key == "containers":
                spec[key] += [one for one in value if not one["name"].startswith("$")]
            elif key == "volumes":
                spec[key] = [*spec[key], *value]
            else:
                spec[key] = value
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
