"""How many accelerators of the nodes are free, and how quantities are read."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from autoscaler.model import events as e
from autoscaler.model.catalogue import Architecture, CapacityType, LaunchOption
from autoscaler.model.identifiers import SkuName
from autoscaler.model.plan import Launch
from autoscaler.providers.kubernetes.capacity.accelerators import Usage, free_units, known_of
from autoscaler.providers.kubernetes.listing.machines import offering
from autoscaler.providers.kubernetes.settings import Accelerator, KubernetesSettings
from autoscaler.providers.kubernetes.values.quantities import quantity
from tests.ledger.builders import World
from tests.planner.fleets import catalogue, sku
from tests.providers.kubernetes_pods import OPTION, make_pod, make_settings, with_changes
from tests.providers.node_affinities import label

KEY = "cluster/amd.com/gpu{accelerator=mi300x}"


def node(name: str, units: str = "8", **changes: Any) -> dict[str, Any]:
    labels = {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "accelerator": "mi300x",
        **changes.get("labels", {}),
    }
    ready = {"type": "Ready", "status": changes.get("ready", "True")}
    spec = {key: changes[key] for key in ("taints", "unschedulable") if key in changes}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": {"amd.com/gpu": units}, "conditions": [ready]},
    }


def own(on: str, phase: str = "Running") -> dict[str, Any]:
    """A pod of the fleet, with two accelerators."""
    found = make_pod({"phase": phase})
    return {**found, "spec": {**found["spec"], "nodeName": on}}


def pod(on: str, units: str, phase: str = "Running") -> dict[str, Any]:
    """A pod of others."""
    container = {"name": "c", "resources": {"limits": {"amd.com/gpu": units}}}
    return {
        "metadata": {"namespace": "others"},
        "spec": {"nodeName": on, "containers": [container], "initContainers": [container]},
        "status": {"phase": phase},
    }


def counted(
    settings: KubernetesSettings, nodes: list[dict[str, Any]], pods: list[dict[str, Any]]
) -> dict[str, int]:
    used = Usage(settings)
    for one in pods:
        used.add([one])
    return free_units(settings, [known_of(one) for one in nodes], used)


def free(nodes: list[dict[str, Any]], pods: list[dict[str, Any]] | None = None) -> int:
    return counted(make_settings(), nodes, pods or [])[KEY]


def test_only_accelerators_have_a_number() -> None:
    assert set(counted(make_settings(), [], [])) == {KEY}


def test_the_usable_nodes_that_the_selector_matches_count() -> None:
    nodes = [
        node("a"),
        node("b", labels={"accelerator": "mi250"}),
        node("c", labels={"kubernetes.io/arch": "arm64"}),
        node("d", ready="False"),
        node("e", unschedulable=True),
    ]
    assert free(nodes) == 8


@pytest.mark.parametrize(
    ("taint", "units"),
    [
        ({"key": "amd.com/gpu", "value": "present", "effect": "NoSchedule"}, 8),
        ({"key": "amd.com/gpu", "effect": "NoExecute"}, 0),
        ({"key": "other", "effect": "NoSchedule"}, 0),
        ({"key": "other", "effect": "PreferNoSchedule"}, 8),
    ],
)
def test_a_taint_that_the_pods_do_not_tolerate_excludes_a_node(
    taint: dict[str, str], units: int
) -> None:
    assert free([node("a", taints=[taint])]) == units


def test_usage_by_others_is_subtracted_and_the_fleets_own_is_not() -> None:
    pods = [
        pod("a", "3"),
        own("a"),
        pod("a", "4", phase="Succeeded"),
        pod("elsewhere", "5"),
    ]
    # Each pod has two.
    assert free([node("a"), node("b", "4")], pods) == 4 + 4


def test_the_pods_of_the_fleets_other_providers_in_a_cluster_are_those_of_others() -> None:
    """Their provider has another namespace. The ledger counts them against that provider's quota."""
    running, lost = own("a"), own("lost")
    running["metadata"]["namespace"] = lost["metadata"]["namespace"] = "of-the-other"
    assert free([node("a")], [running, lost]) == 6


def test_the_pods_of_another_quota_on_the_same_nodes_are_those_of_others() -> None:
    """The ledger counts each pod against one quota, and the selectors of two quotas may match the same node."""
    anywhere = with_changes(OPTION, sku=SkuName("anywhere"), node_selector={})
    settings = make_settings(options={(OPTION.sku, 0): OPTION, (anywhere.sku, 0): anywhere})
    free_of = counted(settings, [node("a")], [own("a")])
    assert free_of == {KEY: 8, "cluster/amd.com/gpu": 6}


@pytest.mark.case(
    "two nodes have four free accelerators each: no pod with eight fits on one of them",
    topic="Kubernetes",
    source="Kubernetes: Assigning Pods to Nodes",
)
def test_a_pod_gets_its_accelerators_from_one_node() -> None:
    eight = with_changes(OPTION, accelerator=Accelerator("amd.com/gpu", 8))
    nodes = [node("a"), node("b"), node("c")]
    taken = [pod("a", "4"), pod("b", "4")]
    assert counted(make_settings(options={(OPTION.sku, 0): eight}), nodes, taken) == {KEY: 8}
    # A smaller pod can use what is left.
    options = {
        (OPTION.sku, 0): eight,
        (SkuName("two"), 0): with_changes(OPTION, sku=SkuName("two")),
    }
    assert counted(make_settings(options=options), nodes, taken) == {KEY: 16}


@pytest.mark.case(
    "a node is lost: its deleted pods stay until the node is deleted, and take no room from other nodes",
    topic="Kubernetes",
    source="Kubernetes: Nodes, and Pod garbage collection",
)
@pytest.mark.parametrize(
    "lost", [[node("b", ready="Unknown")], [node("b", unschedulable=True)], []]
)
def test_the_fleets_own_pods_on_a_lost_node_take_nothing_from_other_nodes(
    lost: list[dict[str, Any]],
) -> None:
    """The ledger subtracts these pods, because they still exist."""
    pods = [own("b"), own("b", "Failed"), own("a", "Pending"), make_pod()]
    assert free([node("a"), *lost], pods) == 8 + 2


@pytest.mark.parametrize("arm_first", [True, False])
def test_launch_options_that_share_a_quota_count_the_nodes_of_each(arm_first: bool) -> None:
    arm = with_changes(OPTION, sku=SkuName("arm"), arch=Architecture.ARM64)
    options = {(OPTION.sku, 0): OPTION, (arm.sku, 0): arm}
    if arm_first:
        options = dict(reversed(options.items()))
    nodes = [node("x64"), node("arm64", "4", labels={"kubernetes.io/arch": "arm64"})]
    assert counted(make_settings(options=options), nodes, []) == {KEY: 8 + 4}


@pytest.mark.parametrize(
    ("overlay", "units"),
    [
        ({}, 0),
        ({"tolerations": [{"key": "team", "value": "ml", "effect": "NoSchedule"}]}, 8),
        ({"tolerations": [{"operator": "Exists"}], "nodeSelector": {"rack": "1"}}, 8),
        ({"tolerations": [{"operator": "Exists"}], "nodeSelector": {"rack": "2"}}, 0),
        ({"tolerations": [{"operator": "Exists"}], "nodeSelector": {"rack": None}}, 8),
        ({"tolerations": [{"operator": "Exists"}], "affinity": label("rack", "In", "1")}, 8),
        ({"tolerations": [{"operator": "Exists"}], "affinity": label("rack", "Gt", "1")}, 0),
    ],
)
def test_the_selector_tolerations_and_affinity_of_an_overlay_decide_which_nodes_count(
    overlay: dict[str, Any], units: int
) -> None:
    option = with_changes(OPTION, overlay={"spec": overlay})
    taint = {"key": "team", "value": "ml", "effect": "NoSchedule"}
    nodes = [node("a", labels={"rack": "1"}, taints=[taint])]
    assert counted(make_settings(options={(OPTION.sku, 0): option}), nodes, []) == {KEY: units}


def test_the_planner_launches_no_more_pods_than_fit_and_says_why_the_others_wait() -> None:
    settings = make_settings()
    pods_of_two = offering(settings, OPTION)
    pool = LaunchOption(settings.name, (CapacityType.ON_DEMAND,), (pods_of_two,))
    world = World(catalogue(replace(sku(), launch_options=(pool,))))
    world.do(e.MachinesListed, settings.name, world.now, True, ())
    world.queue(1, 2, 3, 4, 5)
    nodes, others = [node("a"), node("b", "4")], [pod("a", "3")]
    free_now = tuple(counted(settings, nodes, others).items())
    assert free_now == ((KEY, 8),)
    world.do(e.QuotasRead, settings.name, free_now)
    assert sum(launch.count for launch in world.intents(Launch)) == 4
    reasons = {run.message for runs in world.plan().waiting.values() for run in runs}
    assert f"the quota {KEY} is used up" in reasons
    world.do(e.QuotasRead, settings.name, ((KEY, 10),))
    assert sum(launch.count for launch in world.intents(Launch)) == 5


def test_a_sidecar_uses_its_accelerators_beside_the_containers_after_it() -> None:
    def container(units: str, **more: str) -> dict[str, Any]:
        return {"resources": {"limits": {"amd.com/gpu": units}}, **more}

    of_others = pod("a", "1")
    sidecar = container("2", restartPolicy="Always")
    of_others["spec"]["initContainers"] = [container("4"), sidecar]
    assert free([node("a")], [of_others]) == 4
    of_others["spec"]["initContainers"] = [sidecar, container("4")]
    assert free([node("a")], [of_others]) == 8 - (2 + 4)
    of_others["spec"]["initContainers"] = [sidecar, sidecar]
    # An odd one is left, and each pod has two.
    assert free([node("a")], [of_others]) == 8 - (2 + 2 + 1) - 1


def test_a_node_that_is_used_up_takes_nothing_from_others() -> None:
    assert free([node("a"), node("b")], [pod("a", "9")]) == 8


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("14", "14"),
        ("500m", "0.5"),
        ("56Gi", str(56 * 2**30)),
        ("1k", "1000"),
        ("1.5Ki", "1536"),
        ("2E", "2000000000000000000"),
        ("12e3", "12000"),
        ("12E3", "12000"),
        ("1e-3", "0.001"),
        ("1Ei", str(2**60)),
        (" +.5Gi ", str(2**29)),
    ],
)
def test_quantities(text: str, value: str) -> None:
    assert quantity(text) == Decimal(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1Gb",
        "-1",
        "nan",
        "inf",
        "1 Gi i",
        "Gi",
        "4 Gi",
        "1_0",
        "٣",
        "1e999999999",
        "1E9999999999",
        "12e",
        "1ke3",
        "12em",
        "1e3k",
    ],
)
def test_malformed_quantities_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        quantity(text)
