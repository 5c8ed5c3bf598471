"""The lab's kubelet: it runs a pod's containers as processes, and reports them as a real kubelet does."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from autoscaler.controller.ports.provider import ProviderError
from lab.kubernetes.admin import Administrator, accepts_pods
from lab.kubernetes.containers import Runtime
from lab.kubernetes.kubelet import Kubelet, KubeletFailedError
from tests.cluster.conftest import Place, until
from tests.cluster.test_kubernetes_watch import new_api

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCALE = 20.0
HANDLES = "trap 'echo stopped; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
IGNORES = "echo ready; while :; do sleep 0.05; done"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that other users may enter: pytest's own are closed to them."""
    made = Path(tempfile.mkdtemp(prefix="kubelet-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def kubelet(admin: Administrator, folder: Path) -> AsyncIterator[Kubelet]:
    async with Kubelet(admin, Runtime(folder, SCALE), SCALE) as made:
        await made.add_node(
            "processes", {"cpu": "64", "example.com/nic": "8"}, {"pool": "processes"}
        )
        yield made


def container(name: str, script: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "image": "registry.example/lab:1",
        "command": ["sh", "-c", script],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        **more,
    }


def pod(place: Place, name: str, init: str, main: str, grace: int = 30) -> dict[str, Any]:
    """A pod with an init container that has a token, a container, and a volume that both share.

    `grace` is in lab seconds.
    """
    shared = {"name": "shared", "mountPath": "/run/shared"}
    token = {"serviceAccountToken": {"audience": "a", "expirationSeconds": 600, "path": "token"}}
    identity = {"name": "identity", "mountPath": "/run/identity"}
    return {
        "metadata": {"name": name, "namespace": place.name},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": grace,
            "nodeSelector": {"pool": "processes"},
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1001,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "initContainers": [container("first", init, volumeMounts=[shared, identity])],
            "containers": [container("second", main, volumeMounts=[shared])],
            "volumes": [
                {"name": "shared", "emptyDir": {"medium": "Memory"}},
                {"name": "identity", "projected": {"sources": [token]}},
            ],
        },
    }


async def phase(place: Place, kubelet: Kubelet, name: str, *phases: str) -> dict[str, Any]:
    """Return the pod once it is in one of these phases."""

    def holds(one: dict[str, Any]) -> bool:
        kubelet.check()
        return one["status"]["phase"] in phases

    found: dict[str, Any] = await place.admin.until(place.path(name), holds)
    return found


def terminated(one: dict[str, Any], kind: str = "containerStatuses") -> dict[str, Any]:
    found: dict[str, Any] = one["status"][kind][0]["state"]["terminated"]
    return found


def conditions(one: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c.get("reason", "")) for c in one["status"]["conditions"]}


async def test_containers_run_in_order_and_only_the_first_has_the_token(
    place: Place, kubelet: Kubelet
) -> None:
    first = "cat $RUNNER_AGENT_ROOT/run/identity/token > $RUNNER_AGENT_ROOT/run/shared/copy"
    second = 'cd $RUNNER_AGENT_ROOT/run && [[ "$(< shared/copy)" == *.*.* ]] && [ ! -e identity ] && exit 0'
    made = pod(place, "ordered", first, second)
    made["spec"]["containers"][0]["command"] = ["bash", "-c", second]
    await place.admin.create(f"/api/v1/namespaces/{place.name}/pods", made)
    found = await phase(place, kubelet, "ordered", "Succeeded", "Failed")
    assert found["status"]["phase"] == "Succeeded"
    assert terminated(found, "initContainerStatuses")["reason"] == "Completed"
    assert (terminated(found)["exitCode"], terminated(found)["reason"]) == (0, "Completed")
    assert conditions(found)["Ready"] == ("False", "PodCompleted")
    assert conditions(found)["PodScheduled"][0] == "True"


async def test_a_token_without_an_audience_is_for_the_api_server(
    place: Place, kubelet: Kubelet
) -> None:
    """The volume that the API server adds to a pod names no audience."""
    token = "$RUNNER_AGENT_ROOT/var/run/secrets/kubernetes.io/serviceaccount/token"
    made = pod(place, "automount", "exit 0", f"cat {token}; {IGNORES}")
    made["spec"]["automountServiceAccountToken"] = True
    made = await place.admin.create(f"/api/v1/namespaces/{place.name}/pods", made)

    def read(_: dict[str, Any]) -> bool:
        kubelet.check()
        return "ready" in kubelet.runtime.log_of(made, "second")

    await place.admin.until(place.path("automount"), read)
    review = {"spec": {"token": kubelet.runtime.log_of(made, "second").partition("ready")[0]}}
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    status = (await place.admin.create(path, review))["status"]
    assert status["authenticated"]
    assert status["audiences"] == ["https://kubernetes.default.svc"]
    assert status["user"]["username"] == f"system:serviceaccount:{place.name}:default"


async def test_a_failed_init_container_fails_the_pod(place: Place, kubelet: Kubelet) -> None:
    made = pod(place, "failed", "exit 5", "exit 0")
    await place.admin.create(f"/api/v1/namespaces/{place.name}/pods", made)
    found = await phase(place, kubelet, "failed", "Succeeded", "Failed")
    assert found["status"]["phase"] == "Failed"
    assert terminated(found, "initContainerStatuses")["exitCode"] == 5
    assert "message" not in terminated(found, "initContainerStatuses")
    assert "waiting" in found["status"]["containerStatuses"][0]["state"]
    assert conditions(found)["Initialized"] == ("False", "ContainersNotInitialized")


@pytest.mark.case(
    "the API server reads the logs of an ended container from kubelet, until the pod is deleted",
    topic="Kubernetes",
    source="Kubernetes: Pod Lifecycle",
)
async def test_the_api_server_reads_the_logs_of_a_pod_from_its_kubelet(
    place: Place, kubelet: Kubelet
) -> None:
    made = pod(place, "logs", "echo one; echo two >&2; echo three; exit 5", "exit 0")
    made["spec"]["initContainers"][0]["terminationMessagePolicy"] = "FallbackToLogsOnError"
    await place.admin.create(f"/api/v1/namespaces/{place.name}/pods", made)
    found = await phase(place, kubelet, "logs", "Failed")
    assert terminated(found, "initContainerStatuses")["message"] == "one\ntwo\nthree\n"
    api, path = new_api(place), f"{place.path('logs')}/log"
    first = {"container": "first"}
    assert await api.text(path, first) == "one\ntwo\nthree\n"
    # The last lines, and of them the first bytes.
    assert await api.text(path, {**first, "tailLines": "2", "limitBytes": "5"}) == "two\nt"
    with pytest.raises(ProviderError, match='container "second" in pod "logs" is waiting to start'):
        await api.text(path, {"container": "second"})
    await place.admin.request("DELETE", place.path("logs"))
    with pytest.raises(ProviderError, match="NotFound"):
        await api.text(path, first)
    await api.close()


async def test_a_command_that_does_not_exist_is_a_start_error(
    place: Place, kubelet: Kubelet
) -> None:
    made = pod(place, "absent", "exit 0", "exit 0")
    made["spec"]["containers"][0]["command"] = ["no-such-command"]
    await place.admin.create(f"/api/v1/namespaces/{place.name}/pods", made)
    found = await phase(place, kubelet, "absent", "Succeeded", "Failed")
    assert (terminated(found)["exitCode"], terminated(found)["reason"]) == (128, "StartError")


@pytest.mark.parametrize(
    ("script", "status", "grace"),
    [(HANDLES, 3, 6000), (IGNORES, 137, 5)],
    ids=["handled", "ignored"],
)
async def test_a_deleted_pod_gets_sigterm_and_then_sigkill(
    place: Place, kubelet: Kubelet, script: str, status: int, grace: int
) -> None:
    name = f"deleted-{status}"
    collection = f"/api/v1/namespaces/{place.name}/pods"
    made = await place.admin.create(collection, pod(place, name, "exit 0", script, grace))
    found = await phase(place, kubelet, name, "Running")
    assert conditions(found)["Ready"][0] == "True"
    version = found["metadata"]["resourceVersion"]
    await place.admin.until(
        place.path(name), lambda _: "ready" in kubelet.runtime.log_of(made, "second")
    )
    await place.admin.request("DELETE", place.path(name))
    last: dict[str, Any] = {}
    async for change in place.admin.watch(collection, version):
        if change["object"]["metadata"]["name"] == name:
            last = change["object"] if change["type"] == "MODIFIED" else last
            if change["type"] == "DELETED":
                break
    assert terminated(last)["exitCode"] == status
    assert last["status"]["phase"] == "Failed"
    await place.admin.gone(place.path(name))


NOTES = "$RUNNER_AGENT_ROOT/run/shared/notes"


def noting(name: str, *, ignores: bool = False) -> dict[str, Any]:
    """A sidecar that notes its start and SIGTERM in the shared volume, and then prints all notes.

    If it `ignores` SIGTERM, it goes on.
    """
    end = "" if ignores else f"cat {NOTES}; exit 4"
    handler = f"trap 'echo {name} stops >> {NOTES}; {end}' TERM"
    script = f"{handler}; echo {name} started >> {NOTES}; while :; do sleep 0.05; done"
    shared = {"name": "shared", "mountPath": "/run/shared"}
    return container(name, script, restartPolicy="Always", volumeMounts=[shared])


def with_sidecars(made: dict[str, Any], first: dict[str, Any], last: dict[str, Any]) -> None:
    """Add a sidecar before the init container, and one after it."""
    made["spec"]["initContainers"] = [first, *made["spec"]["initContainers"], last]


def waiting_for(note: str) -> str:
    """A command that ends when this is noted. The lab's image has no grep."""
    found = f'case "$(cat {NOTES})" in *"{note}"*) true;; *) false;; esac'
    return f"until {found}; do sleep 0.05; done"


DEVICE = {"resources": {"limits": {"example.com/nic": "1"}}}
REFUSED = ("Failed", "UnexpectedAdmissionError")


@pytest.mark.case(
    "kubelet starts again: it kills pods whose init container had devices of a device plugin",
    topic="Kubernetes",
    source="kubernetes/kubernetes#138446",
)
@pytest.mark.parametrize(
    ("where", "with_nodes", "expected"),
    [
        ("initContainers", False, REFUSED),
        ("containers", False, ("Running", None)),
        ("containers", True, REFUSED),
    ],
)
async def test_a_restart_spares_the_devices_of_running_containers_only(
    place: Place, kubelet: Kubelet, where: str, with_nodes: bool, expected: tuple[str, str | None]
) -> None:
    name = f"restarted-{where.lower()}-{with_nodes}".lower()
    made = pod(place, name, "exit 0", IGNORES)
    for one in made["spec"][where]:
        one |= DEVICE
    await place.admin.create(f"/api/v1/namespaces/{place.name}/pods", made)
    await phase(place, kubelet, name, "Running")
    await kubelet.restart(with_nodes=with_nodes)
    found = await phase(place, kubelet, name, expected[0])
    assert (found["status"]["phase"], found["status"].get("reason")) == expected
    assert ("containerStatuses" in found["status"]) is (expected != REFUSED)
    await place.admin.request("DELETE", place.path(name), {"gracePeriodSeconds": 0})
    await place.admin.gone(place.path(name))


@pytest.mark.case(
    "sidecars start in their order, and stop after the main containers in reverse order",
    topic="Kubernetes",
    source="Kubernetes: sidecars",
)
@pytest.mark.parametrize(("status", "phase_at_end"), [(0, "Succeeded"), (3, "Failed")])
async def test_sidecars_run_as_long_as_the_main_containers(
    place: Place, kubelet: Kubelet, status: int, phase_at_end: str
) -> None:
    name = f"sidecars-{status}"
    # Whatever the second container waits for would never come if the sidecars kept it from starting.
    second = f"{waiting_for('late started')}; echo main ends >> {NOTES}; exit {status}"
    first = f"{waiting_for('early started')}; echo init ends >> {NOTES}"
    made = pod(place, name, first, second)
    with_sidecars(made, noting("early"), noting("late"))
    made = await place.admin.create(f"/api/v1/namespaces/{place.name}/pods", made)
    found = await phase(place, kubelet, name, "Succeeded", "Failed")
    assert found["status"]["phase"] == phase_at_end
    states = {one["name"]: one["state"] for one in found["status"]["initContainerStatuses"]}
    assert states["first"]["terminated"]["exitCode"] == 0
    assert [states[one]["terminated"]["exitCode"] for one in ("early", "late")] == [4, 4]
    notes = kubelet.runtime.log_of(made, "early").splitlines()
    assert notes == [
        "early started",
        "init ends",
        "late started",
        "main ends",
        "late stops",
        "early stops",
    ]


async def test_a_failed_init_container_ends_the_sidecars_before_it(
    place: Place, kubelet: Kubelet
) -> None:
    made = pod(place, "sidecar-init", f"{waiting_for('early started')}; exit 5", "exit 0")
    with_sidecars(made, noting("early"), noting("late"))
    made = await place.admin.create(f"/api/v1/namespaces/{place.name}/pods", made)
    found = await phase(place, kubelet, "sidecar-init", "Succeeded", "Failed")
    assert found["status"]["phase"] == "Failed"
    assert kubelet.runtime.log_of(made, "early") == "early started\nearly stops\n"
    early, first, late = found["status"]["initContainerStatuses"]
    assert [one["state"]["terminated"]["exitCode"] for one in (early, first)] == [4, 5]
    assert "waiting" in late["state"]


async def test_a_deleted_pods_sidecars_stop_last_and_are_killed_after_the_grace_period(
    place: Place, kubelet: Kubelet
) -> None:
    handler = f"trap 'echo main stops >> {NOTES}; exit 3' TERM"
    script = f"{waiting_for('late started')}; {handler}; echo ready; while :; do sleep 0.05; done"
    made = pod(place, "sidecar-deleted", "exit 0", script, grace=100)
    late = {**noting("late"), "terminationMessagePolicy": "FallbackToLogsOnError"}
    with_sidecars(made, noting("early", ignores=True), late)
    collection = f"/api/v1/namespaces/{place.name}/pods"
    made = await place.admin.create(collection, made)
    await place.admin.until(
        place.path("sidecar-deleted"), lambda _: "ready" in kubelet.runtime.log_of(made, "second")
    )
    found = await phase(place, kubelet, "sidecar-deleted", "Running")
    assert conditions(found)["Ready"][0] == "True"
    version = found["metadata"]["resourceVersion"]
    await place.admin.request("DELETE", place.path("sidecar-deleted"))
    last: dict[str, Any] = {}
    async for change in place.admin.watch(collection, version):
        if change["object"]["metadata"]["name"] == "sidecar-deleted":
            last = change["object"] if change["type"] == "MODIFIED" else last
            if change["type"] == "DELETED":
                break
    early, _, late = (one["state"] for one in last["status"]["initContainerStatuses"])
    assert [one["terminated"]["exitCode"] for one in (early, late)] == [137, 4]
    assert late["terminated"]["message"].splitlines()[-2:] == ["main stops", "late stops"]
    assert terminated(last)["exitCode"] == 3


async def test_a_sidecar_that_cannot_start_fails_the_lab(
    admin: Administrator, folder: Path, place: Place
) -> None:
    """A real kubelet would start it again and again."""
    own = folder / "sidecar"
    own.mkdir()
    made = pod(place, "no-sidecar", "exit 0", "exit 0")
    with_sidecars(made, {**noting("early"), "command": ["no-such-command"]}, noting("late"))
    made["spec"]["nodeSelector"] = {"pool": "sidecar"}

    async def run() -> None:
        async with Kubelet(admin, Runtime(own, SCALE), SCALE) as other:
            await other.add_node("sidecar", {"cpu": "1"}, {"pool": "sidecar"})
            await admin.create(f"/api/v1/namespaces/{place.name}/pods", made)

            async def fails() -> bool:
                other.check()
                return False

            await until(fails)

    with pytest.raises(KubeletFailedError, match="pod no-sidecar: sidecar early cannot start"):
        await run()


async def test_a_container_at_its_memory_limit_is_killed(place: Place, kubelet: Kubelet) -> None:
    made = pod(place, "memory", "exit 0", IGNORES)
    await place.admin.create(f"/api/v1/namespaces/{place.name}/pods", made)
    await phase(place, kubelet, "memory", "Running")
    await kubelet.run_out_of_memory("memory")
    found = await phase(place, kubelet, "memory", "Succeeded", "Failed")
    assert (terminated(found)["exitCode"], terminated(found)["reason"]) == (137, "OOMKilled")


async def test_a_pod_that_is_deleted_before_its_container_runs_leaves_nothing(
    place: Place, kubelet: Kubelet, folder: Path
) -> None:
    made = await place.admin.create(
        f"/api/v1/namespaces/{place.name}/pods", pod(place, "early", HANDLES, "exit 0")
    )
    await place.admin.until(
        place.path("early"), lambda _: "ready" in kubelet.runtime.log_of(made, "first")
    )
    await place.admin.request("DELETE", place.path("early"))
    await place.admin.gone(place.path("early"))

    async def has_ended() -> bool:
        return "early" not in kubelet.pods()

    await until(has_ended)
    assert not kubelet.runtime.folder_of(made).exists()


async def test_a_kubelet_that_stops_leaves_no_node_for_the_scheduler(
    admin: Administrator, folder: Path
) -> None:
    place = folder / "short"
    place.mkdir()
    async with Kubelet(admin, Runtime(place, SCALE), SCALE) as stopped:
        await stopped.add_node("short", {"cpu": "1"})
    await admin.gone("/api/v1/nodes/short")


@pytest.mark.case(
    "the API server was away for so long that the controllers set the nodes' Ready to Unknown",
    topic="Kubernetes",
    source="Kubernetes: Nodes, and Pod garbage collection",
)
@pytest.mark.parametrize("kind", ["kwok", "processes"])
async def test_a_node_whose_ready_is_unknown_reports_again(
    place: Place, kubelet: Kubelet, kind: str
) -> None:
    node = "processes" if kind == "processes" else await place.add_node()
    path = f"/api/v1/nodes/{node}"
    unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
    reported = await place.admin.patch(f"{path}/status", {"status": {"conditions": [unknown]}})
    again = await place.admin.until(path, accepts_pods)
    assert again["metadata"]["resourceVersion"] != reported["metadata"]["resourceVersion"]
