"""The API server judges what overlays add: the provider's dry run has its words on Pod Security."""

import json
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.providers.kubernetes.api.client import KubernetesApi
from autoscaler.providers.kubernetes.launching import dry_run, launch_text
from autoscaler.providers.kubernetes.manifest.pod import named_pod
from tests.cluster.conftest import SKU, Place
from tests.providers.doubles import ManualClock, RememberingTelemetry
from tests.providers.kubernetes_pods import SAFE, sidecar, with_changes

pytestmark = pytest.mark.asyncio(loop_scope="session")

OF_POD = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def runner(**changes: Any) -> dict[str, Any]:
    """An overlay for the runner's container."""
    return {"containers": [{"name": "runner", **changes}]}


def _of_pod(field: str, value: object) -> dict[str, Any]:
    return {"securityContext": {field: value}}


def _of_runner(field: str, value: object) -> dict[str, Any]:
    return runner(securityContext={field: value})


UNCONFINED = {"type": "Unconfined"}
FORBIDDEN = (
    _of_pod("runAsUser", 0),
    _of_pod("runAsNonRoot", False),
    _of_pod("seccompProfile", UNCONFINED),
    _of_pod("appArmorProfile", UNCONFINED),
    _of_pod("seLinuxOptions", {"type": "spc_t"}),
    _of_pod("sysctls", [{"name": "kernel.msgmax", "value": "1"}]),
    _of_runner("runAsUser", 0),
    _of_runner("runAsNonRoot", False),
    _of_runner("allowPrivilegeEscalation", True),
    _of_runner("allowPrivilegeEscalation", None),
    _of_runner("capabilities", {"add": ["NET_ADMIN"]}),
    _of_runner("capabilities", {"drop": ["NET_RAW"]}),
    _of_runner("capabilities", None),
    _of_runner("seccompProfile", UNCONFINED),
    _of_runner("appArmorProfile", UNCONFINED),
    _of_runner("seLinuxOptions", {"type": "spc_t"}),
    _of_runner("seLinuxOptions", {"user": "system_u", "type": "spc_t"}),
    _of_runner("seLinuxOptions", {"role": "system_r"}),
    runner(securityContext={"privileged": True, "allowPrivilegeEscalation": None}),
    {"hostUsers": False, **runner(securityContext={"procMount": "Unmasked"})},
    runner(securityContext=None),
    {"securityContext": None},
    {"securityContext": {"seccompProfile": None}},
    sidecar(securityContext=None),
    sidecar(securityContext={**SAFE, "runAsUser": 0}),
    sidecar(ports=[{"containerPort": 80, "hostPort": 80}]),
    sidecar(readinessProbe={"httpGet": {"port": 80, "host": "169.254.169.254"}}),
    sidecar(lifecycle={"preStop": {"httpGet": {"port": 80, "host": "169.254.169.254"}}}),
    {"volumes": [{"name": "data", "nfs": {"server": "nfs.example", "path": "/"}}]},
    {"volumes": [{"name": "data", "hostPath": {"path": "/"}}]},
)

APPARMOR = "container.apparmor.security.beta.kubernetes.io/runner"

ALLOWED: tuple[dict[str, Any], ...] = (
    {},
    {"securityContext": {"supplementalGroups": [992], "runAsUser": 1002, "fsGroup": 1002}},
    {"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_keepalive_time", "value": "60"}]}},
    {"securityContext": {"seLinuxOptions": {"type": "container_engine_t", "level": "s0:c1,c2"}}},
    sidecar(),
    sidecar(securityContext={**SAFE, **OF_POD, "runAsUser": None, "procMount": None}),
    sidecar(ports=[{"containerPort": 80}], readinessProbe={"tcpSocket": {"port": 80}}),
    runner(
        securityContext={
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["NET_RAW", "ALL"]},
            "seccompProfile": {"type": "Localhost", "localhostProfile": "runner.json"},
            "readOnlyRootFilesystem": True,
        }
    ),
    {
        "securityContext": None,
        "containers": [{"name": "runner", "securityContext": OF_POD}],
    },
    {
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}, "hostPath": None},
            {"name": "model", "image": {"reference": "registry.example/model:1"}},
        ]
    },
    # Since Kubernetes 1.35.
    {"hostUsers": False, "securityContext": {"runAsUser": 0}},
    {"hostUsers": False, **runner(securityContext={"runAsNonRoot": False})},
)


async def answer(place: Place, overlay: dict[str, Any]) -> str:
    """What the API server says about the pod of a launch option with this overlay; empty if it accepts it."""
    option = with_changes(place.settings.options[(SKU, 0)], overlay=overlay)
    settings = replace(place.settings, options={(SKU, 0): option})
    request = json.loads(launch_text(settings, place.make_order(1, "security")))
    api = KubernetesApi(settings, RememberingTelemetry(), ManualClock())
    try:
        await dry_run(api, named_pod(request["pod"], request["names"][0], 0))
    except ProviderError as error:
        return f"{error.code}: {error.message}"
    finally:
        await api.close()
    return ""


@pytest.mark.case(
    "an overlay gives a container what Pod Security restricted forbids",
    topic="Kubernetes",
    source="Kubernetes: Pod Security Standards",
)
async def test_the_dry_run_refuses_what_restricted_forbids(place: Place) -> None:
    overlays: list[dict[str, Any]] = [{"spec": spec} for spec in FORBIDDEN]
    overlays.append({"metadata": {"annotations": {APPARMOR: "unconfined"}}})
    for overlay in overlays:
        found = await answer(place, overlay)
        assert found.startswith("PodSecurity: "), overlay
        assert 'violates PodSecurity "restricted' in found, overlay


async def test_the_dry_run_accepts_what_restricted_allows(place: Place) -> None:
    for spec in ALLOWED:
        assert await answer(place, {"spec": spec}) == "", spec
    for profile in ("runtime/default", "localhost/ours", ""):
        annotations = {APPARMOR: profile, "note": "unconfined"}
        assert await answer(place, {"metadata": {"annotations": annotations}}) == "", profile
