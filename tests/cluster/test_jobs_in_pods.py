"""Jobs in pods: `autoscaler serve` with a fleet.yaml, the real API server, and the agent's real processes."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from autoscaler.model.machines import ExitReason, Machine, MachineState
from lab.github.records import Job, JobStatus
from lab.kubernetes.cluster import Cluster
from lab.kubernetes.lab_pods import LabNode, LabPod, LabPods
from lab.laboratory import LabFleet, Laboratory
from tests.lab.system.harness import job, read_records, started, until
from tests.lab.system.pace import PATIENCE, yielding

pytestmark = pytest.mark.asyncio(loop_scope="session")

PARTITION = "amd.com/dpx_nps2"


def pod_sku(**more: Any) -> dict[str, Any]:
    """A SKU with one launch option: pods with one partition of an AMD GPU."""
    pod = {
        "image": "ghcr.io/actions/actions-runner:2.336.0",
        "resources": {"cpu": "1", "memory": "1Gi"},
        "accelerator_resource": PARTITION,
    }
    option = {"provider": "cluster", "price": 2.0, "pod": pod}
    return {"on": [option], "accelerator": {"vendor": "amd", "count": 1}, **more}


SKUS = {
    "rocm.twice": pod_sku(),
    "rocm.deleted": pod_sku(rerun_interrupted=1),
    "rocm.memory": pod_sku(),
    "rocm.secret": pod_sku(),
    "rocm.warm": pod_sku(idle={"min": 1, "max_age": "10m"}),
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def lab(cluster: Cluster) -> AsyncIterator[Laboratory]:
    fleet = LabFleet(
        "acme", ("widgets",), SKUS, scale=yielding(30.0), nodes=(LabNode({PARTITION: "16"}),)
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


def left(lab: Laboratory, sku: str) -> list[str]:
    """The pods and registrations of a SKU that exist."""
    found = [pod.name for pod in of(lab).left() if pod.sku == sku]
    if found:
        return found
    names = {machine.work.runner for machine in machines(lab, sku)}
    return [runner.name for runner in lab.github.runners if runner.name in names]


async def push(lab: Laboratory, sku: str, *seconds: float) -> list[Job]:
    """Push one job for each duration; return them once they were started."""
    names = [f"{sku}-{number}" for number, _ in enumerate(seconds)]
    lab.github.push([job(name, sku, s) for name, s in zip(names, seconds, strict=True)])
    pushed = [one for one in lab.github.jobs if one.spec.name in names]
    await until(lambda: started(pushed), PATIENCE, lambda: lab.controller.log_end())
    return pushed


async def ended(lab: Laboratory, sku: str) -> None:
    """Wait until the SKU's jobs have ended, and nothing of it is left."""
    mine = [one for one in lab.github.jobs if one.spec.labels[-1] == sku]

    def holds() -> bool:
        return all(one.status is JobStatus.COMPLETED for one in mine) and not left(lab, sku)

    def why() -> str:
        return f"{[one.status for one in mine]} {left(lab, sku)}\n{lab.controller.log_end()}"

    await until(holds, PATIENCE, why)


async def test_each_job_runs_once_in_a_pod_of_its_own(lab: Laboratory) -> None:
    jobs = await push(lab, "rocm.twice", 30.0, 40.0)
    await ended(lab, "rocm.twice")
    assert [(one.conclusion, len(one.starts)) for one in jobs] == [("success", 1)] * 2
    assert {pod.id for pod in pods_of(lab, "rocm.twice")} == {
        one.placement.provider_id for one in machines(lab, "rocm.twice")
    }
    assert [one.work.exit_reason for one in machines(lab, "rocm.twice")] == [ExitReason.EXITED] * 2


async def test_the_jobs_container_finds_neither_token_nor_assignment(lab: Laboratory) -> None:
    await push(lab, "rocm.secret", 60.0)
    [pod] = pods_of(lab, "rocm.secret")
    found = await of(lab).admin.request(
        "GET", f"/api/v1/namespaces/{of(lab).namespace}/pods/{pod.name}"
    )
    folder = of(lab).kubelet.runtime.folder_of(found)
    attest, runner = folder / "containers" / "attest", folder / "containers" / "runner"
    assert (attest / "run/runner-identity/token").is_file()
    assert not (runner / "run/runner-identity").exists()
    shared = {file.name for file in (runner / "run/runner-assignment").iterdir()}
    assert shared == {"agent.py", "controller.json", "started"}
    assert "jit" not in str(found["spec"]).lower()
    secrets = await of(lab).admin.request("GET", f"/api/v1/namespaces/{of(lab).namespace}/secrets")
    assert secrets["items"] == []
    await ended(lab, "rocm.secret")


async def test_a_deleted_pods_job_is_cancelled_and_run_again(lab: Laboratory) -> None:
    """As at a drain of its node: SIGTERM reaches the runner, which reports the end of its job."""
    await push(lab, "rocm.deleted", 600.0)
    [pod] = pods_of(lab, "rocm.deleted")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod.name}}
    path = f"/api/v1/namespaces/{of(lab).namespace}/pods/{pod.name}"
    await of(lab).admin.create(f"{path}/eviction", eviction)

    def again() -> bool:
        tries = [one for one in lab.github.jobs if one.spec.name == "rocm.deleted-0"]
        return len(tries) == 2 and bool(tries[1].starts)

    await until(again, PATIENCE, lambda: lab.controller.log_end())
    first, second = (one for one in lab.github.jobs if one.spec.name == "rocm.deleted-0")
    assert first.conclusion == "failure"
    assert first.starts != second.starts
    assert ExitReason.STOPPED in [one.work.exit_reason for one in machines(lab, "rocm.deleted")]


async def test_a_pod_at_its_memory_limit_leaves_no_registration(lab: Laboratory) -> None:
    await push(lab, "rocm.memory", 6000.0)
    [pod] = pods_of(lab, "rocm.memory")
    await of(lab).kubelet.run_out_of_memory(pod.name)
    await ended(lab, "rocm.memory")
    [machine] = machines(lab, "rocm.memory")
    assert machine.state is MachineState.TERMINATED
    [one] = [one for one in lab.github.jobs if one.spec.name == "rocm.memory-0"]
    assert len(one.starts) == 1


async def test_a_ready_pod_shows_as_a_running_init_container(lab: Laboratory) -> None:
    def ready() -> list[Machine]:
        return [one for one in machines(lab, "rocm.warm") if one.state is MachineState.READY]

    await until(lambda: bool(ready()), PATIENCE, lambda: lab.controller.log_end())
    name = str(ready()[0].placement.provider_id).partition(".")[0]
    path = f"/api/v1/namespaces/{of(lab).namespace}/pods/{name}"
    found = await of(lab).admin.request("GET", path)
    assert found["status"]["phase"] == "Pending"
    assert "running" in found["status"]["initContainerStatuses"][0]["state"]
