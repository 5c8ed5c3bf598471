"""What goes wrong in a laboratory at work, and how it ends."""

import asyncio
import os
import signal

import yaml

from autoscaler.model.catalogue import CapacityType
from lab.ec2.instances import InstanceState, Pool
from lab.ec2.lifecycle import RUNNER_TAG
from lab.github.records import JobStatus
from lab.github.settings import AnswerFault, DeliveryFaults, LabRunnerGroup, Limits
from lab.machine_host import RUNNER_VERSION
from tests.lab.system.harness import ORGANIZATION, SKU_TAG
from tests.lab.system.loaded_lab import LoadedLab, Settings

G_AND_VT = "L-DB2E81BA"
OLD_VERSION, EXPIRING_VERSION = "2.320.0", "2.337.0"
DAY = 86_400.0


async def nothing(_: LoadedLab) -> None:
    """The fault ends by itself, or stays."""


def as_before(_: Settings) -> None:
    """Change nothing."""


def _zones(instance_type: str) -> list[Pool]:
    return [Pool(instance_type, f"us-east-1{zone}", CapacityType.ON_DEMAND) for zone in "abcdef"]


async def no_capacity(made: LoadedLab) -> None:
    for pool in _zones("g5.xlarge"):
        made.lab.ec2.faults.set_capacity(pool, 0)


async def capacity_again(made: LoadedLab) -> None:
    for pool in _zones("g5.xlarge"):
        made.lab.ec2.faults.set_capacity(pool, None)


async def no_quota(made: LoadedLab) -> None:
    made.lab.ec2.quotas.set(G_AND_VT, 0)


async def quota_again(made: LoadedLab) -> None:
    made.lab.ec2.quotas.set(G_AND_VT, None)


async def gpus_missing(made: LoadedLab) -> None:
    made.machines.failing_checks["linux.g4dn"] = ("gpu_count", "0 GPUs of 1: nvidia-smi shows none")


async def gpus_again(made: LoadedLab) -> None:
    made.machines.failing_checks.clear()


async def webhooks_lost(made: LoadedLab) -> None:
    made.lab.github.disturb(DeliveryFaults(drop=1.0))


async def webhooks_again(made: LoadedLab) -> None:
    made.lab.github.disturb(DeliveryFaults())


async def secondary_limit(made: LoadedLab) -> None:
    request = r" /(orgs|repos)/"
    fault = AnswerFault("status", request=request, times=None, status=403, retry_after=60)
    made.lab.github.inject_faults(fault)


async def github_answers(made: LoadedLab) -> None:
    made.lab.github.inject_faults()


async def primary_limit(made: LoadedLab) -> None:
    made.lab.github.administration.leave_requests(0)


async def limit_reset(made: LoadedLab) -> None:
    made.lab.github.administration.limit(Limits())


async def group_excludes(made: LoadedLab) -> None:
    group = LabRunnerGroup("gpu", ("widgets",))
    made.lab.github.administration.replace_groups(ORGANIZATION, group)


async def group_admits(made: LoadedLab) -> None:
    made.lab.github.administration.replace_groups(ORGANIZATION, LabRunnerGroup("gpu"))


async def typo(made: LoadedLab) -> None:
    made.push("linux.g5x", "gadgets", 5)


async def outside_access(made: LoadedLab) -> None:
    made.push("linux.closed", "gadgets", 5)


async def from_fork(made: LoadedLab) -> None:
    made.push("linux.g6", "gadgets", 5, fork="stranger/gadgets")


async def jobs_cancelled(made: LoadedLab) -> None:
    for job in made.lab.github.jobs:
        if job.status is JobStatus.QUEUED and job.started_at is None:
            made.lab.github.cancel(job)


async def no_termination(made: LoadedLab) -> None:
    made.lab.ec2.faults.leak_next(6)


async def termination_again(made: LoadedLab) -> None:
    made.lab.ec2.faults.leak_next(0)
    for one in made.lab.ec2.instances:
        made.lab.ec2.faults.leak(one.id, leaks=False)


async def credentials_expired(made: LoadedLab) -> None:
    made.lab.ec2.faults.credentials_expired = True


async def credentials_renewed(made: LoadedLab) -> None:
    made.lab.ec2.faults.credentials_expired = False


async def slow(made: LoadedLab) -> None:
    made.memory["slow"] = asyncio.create_task(_stop_and_go(made.lab.controller.pid))


async def _stop_and_go(pid: int) -> None:
    try:
        while True:
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(2.0)
            os.kill(pid, signal.SIGCONT)
            await asyncio.sleep(1.5)
    finally:
        os.kill(pid, signal.SIGCONT)


async def fast_again(made: LoadedLab) -> None:
    made.memory["slow"].cancel()


async def disk_fills(made: LoadedLab) -> None:
    folder = made.memory["disk"]
    found = os.statvfs(folder)
    free, whole = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    with (folder / "filler").open("wb") as file:
        file.write(b"\0" * (free - whole // 20))


async def disk_is_emptied(made: LoadedLab) -> None:
    (made.memory["disk"] / "filler").unlink()


async def old_runner(made: LoadedLab) -> None:
    await _publish(made, "linux.g6", OLD_VERSION)


async def new_runner(made: LoadedLab) -> None:
    await _publish(made, "linux.g6", RUNNER_VERSION)


async def _publish(made: LoadedLab, sku: str, version: str) -> None:
    found = made.lab.ec2.images.named(f"{sku}-*")
    made.lab.ec2.images.publish(found[-1], f"{sku}-{len(found) + 1}", {RUNNER_TAG: version})


async def version_expires(made: LoadedLab) -> None:
    made.lab.github.end_runner_version(EXPIRING_VERSION, made.lab.clock.now() + 5 * DAY)
    await _publish(made, "linux.g6", EXPIRING_VERSION)


async def flood(made: LoadedLab) -> None:
    made.push("linux.cpu", "tools", 300)


def few_cpu_machines(settings: Settings) -> None:
    settings["skus"]["linux.cpu"]["max_machines"] = 20


async def machines_fall_silent(made: LoadedLab) -> None:
    at_work = [
        one
        for one in made.lab.ec2.instances
        if one.state is InstanceState.RUNNING and one.tags[SKU_TAG] == "linux.g6"
    ]
    for one in at_work[:4]:
        await made.lab.hang(one.id)


async def cost_limit(made: LoadedLab) -> None:
    cost = (await made.lab.controller.metrics())["autoscaler_cost_dollars_per_hour"]
    await _reload(made, dollars_per_hour=round(cost * 0.7, 2))


async def no_cost_limit(made: LoadedLab) -> None:
    await _reload(made)


async def _reload(made: LoadedLab, **limits: float) -> None:
    file = made.lab.folder / "fleet.yaml"
    settings = yaml.safe_load(file.read_text())
    settings["limits"] = {"machines": settings["limits"]["machines"], **limits}
    file.write_text(yaml.safe_dump(settings, sort_keys=False))
    await made.ask("POST", "/admin/reload")


async def pause(made: LoadedLab) -> None:
    await made.ask("POST", "/admin/pause", target="linux.g5")


async def resume(made: LoadedLab) -> None:
    await made.ask("POST", "/admin/resume", target="linux.g5")
