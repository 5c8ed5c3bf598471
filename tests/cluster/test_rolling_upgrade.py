"""Replaces three replicas by those of the next version, as a Deployment does it, while jobs run in pods.

The replicas, PostgreSQL, the API server, its scheduler and the agents are real programs. The test plays the
Deployment, kubelet and the Service of the replicas, with the times of the shipped manifests.
"""

import asyncio
import hmac
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import aiohttp
import psycopg
import pytest

from lab.controller_process import ControllerProcess
from lab.fleet import Probe
from lab.github.records import Job, JobStatus
from lab.kubernetes.cluster import Cluster
from lab.kubernetes.lab_pods import LabNode
from lab.laboratory import LabFleet, Laboratory
from tests.cluster.test_jobs_in_pods import PARTITION, of, pod_sku
from tests.deploy.kustomization import build
from tests.deploy.manifests import COMPONENTS, KUBERNETES
from tests.lab.system import harness
from tests.lab.system.harness import REPOSITORY, job, started
from tests.lab.system.pace import PATIENCE, yielding
from tests.store.next_schema import NEXT_SCHEMA

pytestmark = pytest.mark.asyncio(loop_scope="session")

NEXT_VERSION = ("-m", "tests.cluster.next_version")
REPLICAS = 3
SKU = "rocm"
SCALE = 60.0
LONG, SHORT = 86_400.0, 60.0
"""Lab seconds that a job takes. The test ends the long ones after the upgrade."""

DELIVER_EVERY = 0.2
GITHUB_WAITS = 10.0
"""Real seconds on a quiet host (GitHub's documentation, "Best practices for using webhooks")."""

UNKNOWN_JOBS = 10**12
"""IDs from here on are of jobs that the lab's GitHub does not have."""


@dataclass(frozen=True)
class Pod:
    """What the Deployment says about the replicas' pods. `pre_stop` is a part of `grace`."""

    probe: Probe
    pre_stop: float
    grace: float

    def stretched(self, times: float) -> "Pod":
        """Return the same for a host that is so many times slower: deliveries take longer, too."""
        return Pod(self.probe, self.pre_stop * times, self.grace * times)


def shipped() -> Pod:
    """Return the times of the shipped manifests. Another test compares the Helm chart with them."""
    objects = build(KUBERNETES / "base", COMPONENTS / "postgresql")
    [workload] = [one["spec"] for one in objects if one["kind"] == "Deployment"]
    assert workload["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    spec = workload["template"]["spec"]
    [container] = spec["containers"]
    readiness = container["readinessProbe"]
    program, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    assert program == "sleep"
    # Three is Kubernetes' default.
    failures = readiness.get("failureThreshold", 3)
    probe = Probe(readiness["periodSeconds"], readiness["timeoutSeconds"], failures)
    return Pod(probe, float(seconds), spec["terminationGracePeriodSeconds"])


@dataclass
class Sender:
    """Posts a signed delivery every `DELIVER_EVERY` seconds, on a connection of its own, and repeats none.

    `answers` are statuses, or errors, by the ID of the delivery.
    """

    url: str
    secret: bytes
    limit: float
    answers: dict[str, int | str] = field(default_factory=dict)

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Send until the end, and wait for the last answer."""
        ended = asyncio.Event()
        sending = asyncio.create_task(self._send_until(ended))
        try:
            yield
        finally:
            ended.set()
            await sending

    async def _send_until(self, ended: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            for number in count(UNKNOWN_JOBS):
                if ended.is_set():
                    return
                group.create_task(self._post(number))
                await asyncio.sleep(DELIVER_EVERY)

    async def _post(self, number: int) -> None:
        guid, body = f"upgrade-{number}", completed(number)
        headers = {
            "Content-Type": "application/json",
            "X-GitHub-Delivery": guid,
            "X-GitHub-Event": "workflow_job",
            "X-Hub-Signature-256": f"sha256={hmac.digest(self.secret, body, 'sha256').hex()}",
        }
        began = time.monotonic()
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(self.limit)) as session,
                session.post(self.url, data=body, headers=headers) as answer,
            ):
                self.answers[guid] = answer.status
        except (aiohttp.ClientError, TimeoutError) as error:
            self.answers[guid] = f"{error!r} after {time.monotonic() - began:.1f} s"


def completed(number: int) -> bytes:
    """Return the body of a delivery about a job that has ended, so that it needs no machine."""
    ended: dict[str, Any] = {"id": number, "labels": ["other"], "status": "completed"}
    event = {
        "action": "completed",
        "workflow_job": {**ended, "conclusion": "success"},
        "repository": {"full_name": REPOSITORY},
    }
    return json.dumps(event).encode()


@asynccontextmanager
async def pushing(lab: Laboratory) -> AsyncIterator[None]:
    """Push a short job, and the next one whenever the last one has ended, until the end."""

    async def push() -> None:
        for number in count():
            lab.github.push([job(f"short-{number}", SKU, SHORT)])
            while lab.github.jobs[-1].status is not JobStatus.COMPLETED:  # noqa: ASYNC110 - another process's doing
                await asyncio.sleep(0.05)

    task = asyncio.create_task(push())
    try:
        yield
    finally:
        task.cancel()


async def upgrade(lab: Laboratory, pod: Pod) -> None:
    """Replace one replica after the other, the one that leads first if it is of the earlier version."""
    earlier = list(lab.controllers.processes)
    while earlier:
        await lab.controllers.add(NEXT_VERSION)
        leader = await leading(lab)
        replica = leader if leader in earlier else earlier[0]
        earlier.remove(replica)
        assert await delete(lab, replica, pod) == 0, replica.log_end()
    assert (await leading(lab)) in lab.controllers.processes[REPLICAS:]


async def delete(lab: Laboratory, replica: ControllerProcess, pod: Pod) -> int:
    """Stop a replica as kubelet does once its pod is being deleted. Return the exit status.

    The Service hears of the deletion as well, but later: here, after half of the time of `pre_stop`
    (Kubernetes' documentation, "Pod Lifecycle", "Pod Termination Flow").
    """
    await asyncio.sleep(pod.pre_stop / 2)
    lab.controllers.take_out(replica)
    await asyncio.sleep(pod.pre_stop / 2)
    return await replica.terminate(pod.grace - pod.pre_stop)


async def leading(lab: Laboratory) -> ControllerProcess:
    """Return the replica that leads once there is one."""
    async with asyncio.timeout(PATIENCE):
        while (leader := await lab.controllers.leader()) is None:  # noqa: ASYNC110 - another process's doing
            await asyncio.sleep(0.1)
        return leader.process


def jobs(lab: Laboratory, name: str) -> list[Job]:
    """Return the jobs whose names begin like this."""
    return [one for one in lab.github.jobs if one.spec.name.startswith(name)]


async def until_started(lab: Laboratory, name: str) -> None:
    """Wait until the jobs whose names begin like this were started."""

    def holds() -> bool:
        of(lab).check()
        return started(jobs(lab, name))

    await harness.until(holds, PATIENCE, lambda: (jobs(lab, name), log_ends(lab)))


async def until_nothing_is_left(lab: Laboratory) -> None:
    """Wait until all jobs have ended, and no pod and no registration is left."""

    def why() -> tuple[list[str], list[str], list[str]]:
        return lab.wrong_jobs(), lab.left(), log_ends(lab)

    await harness.until(lambda: not lab.github.unfinished and not lab.left(), PATIENCE, why)


def log_ends(lab: Laboratory) -> list[str]:
    return [one.log_end(5) for one in lab.controllers.processes]


def events(lab: Laboratory) -> Counter[str]:
    """Count the events in the logs of all replicas."""
    lines = [
        line for file in lab.folder.glob("controller*.log") for line in file.read_text().split("\n")
    ]
    return Counter(json.loads(line)["event"] for line in lines if line.startswith("{"))


def stored(lab: Laboratory) -> tuple[str, set[str]]:
    """Return the schema of the store, and the IDs of the deliveries in it."""
    with psycopg.connect(lab.store) as connection:
        [[schema]] = connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchall()
        return schema, {guid for [guid] in connection.execute("SELECT id FROM inbox")}


async def test_an_upgrade_loses_no_job_and_no_delivery(cluster: Cluster) -> None:
    scale = yielding(SCALE)
    slowness = SCALE / scale
    pod = shipped().stretched(slowness)
    fleet = LabFleet(
        "acme",
        ("widgets",),
        {SKU: pod_sku()},
        scale=scale,
        nodes=(LabNode({PARTITION: "16"}),),
        replicas=REPLICAS,
        probe=pod.probe,
    )
    async with Laboratory(fleet, cluster=cluster) as lab:
        await lab.start_controller()
        lab.github.push([job(f"long-{number}", SKU, LONG) for number in range(2)])
        await until_started(lab, "long")
        secret = (lab.folder / "webhook-secret").read_bytes()
        sender = Sender(f"{lab.controllers.url}/webhook", secret, GITHUB_WAITS * slowness)
        async with sender.sending(), pushing(lab):
            await upgrade(lab, pod)
        lab.github.push([job("last", SKU, SHORT)])
        await until_started(lab, "")
        for running in jobs(lab, "long"):
            lab.github.end(running)
        await until_nothing_is_left(lab)
        assert await lab.controllers.terminate() == 0
        unanswered = {guid: answer for guid, answer in sender.answers.items() if answer != 202}
        assert not unanswered
        schema, deliveries = stored(lab)
        assert schema == NEXT_SCHEMA
        assert deliveries >= sender.answers.keys()
        # A job whose pod was deleted before its end would not be successful.
        assert lab.wrong_jobs() == []
        machines = {one.starts[0].rpartition("-")[0] for one in lab.github.jobs}
        assert len(machines) == len(lab.github.jobs)
        found = events(lab)
        assert found["serving"] <= 1 + REPLICAS
        assert found["leadership_ended"] == 0
