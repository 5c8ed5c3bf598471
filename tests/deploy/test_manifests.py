"""The manifests fit the product and one another: ports, files, limits, times, rights."""

import re
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscaler.app.parts import FINISH_WITHIN
from autoscaler.app.preflight import load_for_service
from autoscaler.config.settings.scalars import parse_address
from autoscaler.controller.replicas.leading import RELEASE_WITHIN
from autoscaler.model.identifiers import Address
from autoscaler.providers.kubernetes.configuration import KubernetesSection
from autoscaler.providers.kubernetes.identity.ownership import FLEET, RUNNER_POD
from autoscaler.server.listening.listener import _LAST_ARRIVALS, _LAST_BYTES
from autoscaler.server.listening.settings import ServerSettings
from autoscaler.store.opening import is_shared
from tests.config.fleet_file import unintended
from tests.deploy.kustomization import Body, build, files_of
from tests.deploy.manifests import (
    COMPONENTS,
    KUBERNETES,
    NAME,
    OVERLAY,
    ROOT,
    container,
    container_ports,
    fleet,
    mounts,
    objects,
    of_kind,
    only,
    pod,
)

DOCUMENT = (ROOT / "docs" / "deploy.md").read_text()
SELECTOR = {"app.kubernetes.io/name": NAME}
CLUSTER_WIDE = {"Namespace", "ClusterRole", "ClusterRoleBinding"}
BASE = KUBERNETES / "base"
POD_OVERLAY = KUBERNETES / "overlays" / "runner-pods"
PODS = COMPONENTS / "runner-pods"
HOOKS = COMPONENTS / "container-hooks"
DOCKER = COMPONENTS / "docker-in-docker"
POSTGRESQL = COMPONENTS / "postgresql"
UNITS = {"Mi": 2**20, "Gi": 2**30}


def size(quantity: str) -> int:
    return int(quantity[:-2]) * UNITS[quantity[-2:]]


def test_every_file_is_part_of_a_kustomization() -> None:
    """Of an example, or of a component for runner pods."""
    used = files_of(OVERLAY) | files_of(POD_OVERLAY) | {KUBERNETES / "rbac" / "capacity.yaml"}
    used = used.union(*map(files_of, (PODS, HOOKS, DOCKER, POSTGRESQL)))
    assert {path.resolve() for path in used} == set(KUBERNETES.rglob("*.yaml"))


def test_objects_have_names_of_their_own_and_the_namespace_of_the_controller() -> None:
    names = [(one["kind"], one["metadata"]["name"]) for one in objects()]
    assert len(set(names)) == len(names)
    for one in objects():
        expected = None if one["kind"] in CLUSTER_WIDE else NAME
        assert one["metadata"].get("namespace") == expected, one["metadata"]["name"]


def test_the_fleet_yaml_of_the_example_can_be_served() -> None:
    configuration = load_for_service(OVERLAY / "fleet.yaml", files=False)
    assert configuration.settings.fleet == "first"
    assert unintended(configuration) == []


def test_the_controller_listens_on_the_ports_of_its_container() -> None:
    server = fleet()["server"]
    listen = {key: parse_address(server[key]) for key in ("listen", "webhook_listen")}
    assert {key: one.host for key, one in listen.items()} == dict.fromkeys(listen, "0.0.0.0")
    assert container_ports() == {
        "bootstrap": listen["listen"].port,
        "webhook": listen["webhook_listen"].port,
    }


def test_services_lead_to_the_ports_of_the_container() -> None:
    ports = container_ports()
    for service in of_kind("Service"):
        assert service["spec"]["selector"] == SELECTOR
        # Machines and webhooks must reach a controller that is not ready, since there is no other one.
        assert service["spec"]["publishNotReadyAddresses"] is True
        for port in service["spec"]["ports"]:
            assert port["targetPort"] == port["name"]
            assert port["port"] == ports[port["name"]]


def test_machines_outside_reach_the_port_of_the_public_url_and_nothing_else() -> None:
    [port] = only("Service", f"{NAME}-machines")["spec"]["ports"]
    assert fleet()["server"]["public_url"].endswith(f":{port['port']}")
    assert port["targetPort"] == "bootstrap"


def test_every_workload_object_selects_the_controller() -> None:
    assert only("StatefulSet")["spec"]["selector"]["matchLabels"] == SELECTOR
    assert only("StatefulSet")["spec"]["template"]["metadata"]["labels"] == SELECTOR
    assert only("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == SELECTOR
    for policy in of_kind("NetworkPolicy"):
        assert policy["spec"]["podSelector"]["matchLabels"] == SELECTOR


def test_two_controllers_never_use_one_store() -> None:
    workload = only("StatefulSet")["spec"]
    assert workload["replicas"] == 1
    assert workload["podManagementPolicy"] == "Parallel"
    assert "volumeClaimTemplates" not in workload
    [volume] = [one for one in pod()["volumes"] if one["name"] == "store"]
    claim = only("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]


def test_the_store_and_nothing_else_is_on_the_volume() -> None:
    store = Path(fleet()["store"].removeprefix("sqlite:///"))
    assert store.parent == mounts()["store"]
    writable = {m["name"] for m in container()["volumeMounts"] if not m.get("readOnly")}
    assert writable == {"store", "tmp"}


def replicas() -> dict[str, Body]:
    """The objects of several replicas by kind. Of policies, the one of replicas."""
    found = build(BASE, POSTGRESQL)
    assert "StatefulSet" not in {one["kind"] for one in found}
    return {one["kind"]: one for one in found}


def test_replicas_have_no_volume_and_one_more_starts_before_one_stops() -> None:
    found = replicas()
    assert "PersistentVolumeClaim" not in found
    workload = found["Deployment"]["spec"]
    assert workload["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert found["PodDisruptionBudget"]["spec"]["maxUnavailable"] == workload["replicas"] - 1
    spec = workload["template"]["spec"]
    [only_container] = spec["containers"]
    mounted = {one["name"] for one in only_container["volumeMounts"]}
    assert mounted == {one["name"] for one in spec["volumes"]} == mounts().keys() - {"store"}
    spread = {one["topologyKey"]: one for one in spec["topologySpreadConstraints"]}
    assert spread.keys() == {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}
    assert all(one["labelSelector"]["matchLabels"] == SELECTOR for one in spread.values())


def test_a_replica_stops_only_after_the_services_have_another_one() -> None:
    found = replicas()
    # The command of kubelet's `preStop`, in the image's Debian.
    spec = found["Deployment"]["spec"]["template"]["spec"]
    program, seconds = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert program == "sleep"
    settings = ServerSettings(Address("0.0.0.0", 8443))
    stops_within = _LAST_ARRIVALS + settings.shutdown + _LAST_BYTES + RELEASE_WITHIN
    assert spec["terminationGracePeriodSeconds"] >= int(seconds) + stops_within + 15
    everything = build(BASE, COMPONENTS / "machines-outside", POSTGRESQL)
    services = [one["spec"] for one in everything if one["kind"] == "Service"]
    assert [one["publishNotReadyAddresses"] for one in services] == [False, False]


def test_replicas_reach_one_another_where_they_say_and_the_database() -> None:
    found = replicas()
    policy = found["NetworkPolicy"]
    assert policy["metadata"]["name"] == f"{NAME}-replicas"
    [container] = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    variables = {one["name"]: one.get("value") for one in container["env"]}
    port = container_ports()["bootstrap"]
    assert variables == {"POD_IP": None, "AUTOSCALER_REPLICA_URL": f"https://$(POD_IP):{port}"}
    others = [{"podSelector": {"matchLabels": SELECTOR}}]
    opened = [{"protocol": "TCP", "port": "bootstrap"}]
    assert policy["spec"]["ingress"] == [{"from": others, "ports": opened}]
    to_replicas, to_database = policy["spec"]["egress"]
    assert to_replicas == {"to": others, "ports": [{"protocol": "TCP", "port": port}]}
    assert to_database["ports"] == [{"protocol": "TCP", "port": 5432}]
    assert {"cidr": "0.0.0.0/0"} not in [one["ipBlock"] for one in to_database["to"]]


def test_the_store_of_the_document_is_served_with_the_files_of_the_secret(tmp_path: Path) -> None:
    section = DOCUMENT.partition("## Several replicas")[2].partition("\n## ")[0]
    [line] = re.findall(r"^store: .*$", section, re.MULTILINE)
    files = set(re.findall(r"=(/[^&\s]+)", line))
    assert {Path(one).parent for one in files} == {mounts()["secrets"]}
    created = set(re.findall(r"--from-file=([\w.-]+)=", section))
    assert created == {Path(one).name for one in files}
    text = (OVERLAY / "fleet.yaml").read_text()
    (tmp_path / "fleet.yaml").write_text(re.sub(r"(?m)^store: .*$", line, text))
    configuration = load_for_service(tmp_path / "fleet.yaml", files=False)
    assert is_shared(configuration.store_url())
    assert unintended(configuration) == []


def files_in_fleet(value: Any) -> set[Path]:
    """The values of all keys that end with `_file`."""
    if isinstance(value, list):
        return set().union(*map(files_in_fleet, value))
    if not isinstance(value, dict):
        return set()
    found = {Path(v) for k, v in value.items() if str(k).endswith("_file")}
    return found.union(*map(files_in_fleet, value.values()))


def test_the_document_creates_every_secret_file_that_fleet_yaml_names() -> None:
    secrets = {
        volume["name"]: volume["secret"]["secretName"]
        for volume in pod()["volumes"]
        if "secret" in volume
    }
    commands = re.findall(r"create secret generic (\S+) (.*)", DOCUMENT.replace("\\\n", " "))
    created = {
        name: set(re.findall(r"--from-(?:file|literal)=([\w.-]+)=", arguments))
        for name, arguments in commands
    }
    needed: dict[str, set[str]] = {name: set() for name in secrets.values()}
    for file in files_in_fleet(fleet()):
        [volume] = [name for name in secrets if mounts()[name] == file.parent]
        needed[secrets[volume]].add(file.name)
    assert created == needed


def test_the_document_creates_every_secret_that_an_object_names() -> None:
    named = {one["secretName"] for ingress in of_kind("Ingress") for one in ingress["spec"]["tls"]}
    named |= {one["secret"]["secretName"] for one in pod()["volumes"] if "secret" in one}
    assert named == set(re.findall(r"create secret (?:generic|tls) (\S+)", DOCUMENT))


@pytest.mark.parametrize("overlay", [OVERLAY, POD_OVERLAY], ids=lambda one: one.name)
def test_the_commands_of_the_last_step_name_objects_of_both_overlays(overlay: Path) -> None:
    step = re.split(r"^\*\*\d\. ", DOCUMENT, flags=re.MULTILINE)[5].partition("\n## ")[0]
    general, _, outside = step.partition("For machines outside the cluster")
    objects = {(one["kind"].lower(), one["metadata"]["name"]) for one in build(overlay)}
    wanted = {tuple(one.split("/")) for one in re.findall(r"rollout status (\S+)", general)}
    assert wanted == {("statefulset", NAME)}
    wanted |= set(re.findall(r"get (service|ingress) (\S+)", general))
    # The StatefulSet's only pod.
    pods = set(re.findall(r"(?:logs|port-forward|exec) (\S+)", general))
    assert pods == {f"{NAME}-0"}
    assert wanted <= objects
    services = set(re.findall(r"get (service) (\S+)", outside))
    assert len(services) == 1
    assert (services <= objects) == (overlay == OVERLAY)


def test_the_controller_reads_the_fleet_yaml_of_the_config_map() -> None:
    command, option, path = container()["args"]
    assert (command, option) == ("serve", "-c")
    assert Path(path) == mounts()["fleet"] / "fleet.yaml"
    [volume] = [one for one in pod()["volumes"] if one["name"] == "fleet"]
    assert volume["configMap"]["name"] == only("ConfigMap")["metadata"]["name"]


def test_there_is_time_for_the_controller_to_stop() -> None:
    settings = ServerSettings(Address("0.0.0.0", 8443))
    stops_within = _LAST_ARRIVALS + settings.shutdown + _LAST_BYTES + FINISH_WITHIN
    assert pod()["terminationGracePeriodSeconds"] >= stops_within + 15


def test_a_drain_may_evict_the_controller() -> None:
    budget = only("PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] >= only("StatefulSet")["spec"]["replicas"]
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_the_memory_is_what_benchmarks_measured_and_some_more() -> None:
    """With 3,500 machines; the limit also has room for a boot wave and for GitHub's cached pages."""
    measured = (ROOT / "benchmarks" / "README.md").read_text()
    found = re.search(r"\| (\d+) MB \(AWS worker (\d+) MB\); (\d+) MB where all", measured)
    assert found is not None
    steady, worker, booting = (int(number) * 10**6 for number in found.groups())
    pages = re.search(
        r"keeps results and ETags in at most (\d+) MB", (ROOT / "docs/github.md").read_text()
    )
    assert pages is not None
    resources = container()["resources"]
    assert size(resources["requests"]["memory"]) >= steady + worker
    assert size(resources["limits"]["memory"]) >= booting + worker + int(pages[1]) * 10**6
    assert "cpu" not in resources["limits"]


def test_the_pod_passes_pod_security_restricted() -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted."""
    labels = only("Namespace")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    security = pod()["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] > 0
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    kinds = {key for volume in pod()["volumes"] for key in volume} - {"name"}
    assert kinds <= {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret"}


def test_the_secrets_can_be_read_by_the_group_of_the_controller_alone() -> None:
    modes = {v["secret"]["defaultMode"] for v in pod()["volumes"] if "secret" in v}
    assert modes == {0o440}
    assert pod()["securityContext"]["fsGroup"] == pod()["securityContext"]["runAsGroup"]


def test_without_components_nothing_may_connect_and_the_pod_has_no_token() -> None:
    found = {one["kind"]: one for one in build(BASE)}
    policy = found["NetworkPolicy"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policy
    ports = [(p["protocol"], p["port"]) for rule in policy["egress"] for p in rule["ports"]]
    assert ports == [("UDP", 53), ("TCP", 53), ("TCP", 443)]
    assert found["ServiceAccount"]["automountServiceAccountToken"] is False
    assert found["StatefulSet"]["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    ("component", "ports"),
    [
        ("machines-outside", ["bootstrap"]),
        ("prometheus-operator", ["bootstrap"]),
        ("webhooks-through-ingress", ["webhook"]),
    ],
)
def test_a_component_opens_one_port_to_named_peers(component: str, ports: list[str]) -> None:
    [policy] = [one for one in build(COMPONENTS / component) if one["kind"] == "NetworkPolicy"]
    [rule] = policy["spec"]["ingress"]
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert [port["port"] for port in rule["ports"]] == ports
    assert all(
        peer.keys() <= {"namespaceSelector", "ipBlock"} and any(peer.values())
        for peer in rule["from"]
    )
    assert {"cidr": "0.0.0.0/0"} not in [peer.get("ipBlock") for peer in rule["from"]]


def test_the_document_has_the_labels_with_which_namespaces_may_connect() -> None:
    labels = set()
    for policy in of_kind("NetworkPolicy"):
        for peer in policy["spec"].get("ingress", [{"from": []}])[0]["from"]:
            labels |= set(peer.get("namespaceSelector", {}).get("matchLabels", {}).items())
    assert labels == set(re.findall(r"kubectl label namespace \S+ ([\w./-]+)=(\w+)", DOCUMENT))


def test_prometheus_finds_one_service_and_its_files() -> None:
    spec = only("ServiceMonitor")["spec"]
    wanted = spec["selector"]["matchLabels"].items()
    chosen = [s for s in of_kind("Service") if wanted <= s["metadata"]["labels"].items()]
    assert [one["metadata"]["name"] for one in chosen] == [NAME]
    [endpoint] = spec["endpoints"]
    assert endpoint["port"] in [port["name"] for port in chosen[0]["spec"]["ports"]]
    token, authority = (
        endpoint["authorization"]["credentials"],
        endpoint["tlsConfig"]["ca"]["secret"],
    )
    volumes = {v["secret"]["secretName"]: v["name"] for v in pod()["volumes"] if "secret" in v}
    server = fleet()["server"]
    assert str(mounts()[volumes[token["name"]]] / token["key"]) == server["metrics_token_file"]
    assert str(mounts()[volumes[authority["name"]]] / authority["key"]) == server["tls"]["ca_file"]
    assert endpoint["tlsConfig"]["serverName"] == f"{NAME}.{NAME}.svc"


def test_the_ingress_leads_to_the_webhook_alone() -> None:
    [rule] = only("Ingress")["spec"]["rules"]
    [path] = rule["http"]["paths"]
    assert (path["path"], path["pathType"]) == ("/webhook", "Exact")
    assert path["backend"]["service"] == {"name": NAME, "port": {"name": "webhook"}}


def bindings(found: list[Body]) -> list[Body]:
    return [one for one in found if one["kind"].endswith(("Role", "RoleBinding"))]


def test_a_controller_of_machines_outside_the_cluster_has_no_rights_in_it() -> None:
    assert bindings(list(objects())) == []
    [account] = of_kind("ServiceAccount")
    assert pod()["serviceAccountName"] == account["metadata"]["name"]


def test_with_runner_pods_the_controller_has_the_shipped_rights_alone() -> None:
    """tests/cluster compares these rights with the requests of the provider."""
    found = build(BASE, PODS)
    [account] = [one["metadata"] for one in found if one["kind"] == "ServiceAccount"]
    subject = {key: account[key] for key in ("name", "namespace")} | {"kind": "ServiceAccount"}
    for one in bindings(found):
        if one["kind"].endswith("Binding"):
            assert one["subjects"] == [subject]
    rules = [(one["metadata"], one["rules"]) for one in found if "rules" in one]
    assert rules == [
        (o["metadata"], o["rules"]) for o in build(KUBERNETES / "rbac") if "rules" in o
    ]
    assert all("secrets" not in rule["resources"] for _, ruled in rules for rule in ruled)
    [workload] = [one for one in found if one["kind"] == "StatefulSet"]
    assert workload["spec"]["template"]["spec"]["automountServiceAccountToken"] is True


def test_a_container_mode_opens_the_namespace_of_the_runner_pods_alone() -> None:
    before = build(BASE, PODS)
    for component, level in ((HOOKS, "baseline"), (DOCKER, "privileged")):
        found = build(BASE, PODS, component)
        changed = [one for one in found if one not in before]
        [namespace] = [one for one in changed if one["kind"] == "Namespace"]
        assert namespace["metadata"] == {
            "name": "runners",
            "labels": {"pod-security.kubernetes.io/enforce": level},
        }
        changed.remove(namespace)
        assert all(one["metadata"]["namespace"] == "runners" for one in changed)
        assert {one["kind"] for one in changed} <= {"ServiceAccount", "Role", "RoleBinding"}
        bound = [one["subjects"] for one in changed if one["kind"] == "RoleBinding"]
        expected = {"kind": "ServiceAccount", "name": "container-hooks", "namespace": "runners"}
        assert bound in ([], [[expected]])


def test_the_example_of_runner_pods_can_be_served_in_the_cluster() -> None:
    configuration = load_for_service(POD_OVERLAY / "fleet.yaml", files=False)
    assert unintended(configuration) == []
    found = build(POD_OVERLAY)
    [service] = [one["metadata"] for one in found if one["kind"] == "Service"]
    host = f"{service['name']}.{service['namespace']}.svc"
    assert configuration.settings.server.public_url == f"https://{host}:8443"
    assert f"DNS:{host}" in DOCUMENT
    [provider] = configuration.settings.providers.values()
    section = provider.section
    assert isinstance(section, KubernetesSection)
    # Without a kubeconfig, the provider uses the token of its pod.
    assert (section.context, section.kubeconfig) == (None, None)
    assert {one["metadata"]["name"] for one in found if one["kind"] == "Namespace"} == {
        NAME,
        section.namespace,
    }
    assert "ServiceMonitor" in {one["kind"] for one in found}


def test_both_examples_have_the_same_server_and_secrets() -> None:
    one, other = (
        yaml.safe_load((folder / "fleet.yaml").read_text()) for folder in (OVERLAY, POD_OVERLAY)
    )
    del one["server"]["public_url"], other["server"]["public_url"]
    for key in ("github", "server", "store"):
        assert one[key] == other[key]


def test_runner_pods_reach_the_bootstrap_port_and_the_controller_the_api_server() -> None:
    [policy] = [
        one["spec"] for one in build(BASE, PODS) if one["metadata"]["name"] == f"{NAME}-pods"
    ]
    [rule] = policy["ingress"]
    [peer] = rule["from"]
    assert [port["port"] for port in rule["ports"]] == ["bootstrap"]
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "runners"}
    assert peer["podSelector"]["matchExpressions"] == [{"key": FLEET, "operator": "Exists"}]
    assert [port["port"] for port in policy["egress"][0]["ports"]] == [443, 6443]


def egress_of(label: str) -> Body:
    """The policy for the pods of the namespace `runners` that have a label."""
    [policy] = [
        one["spec"]
        for one in build(BASE, PODS)
        if one["kind"] == "NetworkPolicy"
        and one["metadata"]["namespace"] == "runners"
        and one["spec"]["podSelector"]
        == {"matchExpressions": [{"key": label, "operator": "Exists"}]}
    ]
    assert isinstance(policy, dict)
    return policy


def reaches(policy: Body, address: str, port: int, protocol: str = "TCP") -> bool:
    """Whether a policy lets its pods connect to an address outside the cluster."""
    wanted = ip_address(address)

    def matches(peer: Body) -> bool:
        block = peer.get("ipBlock", {"cidr": "255.255.255.255/32"})
        return wanted in ip_network(block["cidr"]) and not any(
            wanted in ip_network(one) for one in block.get("except", [])
        )

    return any(
        any(map(matches, rule["to"]))
        and ("ports" not in rule or {"protocol": protocol, "port": port} in rule["ports"])
        for rule in policy["egress"]
    )


@pytest.mark.case(
    "a job asks the cloud's metadata service for the credentials of its node: the shipped policy keeps it out",
    topic="Kubernetes",
    source="EKS: best practices for IAM",
)
@pytest.mark.parametrize("label", [FLEET, RUNNER_POD])
def test_jobs_reach_everything_but_the_credentials_of_their_node(label: str) -> None:
    policy = egress_of(label)
    assert policy["policyTypes"] == ["Egress"]
    for address in ("169.254.169.254", "169.254.170.2", "169.254.170.23"):
        assert not reaches(policy, address, 80)
    for address in ("fd00:ec2::254", "fd00:ec2::23", "fe80::1"):
        assert not reaches(policy, address, 80)
    assert not reaches(policy, "169.254.20.10", 80)
    assert reaches(policy, "169.254.20.10", 53, "UDP")
    for address in ("140.82.112.3", "10.0.0.1", "2606:50c0:8000::153", "fd12::1"):
        assert reaches(policy, address, 443)
        assert reaches(policy, address, 8443)
    assert {"namespaceSelector": {}} in policy["egress"][0]["to"]


def test_the_document_shows_the_rules_to_add() -> None:
    """Kubernetes and Cilium would refuse nothing of them, and each opens one port."""
    text = (KUBERNETES.parents[1] / "docs" / "kubernetes.md").read_text()
    section = text.partition("## The metadata service")[2].partition("\n## ")[0]
    bodies = [yaml.safe_load(one) for one in re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)]
    by_kind = {one["kind"]: one for one in bodies}
    assert by_kind.keys() == {"NetworkPolicy", "CiliumNetworkPolicy"}
    policy = by_kind["NetworkPolicy"]["spec"]
    for address in ("169.254.170.23", "fd00:ec2::23"):
        assert reaches(policy, address, 80)
        assert not reaches(policy, address, 443)
    assert not reaches(policy, "169.254.169.254", 80)
    rules = by_kind["CiliumNetworkPolicy"]["spec"]["egress"]
    entities = {
        (entity, one["port"])
        for rule in rules
        for entity in rule["toEntities"]
        for ports in rule["toPorts"]
        for one in ports["ports"]
    }
    assert entities == {
        ("host", "53"),
        ("host", "80"),
        ("kube-apiserver", "443"),
        ("kube-apiserver", "6443"),
    }


def test_a_change_of_fleet_yaml_restarts_the_controller() -> None:
    """Kustomize adds a hash to the name of a generated ConfigMap, unless an option turns it off."""
    body = yaml.safe_load((OVERLAY / "kustomization.yaml").read_text())
    assert [one["name"] for one in body["configMapGenerator"]] == [NAME]
    assert "generatorOptions" not in body
    assert "options" not in body["configMapGenerator"][0]
