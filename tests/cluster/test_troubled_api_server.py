"""The API server's bad days, with jobs that run meanwhile: no pod is doubled, and no running job is stopped.

`autoscaler serve`, the API server and the agents are the real programs. These tests come last, as those of
test_restarted_api_server.py do, and for the same reason.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from autoscaler.model.identifiers import RunnerName
from autoscaler.model.machines import Machine, MachineState
from lab.github.records import Job, JobStatus
from lab.kubernetes.api_proxy import ApiProxy, Breaks
from lab.kubernetes.cluster import Cluster
from lab.kubernetes.lab_pods import LabNode, LabPod, LabPods
from lab.kubernetes.namespaces import ACCOUNT
from lab.laboratory import LabFleet, Laboratory
from tests.cluster.test_jobs_in_pods import PARTITION, pod_sku
from tests.lab.system.harness import at_rest, job, read_records, started, until
from tests.lab.system.pace import PATIENCE, yielding

pytestmark = pytest.mark.asyncio(loop_scope="session")

SKU = "rocm.steady"
ROOM = 20
"""Pods for which the node has room."""

RUNNING = 12
LONG = 86_400.0
"""Lab seconds of a job that runs until a test ends it."""

_DEADLINES = {"boot": "6h", "health_checks": "6h", "ready_silence": "6h"}
"""The outages last as long as this host needs to start an API server."""

_FLOW_CONTROL = "/apis/flowcontrol.apiserver.k8s.io/v1"


@dataclass
class Shift:
    """A laboratory, and the jobs of one test."""

    lab: Laboratory
    cluster: Cluster
    jobs: list[Job]

    @property
    def pods(self) -> LabPods:
        assert self.lab.pods is not None
        return self.lab.pods

    def push(self, count: int) -> list[Job]:
        """Push jobs that run until the test ends them."""
        first = len(self.jobs)
        pushed = self.lab.github.push([job(f"{SKU}-{first + n}", SKU, LONG) for n in range(count)])
        self.jobs += pushed
        return pushed

    async def run(self, count: int) -> list[Job]:
        """Push jobs, and return them once all run."""
        pushed = self.push(count)
        await self.until_started(pushed)
        return pushed

    async def until_started(self, jobs: list[Job]) -> None:
        await until(lambda: started(jobs), PATIENCE, self.why)

    async def end(self, jobs: list[Job]) -> None:
        """End jobs, and wait until GitHub shows that they have ended."""
        for one in jobs:
            self.lab.github.end(one)
        await until(
            lambda: all(one.status is JobStatus.COMPLETED for one in jobs), PATIENCE, self.why
        )

    def machines(self, *states: MachineState) -> list[Machine]:
        return [one for one in read_records(self.lab).machines if one.state in states]

    def exited_runners(self) -> set[RunnerName | None]:
        """Return the runners of machines that have exited."""
        exited = (MachineState.EXITED, MachineState.TERMINATING, MachineState.TERMINATED)
        return {one.work.runner for one in self.machines(*exited)}

    def audited(self, verb: str, code: int = 0) -> list[dict[str, Any]]:
        """The controller's requests for pods with this verb, and with this answer if one is given."""
        user = f"system:serviceaccount:{self.pods.namespace}:{ACCOUNT}"
        return [
            event
            for event in self.cluster.audit_events()
            if event["user"]["username"] == user
            and (event["verb"], event.get("objectRef", {}).get("resource")) == (verb, "pods")
            and code in (0, event.get("responseStatus", {}).get("code"))
        ]

    async def restart_api_server(self) -> None:
        """Start the API server again. It has forgotten what changed before."""
        await asyncio.to_thread(self.cluster.compact)
        await asyncio.to_thread(self.cluster.start_api_server)

    async def each_job_ran_once_in_one_pod(self) -> None:
        """End all jobs. Each ran once, in the only pod that was bound to a node for it, and nothing is left.

        The scheduler may have refused a pod, because it saw an ended pod's end later than the list of free
        capacity did. Such a pod never had a node, and another one replaced it.
        """
        await self.end([one for one in self.jobs if one.status is not JobStatus.COMPLETED])
        await at_rest(self.lab, PATIENCE)
        assert self.lab.wrong_jobs() == []
        bound = [one.id for one in self.pods if one.bound_at is not None]
        assert len(bound) == len(self.jobs), self.ends()
        # A slot whose pod the API server refused has no ID.
        machines = read_records(self.lab).machines
        known = {one.placement.provider_id for one in machines} - {None}
        assert {one.id for one in self.pods} == known, self.ends()
        refused = {one.placement.provider_id for one in machines if one.failure is not None}
        assert known - set(bound) <= refused, self.ends()

    def ends(self) -> str:
        """Return how each machine ended, and the pods."""
        machines = [
            f"{one.launch_request} slot {one.slot}, runner {one.work.runner}: {one.state}, "
            f"{one.termination.reason}, {one.failure}, {one.reason}"
            for one in read_records(self.lab).machines
        ]
        return "\n".join([*machines, *map(str, self.pods)])

    def why(self) -> str:
        """Return what shows why a wait ended."""
        states = [f"{one.spec.name}: {one.status}" for one in self.jobs]
        return f"{states}\n{list(self.pods)}\n{self.lab.controller.log_end()}"


@asynccontextmanager
async def at_work(cluster: Cluster, proxy: ApiProxy | None = None) -> AsyncIterator[Shift]:
    fleet = LabFleet(
        "acme",
        ("widgets",),
        {SKU: pod_sku(deadlines=_DEADLINES)},
        scale=yielding(20.0),
        nodes=(LabNode({PARTITION: str(ROOM)}),),
    )
    async with Laboratory(fleet, cluster=cluster) as lab:
        assert lab.pods is not None
        if proxy is not None:
            lab.pods.send_through(proxy.url)
        await lab.start_controller()
        yield Shift(lab, cluster, [])


@pytest_asyncio.fixture(loop_scope="session")
async def shift(cluster: Cluster) -> AsyncIterator[Shift]:
    async with at_work(cluster) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def proxy(cluster: Cluster) -> AsyncIterator[ApiProxy]:
    async with ApiProxy(cluster) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def proxied(cluster: Cluster, proxy: ApiProxy) -> AsyncIterator[Shift]:
    """A controller that uses the API server through the proxy."""
    async with at_work(cluster, proxy) as found:
        yield found


def pods_beyond(shift: Shift, count: int) -> list[LabPod]:
    """The pods that were made after the first ones."""
    return list(shift.pods)[count:]


@pytest.mark.case(
    "the API server is killed while jobs run, others wait and pods are created; it starts again without its "
    "watch cache",
    topic="Kubernetes",
    source="Kubernetes: API Concepts",
)
async def test_a_killed_api_server_doubles_no_pod_and_stops_no_job(shift: Shift) -> None:
    running = await shift.run(RUNNING)
    waiting = shift.push(ROOM - RUNNING + 2)
    # Some of the launch request's answers are on their way.
    await until(lambda: bool(pods_beyond(shift, RUNNING)), PATIENCE, shift.why)
    shift.cluster.stop_api_server()
    watched = len(shift.audited("watch"))
    # Jobs end meanwhile: their agents need only the controller and GitHub.
    await shift.end(running[:3])
    ended = {one.starts[0] for one in running[:3]}
    await until(lambda: ended <= shift.exited_runners(), PATIENCE, shift.why)
    await shift.restart_api_server()
    await shift.until_started(waiting)
    assert [one.status for one in running[3:]] == [JobStatus.IN_PROGRESS] * (RUNNING - 3)
    # The watch's version is too old, so it ends with 410 instead of lasting five minutes.
    await until(lambda: len(shift.audited("watch")) > watched, PATIENCE, shift.why)
    await shift.each_job_ran_once_in_one_pod()


@pytest.mark.case(
    "the answers of the API server are lost on their way: the pods exist, and a repeat adopts them",
    topic="Kubernetes",
    source="Kubernetes: API Concepts",
)
async def test_lost_answers_double_no_pod(proxied: Shift, proxy: ApiProxy) -> None:
    running = await proxied.run(RUNNING)
    proxy.break_connections(Breaks.AFTER)
    waiting = proxied.push(ROOM - RUNNING)
    await until(lambda: len(pods_beyond(proxied, RUNNING)) >= len(waiting), PATIENCE, proxied.why)
    await proxied.end(running[:2])
    await until(lambda: len(proxied.audited("create")) > ROOM, PATIENCE, proxied.why)
    proxy.break_connections(Breaks.NEVER)
    await proxied.until_started(waiting)
    await proxied.each_job_ran_once_in_one_pod()


@pytest.mark.case(
    "a pod disappears while the controller cannot reach the API server, which then does not know the "
    "watch's version any more",
    topic="Kubernetes",
    source="Kubernetes: API Concepts",
)
async def test_a_pod_that_disappeared_unseen_leaves_nothing(
    proxied: Shift, proxy: ApiProxy
) -> None:
    first, *others = await proxied.run(RUNNING)
    [machine] = [
        one for one in proxied.machines(MachineState.ASSIGNED) if one.work.runner == first.starts[0]
    ]
    proxy.break_connections(Breaks.BEFORE)
    name = str(machine.placement.provider_id).partition(".")[0]
    path = f"/api/v1/namespaces/{proxied.pods.namespace}/pods/{name}"
    await proxied.pods.admin.request("DELETE", path, {"gracePeriodSeconds": 0})
    proxied.cluster.stop_api_server()
    await proxied.restart_api_server()
    lists = len(proxied.audited("list"))
    proxy.break_connections(Breaks.NEVER)
    # Lost: a missing pod is no proof of its end. Its agent may have had the time to report its exit.
    over = (MachineState.LOST, MachineState.TERMINATED)
    await until(
        lambda: machine.id in {one.id for one in proxied.machines(*over)}, PATIENCE, proxied.why
    )
    assert len(proxied.audited("list")) > lists
    # GitHub fails a job whose runner is silent.
    await until(lambda: first.status is JobStatus.COMPLETED, PATIENCE, proxied.why)
    assert [one.status for one in others] == [JobStatus.IN_PROGRESS] * len(others)
    await proxied.end(others)
    # The controller keeps the registration of a lost machine: the machine may come back.
    kept = [f"registration {first.starts[0]}"]
    await until(lambda: set(proxied.lab.left()) <= set(kept), PATIENCE, proxied.why)
    assert [(one.conclusion, len(one.starts)) for one in others] == [("success", 1)] * len(others)
    assert len(list(proxied.pods)) == RUNNING


@pytest.mark.case(
    "API Priority and Fairness rejects requests of the controller with 429 and Retry-After",
    topic="Kubernetes",
    source="Kubernetes: API Priority and Fairness",
)
async def test_throttled_answers_delay_jobs_only(shift: Shift) -> None:
    running = await shift.run(RUNNING)
    await reject_requests(shift)
    waiting = shift.push(ROOM - RUNNING)
    await shift.end(running[:2])
    # One request at a time still passes: the eight that create the pods arrive together.
    await until(lambda: bool(shift.audited("create", 429)), PATIENCE, shift.why)
    await accept_requests(shift)
    await shift.until_started(waiting)
    await shift.each_job_ran_once_in_one_pod()


@pytest.mark.case(
    "the API server's clock is hours ahead, and then hours behind",
    topic="Kubernetes",
    source="Kubernetes: ObjectMeta",
)
async def test_a_wrong_clock_of_the_api_server_ends_no_pod(proxied: Shift, proxy: ApiProxy) -> None:
    before = await proxied.run(4)
    proxy.ahead = 7_200.0
    during = await proxied.run(4)
    proxy.ahead = -7_200.0
    # A new controller reads all pods again, and compares them with its records.
    await proxied.lab.controller.kill()
    await proxied.lab.start_controller()
    await proxied.run(4)
    assert [one.status for one in [*before, *during]] == [JobStatus.IN_PROGRESS] * 8
    await proxied.each_job_ran_once_in_one_pod()


def _rejected(shift: Shift) -> list[tuple[str, dict[str, Any]]]:
    """A priority level that executes one request at a time, for all requests of the controller.

    Kubernetes documentation, "API Priority and Fairness": `Reject` queues nothing.
    """
    name = shift.pods.namespace
    account = {"name": ACCOUNT, "namespace": name}
    everything = {
        "verbs": ["*"],
        "apiGroups": ["*"],
        "resources": ["*"],
        "namespaces": ["*"],
        "clusterScope": True,
    }
    level = {
        "nominalConcurrencyShares": 0,
        "lendablePercent": 0,
        "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Reject"},
    }
    rule = {
        "subjects": [{"kind": "ServiceAccount", "serviceAccount": account}],
        "resourceRules": [everything],
    }
    return [
        (
            "prioritylevelconfigurations",
            {"metadata": {"name": name}, "spec": {"type": "Limited", "limited": level}},
        ),
        (
            "flowschemas",
            {
                "metadata": {"name": name},
                "spec": {
                    "priorityLevelConfiguration": {"name": name},
                    "matchingPrecedence": 1000,
                    "rules": [rule],
                },
            },
        ),
    ]


async def reject_requests(shift: Shift) -> None:
    """Have the API server reject requests of the controller that arrive together."""
    for collection, body in _rejected(shift):
        await shift.pods.admin.create(f"{_FLOW_CONTROL}/{collection}", body)


async def accept_requests(shift: Shift) -> None:
    """Have the API server accept the controller's requests again."""
    for collection, body in reversed(_rejected(shift)):
        name = body["metadata"]["name"]
        await shift.pods.admin.request("DELETE", f"{_FLOW_CONTROL}/{collection}/{name}")
