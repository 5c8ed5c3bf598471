"""The API server's bad days, with jobs that run meanwhile: no pod is doubled, and no running job is stopped.

`autoscaler serve`, the API server and the agents are the real programs. These tests come last, as those of
test_restarted_api_server.py do, and for the same reason. They share a laboratory: a controller takes half a
minute until it has deleted its ended pods.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from autoscaler.model.identifiers import RunnerName
from autoscaler.model.machines.machine import Machine, MachineState
from lab.github.records import Job, JobStatus
from lab.kubernetes.api_proxy import ApiProxy, Breaks
from lab.kubernetes.cluster import Cluster
from lab.kubernetes.lab_pods import LabNode, LabPod, LabPods
from lab.kubernetes.namespaces import ACCOUNT
from lab.laboratory import LabFleet, Laboratory
from tests.cluster.flow_control import rejected_requests
from tests.cluster.test_jobs_in_pods import PARTITION, pod_sku, until
from tests.lab.system.harness import job, read_records, started, unsettled
from tests.lab.system.pace import yielding

pytestmark = pytest.mark.asyncio(loop_scope="session")

SKU = "rocm.steady"
ROOM = 20
"""Pods for which the node has room."""

RUNNING = 12
LONG = 86_400.0
"""Lab seconds of a job that runs until a test ends it."""


@dataclass
class Shift:
    """A laboratory, and the jobs of one test. `before` is the number of pods of earlier tests."""

    lab: Laboratory
    cluster: Cluster
    proxy: ApiProxy
    before: int
    jobs: list[Job] = field(default_factory=list)

    @property
    def pods(self) -> LabPods:
        assert self.lab.pods is not None
        return self.lab.pods

    def pods_beyond(self, count: int) -> list[LabPod]:
        """Return the pods that were made in this test after the first ones."""
        return list(self.pods)[self.before + count :]

    def bound(self) -> int:
        """Return how many pods of this test had a node."""
        return sum(one.bound_at is not None for one in self.pods_beyond(0))

    def push(self, count: int) -> list[Job]:
        """Push jobs that run until the test ends them."""
        first = len(self.lab.github.jobs)
        pushed = self.lab.github.push([job(f"{SKU}-{first + n}", SKU, LONG) for n in range(count)])
        self.jobs += pushed
        return pushed

    async def run(self, count: int) -> list[Job]:
        """Push jobs, and return them once all run."""
        pushed = self.push(count)
        await self.until_started(pushed)
        return pushed

    async def until_started(self, jobs: list[Job]) -> None:
        await self.until(lambda: started(jobs))

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return once this holds. Fails at once if the lab's kubelet has failed."""
        await until(self.lab, holds, self.why)

    async def end(self, jobs: list[Job]) -> None:
        """End jobs, and wait until GitHub shows that they have ended."""
        for one in jobs:
            self.lab.github.end(one)
        await self.until(lambda: all(one.status is JobStatus.COMPLETED for one in jobs))

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
        """End all jobs. Each ran once, in the only pod that was bound to a node for it. All records have ended.

        The scheduler may have refused a pod, because it saw an ended pod's end later than the list of free
        capacity did. Such a pod never had a node, and another one replaced it.
        """
        await self.end([one for one in self.jobs if one.status is not JobStatus.COMPLETED])
        await self.until(lambda: not self.pods.alive and not self.lab.github.runners)
        await self.until(lambda: not unsettled(self.lab))
        assert self.lab.wrong_jobs() == []
        assert self.bound() == len(self.jobs), self.ends()
        bound = [one.id for one in self.pods if one.bound_at is not None]
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
        return f"{states}\n{self.ends()}\n{self.lab.controller.log_end()}"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def proxy(cluster: Cluster) -> AsyncIterator[ApiProxy]:
    async with ApiProxy(cluster) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def lab(cluster: Cluster, proxy: ApiProxy) -> AsyncIterator[Laboratory]:
    """A laboratory whose controller uses the API server through the proxy. At last, no ended pod is left."""
    fleet = LabFleet(
        "acme",
        ("widgets",),
        {SKU: pod_sku()},
        # A moment without any CPU must not stretch ten lab minutes to many real ones.
        scale=max(5.0, yielding(20.0)),
        nodes=(LabNode({PARTITION: str(ROOM)}),),
    )
    async with Laboratory(fleet, cluster=cluster) as made:
        assert made.pods is not None
        pods = made.pods
        pods.send_through(proxy.url)
        await made.start_controller()
        yield made

        def none_is_left() -> bool:
            return all(one.ended_at is None for one in pods.left())

        await until(made, none_is_left)


@pytest_asyncio.fixture(loop_scope="session")
async def shift(cluster: Cluster, lab: Laboratory, proxy: ApiProxy) -> AsyncIterator[Shift]:
    assert lab.pods is not None
    found = Shift(lab, cluster, proxy, len(list(lab.pods)))
    try:
        yield found
    finally:
        proxy.ahead, proxy.breaks = 0.0, Breaks.NEVER
        for one in found.jobs:
            if one.status is not JobStatus.COMPLETED:
                lab.github.end(one)


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
    await shift.until(lambda: bool(shift.pods_beyond(RUNNING)))
    shift.cluster.stop_api_server()
    watched = len(shift.audited("watch"))
    # Jobs end meanwhile: their agents need only the controller and GitHub.
    await shift.end(running[:3])
    ended = {one.starts[0] for one in running[:3]}
    await shift.until(lambda: ended <= shift.exited_runners())
    await shift.restart_api_server()
    await shift.until_started(waiting)
    assert [one.status for one in running[3:]] == [JobStatus.IN_PROGRESS] * (RUNNING - 3)
    # The watch's version is too old, so it ends with 410 instead of lasting five minutes.
    await shift.until(lambda: len(shift.audited("watch")) > watched)
    await shift.each_job_ran_once_in_one_pod()


@pytest.mark.case(
    "the answers of the API server are lost on their way: the pods exist, and a repeat adopts them",
    topic="Kubernetes",
    source="Kubernetes: API Concepts",
)
async def test_lost_answers_double_no_pod(shift: Shift) -> None:
    running = await shift.run(RUNNING)
    created = len(shift.audited("create"))
    shift.proxy.break_connections(Breaks.AFTER)
    waiting = shift.push(ROOM - RUNNING)
    await shift.until(lambda: len(shift.pods_beyond(RUNNING)) >= len(waiting))
    await shift.end(running[:2])
    await shift.until(lambda: len(shift.audited("create")) > created + len(waiting))
    shift.proxy.break_connections(Breaks.NEVER)
    await shift.until_started(waiting)
    await shift.each_job_ran_once_in_one_pod()


@pytest.mark.case(
    "API Priority and Fairness rejects requests of the controller with 429 and Retry-After",
    topic="Kubernetes",
    source="Kubernetes: API Priority and Fairness",
)
async def test_throttled_answers_delay_jobs_only(shift: Shift) -> None:
    running = await shift.run(RUNNING)
    rejected = len(shift.audited("create", 429))
    async with rejected_requests(shift.pods):
        waiting = shift.push(ROOM - RUNNING)
        await shift.end(running[:2])
        await shift.until(lambda: len(shift.audited("create", 429)) > rejected)
    await shift.until_started(waiting)
    await shift.each_job_ran_once_in_one_pod()


@pytest.mark.case(
    "the API server's clock is hours ahead, and then hours behind",
    topic="Kubernetes",
    source="Kubernetes: ObjectMeta",
)
async def test_a_wrong_clock_of_the_api_server_ends_no_pod(shift: Shift) -> None:
    before = await shift.run(4)
    shift.proxy.ahead = 7_200.0
    during = await shift.run(4)
    shift.proxy.ahead = -7_200.0
    # A new controller reads all pods again, and compares them with its records.
    await shift.lab.controller.kill()
    await shift.lab.start_controller()
    await shift.run(4)
    assert [one.status for one in [*before, *during]] == [JobStatus.IN_PROGRESS] * 8
    await shift.each_job_ran_once_in_one_pod()


@pytest.mark.case(
    "a pod disappears while the controller cannot reach the API server, which then does not know the "
    "watch's version any more",
    topic="Kubernetes",
    source="Kubernetes: API Concepts",
)
async def test_a_pod_that_disappeared_unseen_leaves_nothing(shift: Shift) -> None:
    first, *others = await shift.run(RUNNING)
    [machine] = [
        one for one in shift.machines(MachineState.ASSIGNED) if one.work.runner == first.starts[0]
    ]
    shift.proxy.break_connections(Breaks.BEFORE)
    name = str(machine.placement.provider_id).partition(".")[0]
    path = f"/api/v1/namespaces/{shift.pods.namespace}/pods/{name}"
    await shift.pods.admin.request("DELETE", path, {"gracePeriodSeconds": 0})
    shift.cluster.stop_api_server()
    await shift.restart_api_server()
    lists = len(shift.audited("list"))
    shift.proxy.break_connections(Breaks.NEVER)
    # Lost: a missing pod is no proof of its end. Its agent may have had the time to report its exit.
    over = (MachineState.LOST, MachineState.TERMINATED)
    await shift.until(lambda: machine.id in {one.id for one in shift.machines(*over)})
    await shift.until(lambda: len(shift.audited("list")) > lists)
    # GitHub fails a job whose runner is silent.
    await shift.until(lambda: first.status is JobStatus.COMPLETED)
    assert [one.status for one in others] == [JobStatus.IN_PROGRESS] * len(others)
    await shift.end(others)
    await shift.until(lambda: not shift.lab.left())
    assert [(one.conclusion, len(one.starts)) for one in others] == [("success", 1)] * len(others)
    assert shift.bound() == RUNNING, shift.ends()
