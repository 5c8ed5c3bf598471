"""Jobs in pods: `autoscaler serve` with a fleet.yaml, the real API server, and the agent's real processes."""

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import ExitReason, Machine, MachineState
from autoscaler.providers.kubernetes.logs import LOGS_WITHIN
from lab.github.records import Job, JobStatus
from lab.kubernetes.cluster import Cluster
from lab.kubernetes.lab_pods import LabNode, LabPod, LabPods
from lab.laboratory import LabFleet, Laboratory
from tests.lab.system import harness
from tests.lab.system.harness import history_of, job, read_records, started
from tests.lab.system.pace import PATIENCE, yielding

pytestmark = pytest.mark.asyncio(loop_scope="session")

PARTITION = "amd.com/dpx_nps2"
_DEADLINES = {"boot": "6h", "health_checks": "6h", "ready_silence": "6h"}
"""No test here is about them, and this host may be busy."""


IMAGE = "ghcr.io/actions/actions-runner:2.336.0"


def pod_sku(overlay: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A SKU with one launch option: pods with one partition of an AMD GPU."""
    pod = {
        "image": IMAGE,
        "resources": {"cpu": "1", "memory": "1Gi"},
        "accelerator_resource": PARTITION,
        "overlay": overlay or {},
    }
    option = {"provider": "cluster", "price": 2.0, "pod": pod}
    found = {"on": [option], "accelerator": {"vendor": "amd", "count": 1}}
    return {**found, "deadlines": _DEADLINES, **more}


def failing_once(flag: Path, name: str) -> dict[str, Any]:
    """An overlay with an init container that fails in the first pod. `flag` is a file that it creates."""
    script = f"set -C; (: > {flag}) || exit 0; echo no room in the cache; exit 3"
    container = {
        "name": name,
        "image": IMAGE,
        "command": ["sh", "-c", script],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return {"spec": {"initContainers": [container]}}


def with_sidecar() -> dict[str, Any]:
    """An overlay with a sidecar that never ends by itself."""
    container = {
        "name": "proxy",
        "image": IMAGE,
        "restartPolicy": "Always",
        "command": [
            "sh",
            "-c",
            "trap 'exit 0' TERM; echo proxy ready; while :; do sleep 0.05; done",
        ],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return {"spec": {"initContainers": [container]}}


SKUS = {
    "rocm.twice": pod_sku(),
    "rocm.evicted": pod_sku(rerun_interrupted=1),
    "rocm.memory": pod_sku(),
    "rocm.secret": pod_sku(),
    "rocm.broken": pod_sku(),
    "rocm.sidecar": pod_sku(with_sidecar()),
    "rocm.restarted": pod_sku(rerun_interrupted=1),
    "rocm.warm": pod_sku(idle={"min": 1}),
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def lab(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Laboratory]:
    flags = tmp_path_factory.mktemp("flags")
    failing = {
        f"rocm.{name}": pod_sku(failing_once(flags / name, name)) for name in ("cache", "silent")
    }
    fleet = LabFleet(
        "acme",
        ("widgets",),
        {**SKUS, **failing},
        scale=max(5.0, yielding(30.0)),
        nodes=(LabNode({PARTITION: "16"}),),
    )
    async with Laboratory(fleet, cluster=cluster) as laboratory:
        await laboratory.start_controller()
        yield laboratory


def pods_of(lab: Laboratory, sku: str) -> list[LabPod]:
    return [pod for pod in of(lab) if pod.sku == sku]


def of(lab: Laboratory) -> LabPods:
    assert lab.pods is not None
    return lab.pods


def machines(lab: Laboratory, sku: str) -> list[Machine]:
    return [machine for machine in read_records(lab).machines if machine.sku == sku]


def ready_machines(lab: Laboratory) -> list[Machine]:
    """The machines of the SKU that keeps one ready."""
    return [one for one in machines(lab, "rocm.warm") if one.state is MachineState.READY]


async def push(lab: Laboratory, sku: str, *seconds: float) -> list[Job]:
    """Push one job for each duration; return them once they were started."""
    names = [f"{sku}-{number}" for number, _ in enumerate(seconds)]
    lab.github.push([job(name, sku, s) for name, s in zip(names, seconds, strict=True)])
    pushed = [one for one in lab.github.jobs if one.spec.name in names]
    await until(lab, lambda: started(pushed))
    return pushed


async def until(
    lab: Laboratory, holds: Callable[[], bool], why: Callable[[], object] | None = None
) -> None:
    """Return once this holds. Fails at once if the lab's kubelet has failed."""

    def checked() -> bool:
        of(lab).check()
        return holds()

    await harness.until(checked, PATIENCE, why or lab.controller.log_end)


async def ended(lab: Laboratory, sku: str) -> None:
    """Wait until the SKU's jobs have ended, none of its containers runs, and no registration is left."""
    mine = [one for one in lab.github.jobs if one.spec.labels[-1] == sku]

    def holds() -> bool:
        done = all(one.status is JobStatus.COMPLETED for one in mine)
        return (
            done
            and not [one for one in pods_of(lab, sku) if one.ended_at is None]
            and not registered()
        )

    def registered() -> list[str]:
        names = {machine.work.runner for machine in machines(lab, sku)}
        return [runner.name for runner in lab.github.runners if runner.name in names]

    def why() -> str:
        return f"{[one.status for one in mine]} {pods_of(lab, sku)}\n{lab.controller.log_end()}"

    await until(lab, holds, why)


async def exited(lab: Laboratory, sku: str, *reasons: ExitReason) -> None:
    """Wait until the store has these reasons for the ends of the SKU's machines."""

    def found() -> list[ExitReason | None]:
        return [one.work.exit_reason for one in machines(lab, sku)]

    await until(lab, lambda: set(found()) == set(reasons), lambda: found())
    assert len(found()) == len(reasons)


async def test_each_job_runs_once_in_a_pod_of_its_own(lab: Laboratory) -> None:
    jobs = await push(lab, "rocm.twice", 30.0, 40.0)
    await ended(lab, "rocm.twice")
    assert [(one.conclusion, len(one.starts)) for one in jobs] == [("success", 1)] * 2
    assert {pod.id for pod in pods_of(lab, "rocm.twice")} == {
        one.placement.provider_id for one in machines(lab, "rocm.twice")
    }
    await exited(lab, "rocm.twice", ExitReason.EXITED, ExitReason.EXITED)


@pytest.mark.case(
    "the JIT configuration is in no file of the pod and in no Secret: the agent gives it to its runner",
    topic="Kubernetes",
    source="Kubernetes: emptyDir, medium Memory",
)
async def test_the_jobs_container_finds_no_jit_configuration_in_a_file(lab: Laboratory) -> None:
    [running] = await push(lab, "rocm.secret", 86_400.0)
    [pod] = pods_of(lab, "rocm.secret")
    namespace = f"/api/v1/namespaces/{of(lab).namespace}"
    found = await of(lab).admin.request("GET", f"{namespace}/pods/{pod.name}")
    folder = of(lab).kubelet.runtime.folder_of(found)
    runner = folder / "containers" / "runner"
    assert (runner / "run/runner-identity/token").is_file()
    files = {file.name for file in (runner / "run/runner-agent").iterdir()}
    assert files == {"agent.py", "controller.json", "hooks", "started"}
    assert "jit" not in str(found["spec"]).lower()
    assert (await of(lab).admin.request("GET", f"{namespace}/secrets"))["items"] == []
    lab.github.end(running)
    await ended(lab, "rocm.secret")
    assert running.conclusion == "success"


@pytest.mark.case(
    "a node is drained: SIGTERM reaches the runner, which reports the end of its job, and the job is re-run",
    topic="Kubernetes",
    source="Kubernetes: API-initiated eviction",
)
async def test_an_evicted_pods_job_is_cancelled_and_run_again(lab: Laboratory) -> None:
    await push(lab, "rocm.evicted", 86_400.0)
    [pod] = pods_of(lab, "rocm.evicted")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod.name}}
    path = f"/api/v1/namespaces/{of(lab).namespace}/pods/{pod.name}"
    await of(lab).admin.create(f"{path}/eviction", eviction)

    def tries() -> list[Job]:
        return [one for one in lab.github.jobs if one.spec.name == "rocm.evicted-0"]

    def again() -> bool:
        return len(tries()) == 2 and bool(tries()[1].starts)

    await until(lab, again)
    first, second = tries()
    assert first.conclusion == "failure"
    assert first.starts != second.starts
    lab.github.end(second)
    await ended(lab, "rocm.evicted")
    assert second.conclusion == "success"
    await exited(lab, "rocm.evicted", ExitReason.STOPPED, ExitReason.EXITED)


@pytest.mark.case(
    "a pod is killed at its memory limit: kubelet kills the agent, too",
    topic="Kubernetes",
    source="Kubernetes: memory.oom.group",
)
async def test_a_pod_at_its_memory_limit_leaves_no_registration(lab: Laboratory) -> None:
    await push(lab, "rocm.memory", 86_400.0)
    [pod] = pods_of(lab, "rocm.memory")
    await of(lab).kubelet.run_out_of_memory(pod.name)
    await ended(lab, "rocm.memory")

    def terminated() -> bool:
        return {one.state for one in machines(lab, "rocm.memory")} == {MachineState.TERMINATED}

    await until(lab, terminated)
    [machine] = machines(lab, "rocm.memory")
    words = "container runner ended with status 137, at its memory limit of 1Gi"
    assert machine.reason == f"OOMKilled: {words}"
    [one] = [one for one in lab.github.jobs if one.spec.name == "rocm.memory-0"]
    assert len(one.starts) == 1


@pytest.mark.case(
    "a pod does not find its GPU: it gets no registration, and the job runs in the next pod",
    topic="Accelerators",
    source="NVIDIA/NVSentinel#155",
)
async def test_a_pod_without_its_gpu_gets_no_job(lab: Laboratory) -> None:
    # Otherwise the warm pod may get the broken accelerator.
    await until(lab, lambda: bool(ready_machines(lab)))
    of(lab).kubelet.runtime.broken_gpus = 1
    [one] = await push(lab, "rocm.broken", 30.0)
    await until(lab, lambda: len(pods_of(lab, "rocm.broken")) == 2)
    path = f"/api/v1/namespaces/{of(lab).namespace}/pods/{pods_of(lab, 'rocm.broken')[1].name}"
    affinity = (await of(lab).admin.request("GET", path))["spec"]["affinity"]["nodeAffinity"]
    # It is only a preference: there is no other node.
    [preferred] = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    [avoided] = preferred["preference"]["matchExpressions"]
    assert avoided["key"] == "kubernetes.io/hostname"
    assert (avoided["operator"], avoided["values"]) == ("NotIn", [f"{of(lab).namespace}-0"])
    await ended(lab, "rocm.broken")
    assert (one.conclusion, len(one.starts)) == ("success", 1)
    broken = [each for each in machines(lab, "rocm.broken") if each.progress.ready_at is None]
    assert len(broken) == 1
    assert broken[0].failure is FailureClass.HEALTH_CHECK
    assert broken[0].work.runner is None
    reason = "gpu_query: rocminfo exited with 1: ROCk module is NOT loaded, possibly no GPU devices"
    assert history_of(lab, broken[0].id, MachineState.FAILED) == [reason]


@pytest.mark.case(
    "an init container of the overlay fails: its log is in the machine's history",
    topic="Kubernetes",
    source="Kubernetes: Pod Lifecycle",
)
async def test_the_log_of_a_pod_that_does_not_start_is_kept(lab: Laboratory) -> None:
    [one] = await push(lab, "rocm.cache", 30.0)
    await ended(lab, "rocm.cache")
    assert (one.conclusion, len(one.starts)) == ("success", 1)
    [failed] = [each for each in machines(lab, "rocm.cache") if each.progress.ready_at is None]
    assert failed.reason == "Error: container cache ended with status 3"
    await until(lab, lambda: bool(history_of(lab, failed.id, "console")))
    [shown] = history_of(lab, failed.id, "console")
    assert shown == f"{failed.reason}\ncache:\nno room in the cache"


@pytest.mark.case(
    "the node of a failed pod does not answer the request for its log: the pod is deleted all the same",
    topic="Kubernetes",
    source="Kubernetes: Pod Lifecycle",
)
async def test_a_log_that_never_comes_delays_a_deletion_for_seconds_only(lab: Laboratory) -> None:
    of(lab).kubelet.logs.silent.add("silent")
    [one] = await push(lab, "rocm.silent", 30.0)
    await ended(lab, "rocm.silent")
    assert (one.conclusion, len(one.starts)) == ("success", 1)
    [failed] = [each for each in machines(lab, "rocm.silent") if each.progress.ready_at is None]
    await until(lab, lambda: bool(history_of(lab, failed.id, "console")))
    [shown] = history_of(lab, failed.id, "console")
    assert shown == f"{failed.reason}\nthe logs could not be read within {LOGS_WITHIN:g} s"
    pod = of(lab).find(str(failed.placement.provider_id))
    assert pod is not None
    await until(lab, lambda: pod.phase == "gone")


@pytest.mark.case(
    "the overlay adds a sidecar: the pod ends with its runner all the same",
    topic="Kubernetes",
    source="Kubernetes: sidecars",
)
async def test_a_job_runs_to_its_end_beside_a_sidecar(lab: Laboratory) -> None:
    [running] = await push(lab, "rocm.sidecar", 86_400.0)
    [pod] = pods_of(lab, "rocm.sidecar")
    path = f"/api/v1/namespaces/{of(lab).namespace}/pods/{pod.name}"
    found = await of(lab).admin.request("GET", path)
    [proxy] = found["status"]["initContainerStatuses"]
    assert (proxy["name"], proxy["started"]) == ("proxy", True)
    lab.github.end(running)
    await ended(lab, "rocm.sidecar")
    assert (running.conclusion, len(running.starts)) == ("success", 1)
    await exited(lab, "rocm.sidecar", ExitReason.EXITED)


async def test_a_ready_pod_is_running(lab: Laboratory) -> None:
    await until(lab, lambda: bool(ready_machines(lab)))
    name = str(ready_machines(lab)[0].placement.provider_id).partition(".")[0]
    path = f"/api/v1/namespaces/{of(lab).namespace}/pods/{name}"
    found = await of(lab).admin.request("GET", path)
    assert found["status"]["phase"] == "Running"
    assert "initContainers" not in found["spec"]


@pytest.mark.case(
    "kubelet and then its node start again: a running job goes on, and is then interrupted and re-run",
    topic="Kubernetes",
    source="kubernetes/kubernetes#138446; kubernetes/kubernetes#125579",
)
async def test_a_job_survives_its_kubelet_and_is_run_again_after_its_node(lab: Laboratory) -> None:
    [first] = await push(lab, "rocm.restarted", 86_400.0)
    [pod] = pods_of(lab, "rocm.restarted")
    await of(lab).kubelet.restart()
    path = f"/api/v1/namespaces/{of(lab).namespace}/pods/{pod.name}"
    assert (await of(lab).admin.request("GET", path))["status"]["phase"] == "Running"
    assert pod.name in of(lab).kubelet.pods()
    await of(lab).kubelet.restart(with_nodes=True)

    def tries() -> list[Job]:
        return [one for one in lab.github.jobs if one.spec.name == "rocm.restarted-0"]

    await until(lab, lambda: len(tries()) == 2 and bool(tries()[1].starts))
    assert (first.conclusion, len(pods_of(lab, "rocm.restarted"))) == ("failure", 2)
    lab.github.end(tries()[1])
    await ended(lab, "rocm.restarted")
    [refused] = [
        one for one in machines(lab, "rocm.restarted") if one.placement.provider_id == pod.id
    ]
    assert refused.reason.startswith("UnexpectedAdmissionError: Pod was rejected: ")


async def test_the_pods_that_have_ended_are_deleted(lab: Laboratory) -> None:
    """The tests above left them: the controller deletes ended pods after a listing has shown them."""

    def left() -> list[LabPod]:
        return [one for one in of(lab).left() if one.sku != "rocm.warm"]

    await until(lab, lambda: not left(), lambda: f"{left()}\n{lab.controller.log_end()}")

    def counts() -> tuple[int, int]:
        return of(lab).calls()["create pods"], len(list(of(lab)))

    # The audit log and the kubelet show a new pod one after the other.
    await until(lab, lambda: counts()[0] == counts()[1], lambda: counts())
    assert not [one for one in of(lab).calls() if "secret" in one]
