"""The chart in deploy/helm: its objects are those of deploy/kubernetes, and every value has an effect."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.helm import CHART, HelmError, helm, kustomized, rendered, write_overlay
from tests.deploy.kustomization import Body, build
from tests.deploy.manifests import COMPONENTS, KUBERNETES, NAME, OVERLAY, ROOT

AFTER_PODS = ("container-hooks", "docker-in-docker")
"""Components that patch the namespace of runner-pods."""

DOCUMENT = (ROOT / "docs" / "deploy.md").read_text()
FLEET = {"fleet": "fleet: first\n"}
OPENED: dict[str, Any] = {
    "machinesOutside": {"enabled": True},
    "webhooks": {"enabled": True, "host": "webhooks.example.com"},
    "prometheusOperator": {"enabled": True},
}
PODS: dict[str, Any] = {"runnerPods": {"enabled": True}}


def pods_in(*namespaces: dict[str, Any]) -> dict[str, Any]:
    return {"runnerPods": {"enabled": True, "namespaces": list(namespaces)}}


SHARED: dict[str, Any] = {
    "fleet": "fleet: first\nstore: postgresql://autoscaler@db.internal/autoscaler\n",
    "postgresql": {"enabled": True},
}


KEPT = {("PersistentVolumeClaim", f"{NAME}-store"), ("Namespace", "runners")}
"""What `helm uninstall` keeps. Kustomize has no such command."""

Key = tuple[str, str, str | None]
Objects = dict[Key, Body]


def by_name(found: list[Body]) -> Objects:
    """Objects by kind, name and namespace, with no hash in the name of the ConfigMap."""
    text = json.dumps(found)
    for name in {one["metadata"]["name"] for one in found if one["kind"] == "ConfigMap"}:
        text = text.replace(f'"{name}"', f'"{NAME}"')
    result: Objects = {}
    for body in json.loads(text):
        metadata = body["metadata"]
        key = (body["kind"], metadata["name"], metadata.get("namespace"))
        assert key not in result
        result[key] = body
    return result


def comparable(chart: list[Body]) -> Objects:
    """Objects of the chart without the annotation of Helm, which exactly those of `KEPT` have."""
    found = by_name(chart)
    for key, body in found.items():
        metadata = body["metadata"]
        policy = metadata.get("annotations", {}).pop("helm.sh/resource-policy", None)
        assert policy == ("keep" if key[:2] in KEPT else None), key
        if metadata.get("annotations") == {}:
            del metadata["annotations"]
    return found


def of_kustomize(found: list[Body]) -> Objects:
    """Objects of a kustomization without the namespace of the release, which an operator creates."""
    return {key: one for key, one in by_name(found).items() if key[:2] != ("Namespace", NAME)}


@pytest.mark.parametrize(
    ("components", "resources", "values"),
    [
        ((), (), {}),
        (
            ("machines-outside", "webhooks-through-ingress", "prometheus-operator"),
            (),
            OPENED,
        ),
        (("runner-pods",), (), PODS),
        (("runner-pods",), ("capacity",), {"runnerPods": {"enabled": True, "capacity": True}}),
        (
            ("runner-pods", "container-hooks"),
            (),
            pods_in({"name": "runners", "containerHooks": True}),
        ),
        (
            ("runner-pods", "docker-in-docker"),
            (),
            pods_in({"name": "runners", "podSecurity": "privileged"}),
        ),
        (("postgresql",), (), SHARED),
        (
            (
                "machines-outside",
                "webhooks-through-ingress",
                "prometheus-operator",
                "runner-pods",
                "postgresql",
            ),
            (),
            OPENED | PODS | SHARED,
        ),
    ],
    ids=[
        "alone",
        "opened",
        "pods",
        "pods-and-capacity",
        "container-hooks",
        "docker-in-docker",
        "postgresql",
        "postgresql-and-all",
    ],
)
def test_the_chart_has_the_objects_of_the_kustomization(
    tmp_path: Path,
    components: tuple[str, ...],
    resources: tuple[str, ...],
    values: dict[str, Any],
) -> None:
    values = FLEET | values
    write_overlay(tmp_path, "base", components=components, fleet=values["fleet"])
    expected = of_kustomize(kustomized(tmp_path))
    if resources:
        expected |= by_name(list(_capacity()))
    found = comparable(rendered(values))
    assert found.keys() == expected.keys()
    for key in expected:
        assert found[key] == expected[key]


def _capacity() -> list[Body]:
    return list(yaml.safe_load_all((KUBERNETES / "rbac" / "capacity.yaml").read_text()))


@pytest.mark.parametrize(
    "components",
    [
        (),
        *((path.name,) for path in sorted(COMPONENTS.iterdir()) if path.name not in AFTER_PODS),
        *(("runner-pods", name) for name in AFTER_PODS),
    ],
    ids=lambda names: "-".join(names) or "base",
)
def test_the_renderer_of_the_other_tests_builds_what_kustomize_builds(
    tmp_path: Path, components: tuple[str, ...]
) -> None:
    write_overlay(tmp_path, "base", components=components)
    assert by_name(build(tmp_path)) == by_name(kustomized(tmp_path))


@pytest.mark.parametrize("overlay", ["example", "runner-pods"])
def test_the_examples_are_built_by_kustomize(overlay: str) -> None:
    folder = KUBERNETES / "overlays" / overlay
    assert by_name(build(folder)) == by_name(kustomized(folder))


def find_value(found: Any, wanted: Any) -> bool:
    """Whether an object has this value, or these entries, somewhere."""
    if found == wanted:
        return True
    if isinstance(found, dict):
        if isinstance(wanted, dict) and wanted and wanted.items() <= found.items():
            return True
        return any(find_value(one, wanted) for one in found.values())
    return isinstance(found, list) and any(find_value(one, wanted) for one in found)


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ({"image": {"repository": "r.example/a", "tag": "7"}}, "StatefulSet", "r.example/a:7"),
        ({"secret": "other"}, "StatefulSet", {"secretName": "other"}),
        ({"secret": "other"}, "ServiceMonitor", {"name": "other", "key": "metrics-token"}),
        ({"tlsSecret": "other"}, "StatefulSet", {"secretName": "other"}),
        ({"tlsSecret": "other"}, "ServiceMonitor", {"name": "other", "key": "ca.crt"}),
        ({"serviceAccount": {"annotations": {"a": "b"}}}, "ServiceAccount", {"a": "b"}),
        ({"env": [{"name": "A", "value": "b"}]}, "StatefulSet", {"name": "A", "value": "b"}),
        ({"resources": {"limits": {"memory": "2Gi"}}}, "StatefulSet", {"memory": "2Gi"}),
        ({"nodeSelector": {"a": "b"}}, "StatefulSet", {"nodeSelector": {"a": "b"}}),
        ({"tolerations": [{"key": "a"}]}, "StatefulSet", {"tolerations": [{"key": "a"}]}),
        ({"store": {"size": "1Gi"}}, "PersistentVolumeClaim", {"storage": "1Gi"}),
        ({"store": {"storageClass": "s"}}, "PersistentVolumeClaim", {"storageClassName": "s"}),
        ({"machinesOutside": {"annotations": {"a": "b"}}}, "Service", {"a": "b"}),
        (
            {"machinesOutside": {"sources": ["10.1.0.0/16"]}},
            "NetworkPolicy",
            {"cidr": "10.1.0.0/16"},
        ),
        ({"webhooks": {"host": "a.example"}}, "Ingress", {"hosts": ["a.example"]}),
        ({"webhooks": {"ingressClass": "nginx"}}, "Ingress", {"ingressClassName": "nginx"}),
        ({"webhooks": {"tlsSecret": "other"}}, "Ingress", {"secretName": "other"}),
        ({"webhooks": {"annotations": {"a": "b"}}}, "Ingress", {"a": "b"}),
        (
            {"runnerPods": {"namespaces": [{"name": "a"}, {"name": "b"}]}},
            "NetworkPolicy",
            {"kubernetes.io/metadata.name": "b"},
        ),
        (
            {"runnerPods": {"namespaces": [{"name": "a", "podSecurity": "baseline"}]}},
            "Namespace",
            {"pod-security.kubernetes.io/enforce": "baseline"},
        ),
        (SHARED, "Deployment", {"replicas": 2}),
        (SHARED | {"postgresql": {"enabled": True, "replicas": 3}}, "Deployment", {"replicas": 3}),
        (SHARED | {"env": [{"name": "A", "value": "b"}]}, "Deployment", {"name": "A"}),
        (
            SHARED | {"postgresql": {"enabled": True, "port": 6432}},
            "NetworkPolicy",
            {"protocol": "TCP", "port": 6432},
        ),
        (
            SHARED | {"postgresql": {"enabled": True, "peers": [{"podSelector": {"a": "b"}}]}},
            "NetworkPolicy",
            {"to": [{"podSelector": {"a": "b"}}]},
        ),
    ],
    ids=str,
)
def test_every_value_has_an_effect(values: dict[str, Any], kind: str, expected: Any) -> None:
    everything = FLEET | OPENED | PODS
    for key, value in values.items():
        both = isinstance(value, dict) and isinstance(everything.get(key), dict)
        everything = everything | {key: everything[key] | value if both else value}
    [*found] = [one for one in rendered(everything) if one["kind"] == kind]
    assert any(find_value(one, expected) for one in found)
    before = [one for one in rendered(FLEET | OPENED | PODS) if one["kind"] == kind]
    assert not any(find_value(one, expected) for one in before)


def test_a_namespace_that_exists_gets_the_rights_alone() -> None:
    found = rendered(FLEET | pods_in({"name": "a"}, {"name": "b", "create": False}))
    assert [one["metadata"]["name"] for one in found if one["kind"] == "Namespace"] == ["a"]
    roles = [one["metadata"]["namespace"] for one in found if one["kind"] == "Role"]
    assert roles == ["a", "b"]


def test_a_change_of_fleet_yaml_restarts_the_controller() -> None:
    names = []
    for text in ("fleet: first\n", "fleet: second\n"):
        found = rendered({"fleet": text})
        [config] = [one for one in found if one["kind"] == "ConfigMap"]
        assert config["data"] == {"fleet.yaml": text}
        [workload] = [one for one in found if one["kind"] == "StatefulSet"]
        [volume] = [
            one for one in workload["spec"]["template"]["spec"]["volumes"] if "configMap" in one
        ]
        assert volume["configMap"]["name"] == config["metadata"]["name"]
        names.append(config["metadata"]["name"])
    assert len(set(names)) == 2


def test_two_releases_share_no_name() -> None:
    everything = SHARED | OPENED | PODS
    first = by_name(rendered(everything))
    second = rendered(
        everything | pods_in({"name": "others"}),
        release="second",
        namespace="second",
    )
    assert not first.keys() & by_name(second).keys()
    assert not any(find_value(one, NAME) for one in second if one["kind"] == "NetworkPolicy")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, "fleet is missing: --set-file fleet=fleet.yaml"),
        (FLEET | {"webhooks": {"enabled": True}}, "webhooks.host is missing"),
        (FLEET | {"webhook": {}}, "additional properties 'webhook' not allowed"),
        (FLEET | {"store": {"unknown": "1Gi"}}, "additional properties 'unknown' not allowed"),
        (
            FLEET | pods_in({"name": NAME}),
            "gives access to its Secrets",
        ),
        (
            FLEET | pods_in({"name": "a", "podSecurity": "none"}),
            "value must be one of 'restricted', 'baseline', 'privileged'",
        ),
        (SHARED | FLEET, "`store` in fleet.yaml is not postgresql://USER@HOST/DATABASE"),
        (SHARED | {"postgresql": {"replicas": 0}}, "minimum"),
    ],
    ids=["fleet", "host", "unknown", "misspelt", "own-namespace", "level", "sqlite", "replicas"],
)
def test_wrong_values_are_refused_with_the_reason(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(HelmError, match=re.escape(reason)):
        rendered(values)


def test_the_values_and_the_command_of_the_document_are_those_of_the_chart() -> None:
    values, *_ = re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.DOTALL)
    [command] = re.findall(r"^helm upgrade (.*?)\n```", DOCUMENT, re.MULTILINE | re.DOTALL)
    words = command.replace("\\\n", " ").split()
    assert words[1:3] == [NAME, str(CHART.relative_to(ROOT))]
    fleet = str(OVERLAY / "fleet.yaml")
    options = [word if word != "fleet=fleet.yaml" else f"fleet={fleet}" for word in words[3:]]
    place = options.index("--values")
    del options[place : place + 2]
    found = helm("template", NAME, CHART, *options, values=yaml.safe_load(values))
    kinds = {one["kind"] for one in yaml.safe_load_all(found)}
    assert {"Ingress", "ServiceMonitor", "ConfigMap"} <= kinds


def test_helm_lint_finds_nothing() -> None:
    for values in (FLEET, SHARED):
        everything = values | OPENED | PODS
        assert "0 chart(s) failed" in helm("lint", "--strict", CHART, values=everything)
