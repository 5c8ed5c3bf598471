"""The pods of the Kubernetes provider: what is in them, and which overlays are refused."""

import json
from copy import deepcopy
from typing import Any

import pytest

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.catalogue import Architecture
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.kubernetes.launching import launch_text, request_of
from autoscaler.providers.kubernetes.manifest.overlay import OverlayError, merged
from autoscaler.providers.kubernetes.manifest.pod import pod_template
from tests.providers.kubernetes_pods import (
    CPU_OPTION,
    OPTION,
    SKU,
    make_order,
    make_settings,
    sidecar,
    with_changes,
)


def spec(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = template(**changes)["spec"]
    return found


def template(**changes: Any) -> dict[str, Any]:
    return pod_template(make_settings(), with_changes(OPTION, **changes), make_order())


def by_name(elements: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(one for one in elements if one["name"] == name)


def mounts(container: dict[str, Any]) -> set[str]:
    return {one["name"] for one in container["volumeMounts"]}


@pytest.mark.case(
    "kubelet starts again: it kills pods whose init container had devices of a device plugin",
    topic="Kubernetes",
    source="kubernetes/kubernetes#138446",
)
def test_one_container_has_the_accelerators_and_no_init_container_has_any() -> None:
    assert spec()["initContainers"] == []
    [runner] = spec()["containers"]
    assert runner["resources"] == {
        "limits": {"cpu": "16", "memory": "64Gi", "amd.com/gpu": "2"},
        "requests": {"cpu": "16", "memory": "64Gi"},
    }


def test_a_pod_runs_once_and_has_no_rights() -> None:
    assert spec()["restartPolicy"] == "Never"
    assert spec()["automountServiceAccountToken"] is False
    assert spec()["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 1001,
        "fsGroup": 1001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_the_token_is_for_this_fleet_only() -> None:
    assert "identity" in mounts(by_name(spec()["containers"], "runner"))
    volume = by_name(spec()["volumes"], "identity")
    assert volume["projected"]["sources"] == [
        {
            "serviceAccountToken": {
                "audience": "ci.gpu-runner-autoscaler",
                "expirationSeconds": 3600,
                "path": "token",
            }
        }
    ]


def test_the_agents_files_are_in_memory_and_no_secret_of_the_cluster_is_used() -> None:
    assert by_name(spec()["volumes"], "agent")["emptyDir"]["medium"] == "Memory"
    assert "agent" in mounts(by_name(spec()["containers"], "runner"))
    assert not any("secret" in volume for volume in spec()["volumes"])


def test_a_pod_is_placed_by_architecture_selector_taint_and_runtime_class() -> None:
    found = spec(arch=Architecture.ARM64, runtime_class="nvidia")
    assert found["nodeSelector"] == {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "arm64",
        "accelerator": "mi300x",
    }
    taint = {"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert found["tolerations"] == [taint]
    assert found["runtimeClassName"] == "nvidia"
    assert "runtimeClassName" not in spec()


def test_a_pod_carries_its_fleet_installation_request_and_sku() -> None:
    metadata = template()["metadata"]
    assert set(metadata["labels"].values()) == {"ci", "f00dface", "0123456789abcdef"}
    assert metadata["annotations"]["gpu-runner-autoscaler/sku"] == SKU


def test_a_pod_may_be_disrupted_until_it_gets_its_registration() -> None:
    assert "karpenter.sh/do-not-disrupt" not in template()["metadata"]["annotations"]


def test_the_same_order_gives_the_same_text_and_another_request_other_names() -> None:
    settings = make_settings()
    text = launch_text(settings, make_order(2))
    assert launch_text(settings, make_order(2)) == text
    assert json.loads(text)["names"] == ["ci-0123456789abcdef-0", "ci-0123456789abcdef-1"]
    assert request_of(text) == "0123456789abcdef"
    other = json.loads(launch_text(settings, make_order(2, "fedcba9876543210")))
    assert not set(other["names"]) & set(json.loads(text)["names"])


@pytest.mark.parametrize("request_id", ["UPPER", "x" * 60, "dot.ted"])
def test_a_name_that_kubernetes_does_not_allow_is_a_configuration_error(request_id: str) -> None:
    with pytest.raises(ProviderError) as error:
        launch_text(make_settings(), make_order(1, request_id))
    assert (error.value.failure, error.value.code) == (FailureClass.CONFIGURATION, "Name")


def test_a_broken_overlay_is_a_configuration_error() -> None:
    option = with_changes(OPTION, overlay={"spec": {"restartPolicy": "Always"}})
    with pytest.raises(ProviderError) as error:
        launch_text(make_settings(options={(SKU, 0): option}), make_order())
    assert (error.value.failure, error.value.code) == (FailureClass.CONFIGURATION, "Overlay")


def test_an_overlay_merges_mappings_and_removes_keys_that_are_null() -> None:
    found = merged(
        template(),
        {
            "metadata": {"labels": {"team": "ml"}, "annotations": {"note": "x"}},
            "spec": {"priorityClassName": "low", "enableServiceLinks": None},
        },
    )
    assert found["metadata"]["labels"]["team"] == "ml"
    assert found["metadata"]["labels"]["gpu-runner-autoscaler/fleet"] == "ci"
    assert found["spec"]["priorityClassName"] == "low"
    assert "enableServiceLinks" not in found["spec"]


def test_containers_volumes_and_variables_merge_by_name() -> None:
    overlay = {
        "spec": {
            "containers": [
                {"name": "runner", "env": [{"name": "A", "value": "1"}], "workingDir": "/x"},
            ],
            **sidecar(),
            "volumes": [{"name": "cache", "persistentVolumeClaim": {"claimName": "cache"}}],
        }
    }
    found = merged(template(), overlay)["spec"]
    assert [one["name"] for one in found["containers"]] == ["runner"]
    assert [one["name"] for one in found["initContainers"]] == ["proxy"]
    runner = by_name(found["containers"], "runner")
    assert runner["workingDir"] == "/x"
    assert by_name(runner["env"], "A") == {"name": "A", "value": "1"}
    assert runner["command"] == ["agent"]
    volumes = [one["name"] for one in found["volumes"]]
    assert volumes == ["identity", "agent", "work", "shared-memory", "cache"]


def test_tolerations_are_added_and_other_lists_are_replaced() -> None:
    mine = {"key": "spot", "operator": "Exists"}
    overlay: dict[str, Any] = {
        "spec": {
            "tolerations": [mine],
            "containers": [
                {"name": "runner", "securityContext": {"capabilities": {"drop": ["X", "ALL"]}}}
            ],
        }
    }
    found = merged(template(), overlay)["spec"]
    assert found["tolerations"] == [*spec()["tolerations"], mine]
    runner = by_name(found["containers"], "runner")
    assert runner["securityContext"]["capabilities"]["drop"] == ["X", "ALL"]


def test_merging_changes_neither_the_pod_nor_the_overlay() -> None:
    pod, overlay = (
        template(),
        {"spec": {"containers": [{"name": "runner", "env": [{"name": "A"}]}]}},
    )
    before = deepcopy((pod, overlay))
    merged(pod, overlay)
    assert (pod, overlay) == before


def runner(**changes: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "runner", **changes}]}}


def prepare(**changes: Any) -> dict[str, Any]:
    """An overlay with an init container that ends."""
    return {"spec": sidecar(name="prepare", restartPolicy=None, **changes)}


CERTIFICATE = {"projected": {"sources": [{"podCertificate": {"keyType": "ED25519"}}]}}
RESTART = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}
TOKEN = {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}


@pytest.mark.parametrize(
    ("overlay", "named"),
    [
        ({"kind": "Job"}, "kind"),
        ({"metadata": {"name": "x"}}, "metadata.name"),
        ({"metadata": {"labels": {"gpu-runner-autoscaler/fleet": "x"}}}, "metadata.labels"),
        ({"metadata": {"annotations": {"gpu-runner-autoscaler/sku": "x"}}}, "metadata.annotations"),
        ({"metadata": {"labels": None}}, "metadata.labels"),
        ({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "false"}}}, "do-not-disrupt"),
        ({"spec": []}, "spec"),
        ({"spec": {"restartPolicy": "OnFailure"}}, "spec.restartPolicy"),
        ({"spec": {"automountServiceAccountToken": True}}, "spec.automountServiceAccountToken"),
        ({"spec": {"automountServiceAccountToken": None}}, "spec.automountServiceAccountToken"),
        ({"spec": {"serviceAccountName": "admin"}}, "spec.serviceAccountName"),
        ({"spec": {"hostNetwork": True}}, "spec.hostNetwork"),
        ({"spec": {"hostPID": True}}, "spec.hostPID"),
        ({"spec": {"hostIPC": True}}, "spec.hostIPC"),
        ({"spec": {"shareProcessNamespace": True}}, "spec.shareProcessNamespace"),
        ({"spec": {"nodeName": "n"}}, "spec.nodeName"),
        ({"spec": {"nodeSelector": {"kubernetes.io/arch": "arm64"}}}, "kubernetes.io/arch"),
        ({"spec": {"nodeSelector": None}}, "spec.nodeSelector"),
        ({"spec": {"volumes": [{"name": "identity", "emptyDir": {}}]}}, "spec.volumes[identity]"),
        (
            {"spec": {"volumes": [{"name": "agent", "emptyDir": {"medium": ""}}]}},
            "spec.volumes[agent]",
        ),
        ({"spec": {"volumes": [{"name": "t", **TOKEN}]}}, "spec.volumes[t]"),
        ({"spec": {"volumes": [{"name": "t", **CERTIFICATE}]}}, "spec.volumes[t]"),
        ({"spec": {"resourceClaims": [{"name": "gpu"}]}}, "spec.resourceClaims: is not allowed"),
        (
            prepare(restartPolicyRules=[RESTART]),
            "spec.initContainers[prepare].restartPolicyRules: is not allowed",
        ),
        (
            runner(restartPolicyRules=[RESTART]),
            "spec.containers[runner].restartPolicyRules: is not allowed",
        ),
        (
            {"spec": sidecar(restartPolicyRules=[RESTART])},
            "spec.initContainers[proxy].restartPolicyRules: is not allowed",
        ),
        ({"spec": {"ephemeralContainers": [{"name": "d"}]}}, "spec.ephemeralContainers"),
        (
            runner(env=[{"name": "RUNNER_AGENT_ROOT", "value": "/x"}]),
            "spec.containers[runner].env[RUNNER_AGENT_ROOT]: is not allowed",
        ),
        (
            runner(volumeMounts=[{"name": "x", "mountPath": "/run/runner-agent/"}]),
            "volumeMounts[/run/runner-agent/]: must not cover /run/runner-agent",
        ),
        (
            runner(volumeMounts=[{"name": "x", "mountPath": "//run/x/../runner-agent"}]),
            "must not cover /run/runner-agent",
        ),
        (
            runner(volumeMounts=[{"name": "x", "mountPath": "/run/runner-identity/token"}]),
            "volumeMounts[/run/runner-identity/token]: must not cover /run/runner-identity",
        ),
        ({"spec": {"volumes": [{"emptyDir": {}}]}}, "needs name"),
        ({"spec": {"containers": None}}, "spec.containers[runner]"),
        (runner(command=["sh"]), "spec.containers[runner].command"),
        (runner(args=["x"]), "spec.containers[runner].args"),
        (runner(resources={"limits": {"amd.com/gpu": "1"}}), "amd.com/gpu"),
        (runner(resources={"limits": None}), "amd.com/gpu"),
        (
            runner(resources={"limits": {"nvidia.com/mig-1g.10gb": "1"}}),
            "spec.containers[runner].resources.limits.nvidia.com/mig-1g.10gb: nothing would count it",
        ),
        (
            runner(resources={"limits": {"amd.com/cpx_nps4": "1"}}),
            "spec.containers[runner].resources.limits.amd.com/cpx_nps4: nothing would count it",
        ),
        (
            {
                "spec": {
                    "initContainers": [{"name": "s", "resources": {"limits": {"amd.com/gpu": 1}}}]
                }
            },
            "spec.initContainers[s].resources.limits.amd.com/gpu: nothing would count it",
        ),
        (
            runner(livenessProbe={"exec": {"command": ["true"]}}),
            "livenessProbe: must stay as it is",
        ),
        (runner(startupProbe={"exec": {"command": ["true"]}}), "startupProbe: must stay as it is"),
        (
            {"spec": sidecar(volumeMounts=[{"name": "identity", "mountPath": "/steal"}])},
            "only runner may have the pod's token",
        ),
        (
            prepare(volumeMounts=[{"name": "identity", "mountPath": "/steal"}]),
            "only runner may have the pod's token",
        ),
        (
            prepare(resources={"limits": {"vpc.amazonaws.com/efa": "1"}}),
            "spec.initContainers[prepare].resources.limits.vpc.amazonaws.com/efa: a restart of kubelet",
        ),
        (
            prepare(resources={"requests": {"example.com/nic": 1}}),
            "spec.initContainers[prepare].resources.requests.example.com/nic: a restart of kubelet",
        ),
        (
            runner(terminationMessagePolicy="File"),
            "spec.containers[runner].terminationMessagePolicy: must stay as it is",
        ),
        (runner(restartPolicy="Always"), "spec.containers[runner].restartPolicy"),
        (runner(volumeMounts=None), "volumeMounts"),
        (
            {
                "spec": {
                    "containers": [
                        {"name": "s", "volumeMounts": [{"name": "agent", "mountPath": "/a"}]}
                    ]
                }
            },
            "only runner may have the agent's files",
        ),
        (
            {"spec": {"containers": [{"name": "s", "image": "proxy:1"}]}},
            "spec.containers[s]: the pod would not end with its runner",
        ),
        (
            {"spec": {"terminationGracePeriodSeconds": 0}},
            "terminationGracePeriodSeconds: must stay",
        ),
        ({"spec": {"activeDeadlineSeconds": 60}}, "spec.activeDeadlineSeconds: is not allowed"),
        ({"spec": {"nodeSelector": "gpu"}}, "spec.nodeSelector: must be a mapping"),
        ({"spec": {"tolerations": "all"}}, "spec.tolerations: must be a list"),
        ({"spec": {"containers": "runner"}}, "spec.containers: must be a list"),
        ({"spec": {"containers": [{"name": ["runner"]}]}}, "spec.containers: each element needs"),
        ({"spec": {"volumes": [{"name": ["x"]}]}}, "spec.volumes: each element needs name"),
        (runner(resources="8"), "spec.containers[runner].resources: must be a mapping"),
        (runner(resources={"limits": "8"}), "resources.limits: must be a mapping"),
    ],
)
def test_an_overlay_that_breaks_a_rule_is_refused(overlay: dict[str, Any], named: str) -> None:
    with pytest.raises(OverlayError) as error:
        merged(template(), overlay)
    assert named in str(error.value)


def test_a_sidecar_may_have_devices_that_no_accelerator_is() -> None:
    device = {"resources": {"limits": {"vpc.amazonaws.com/efa": "1"}}}
    found = merged(template(), {"spec": sidecar(**device)})["spec"]
    assert found["initContainers"][0]["resources"] == device["resources"]


def test_pods_without_accelerators_need_no_toleration() -> None:
    found = pod_template(make_settings(), CPU_OPTION, make_order())["spec"]
    assert found["tolerations"] == []
    assert found["containers"][0]["resources"]["limits"] == {"cpu": "1", "memory": "1Gi"}
