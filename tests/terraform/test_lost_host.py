"""The controller's host is lost in the middle of a wave of jobs, with its volume and without.

With the volume, the new host continues with all records. A backup lacks the jobs and machines that came after
it. GitHub's lists have these jobs. Some of these machines run a job, and all end by themselves.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscaler.model.identifiers import RunnerName
from autoscaler.model.jobs.runners import machine_in_any_name
from lab.ec2.lifecycle import BY_ITSELF
from lab.ec2.moto import MotoProcess
from lab.laboratory import LabFleet, Laboratory
from lab.replicas.controllers import Controllers, make_controller
from tests.lab.system.harness import (
    CALL_TAG,
    Records,
    ec2_sku,
    job,
    read_records,
    until,
    wrong_runners,
    wrong_slots,
)
from tests.lab.system.pace import PATIENCE, yielding
from tests.terraform.account import front_of
from tests.terraform.hosts import Account, Host

LOG = logging.getLogger(__name__)
SKU = "linux.g5"
JOBS = 12


@contextlib.asynccontextmanager
async def place(moto: MotoProcess, folder: Path) -> AsyncIterator[tuple[Laboratory, Account]]:
    """A laboratory, and the account of its hosts."""
    fleet = LabFleet("acme", ("widgets",), {SKU: ec2_sku("g5.xlarge")}, scale=yielding(60.0))
    async with Laboratory(fleet, moto) as lab:
        front = front_of(moto.url, lab.ec2)
        await front.start()
        try:
            secrets = {
                name: (lab.folder / file).read_text()
                for name, file in (
                    ("github_app_private_key", "github-app.pem"),
                    ("webhook_secret", "webhook-secret"),
                    ("admin_token", "admin-token"),
                )
            }
            account = await asyncio.to_thread(Account, front.url, folder, secrets)
            yield lab, account
        finally:
            await front.close()


def fleet_file(lab: Laboratory) -> str:
    """Return the lab's fleet.yaml with the files of a host."""
    settings: dict[str, Any] = yaml.safe_load((lab.folder / "fleet.yaml").read_text())
    settings["github"]["apps"][0]["private_key_file"] = "secrets/github-app.pem"
    settings["github"]["webhook_secret_file"] = "secrets/webhook-secret"
    settings["server"]["admin_token_file"] = "secrets/admin-token"
    # The harness reads the store there; on a host it is a link to the folder of the volume.
    settings["store"] = f"sqlite:///{lab.folder}/store/state.db"
    settings["providers"]["lab"]["ec2"]["identity_certificates"] = [
        str(lab.folder / "identity.pem")
    ]
    return yaml.safe_dump(settings)


async def serve_on(lab: Laboratory, host: Host) -> None:
    """Prepare a host and start the controller on it."""
    await host.start()
    for name, target in (("store", host.data), ("state.db", host.data / "state.db")):
        (lab.folder / name).unlink(missing_ok=True)
        (lab.folder / name).symlink_to(target)
    printed = await asyncio.to_thread(host.succeed, "prepare")
    LOG.info("%s", printed)
    controller = make_controller(
        lab.fleet.program,
        lab.clock,
        lab.ec2.endpoint_url,
        host.run / "fleet.yaml",
        lab.controllers.url,
        lab.folder / "controller.log",
    )
    lab.controllers = Controllers([controller], None)
    await lab.start_controller()


def jobs_by_instance(lab: Laboratory, *records: Records) -> Counter[str]:
    """Return how many jobs each instance has started, by its ID. `records` have the machines of all runners."""
    instances = {
        str(machine.id): str(machine.placement.provider_id)
        for one in records
        for machine in one.machines
    }
    names = [RunnerName(name) for one in lab.github.jobs for name in one.starts]
    return Counter(instances[str(machine_in_any_name("lab", name))] for name in names)


def doubled_machines(lab: Laboratory, old: Records, backup_began: float) -> list[str]:
    """Describe each machine that is one too many after a restore.

    The backup lacks the launch requests that came after it, so the new controller does not know their machines.
    It may neither terminate them nor launch a machine for a job that one of them runs. `old` are the records
    at the loss, and `backup_began` is in lab time.
    """
    new = read_records(lab)
    jobs = jobs_by_instance(lab, old, new)
    requests, known = ({str(call.id) for call in records.calls} for records in (old, new))
    failed = {one.placement.provider_id for one in new.machines if one.failure is not None}
    found = []
    for one in lab.ec2.instances:
        request = one.tags[CALL_TAG]
        if jobs[one.id] > 1:
            found.append(f"{one.id} ran {jobs[one.id]} jobs")
        if request not in known:
            if request not in requests or one.launched_at < backup_began:
                found.append(f"{one.id} is not in the backup, and was not launched after it")
            if one.reason is None or one.reason[0] != BY_ITSELF[0]:
                found.append(f"{one.id} did not end by itself: {one.reason}")
        elif request not in requests and not jobs[one.id] and one.id not in failed:
            found.append(f"{one.id} was launched for a job that another machine ran")
    return found


def unknown_machines_with_jobs(lab: Laboratory, old: Records) -> list[str]:
    """Return the IDs of instances that ran a job and whose launch request the store lacks."""
    new = read_records(lab)
    jobs, known = jobs_by_instance(lab, old, new), {str(call.id) for call in new.calls}
    return [one.id for one in lab.ec2.instances if jobs[one.id] and one.tags[CALL_TAG] not in known]


@pytest.mark.parametrize("lost", ["host", "host and volume"])
@pytest.mark.case(
    "the controller's host is lost in a wave of jobs: a new one takes the volume, or the newest backup",
    topic="EC2's machines",
    source="EC2: how termination works",
)
async def test_a_new_host_takes_over_without_losing_a_job_or_doubling_a_machine(
    moto: MotoProcess, tmp_path: Path, lost: str
) -> None:
    async with place(moto, tmp_path) as (lab, account):
        await asyncio.to_thread(account.put_fleet_file, fleet_file(lab))
        # In a thread, because the front answers in this one.
        old = await asyncio.to_thread(Host, account, "old")
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(old.close)
            stack.push_async_callback(lambda: lab.controller.terminate())
            await serve_on(lab, old)
            jobs = lab.github.push([job(f"job {n}", SKU, 300.0) for n in range(JOBS)])
            await until(
                lambda: sum(bool(one.starts) for one in jobs) >= JOBS // 2,
                PATIENCE,
                lab.controller.log_end,
            )
            backup_began = lab.clock.now()
            await asyncio.to_thread(old.succeed, "backup")
            # Jobs that come after the backup. At the loss, one of them runs, and other machines boot or wait.
            late = lab.github.push([job(f"late job {n}", SKU, 300.0) for n in range(JOBS)])
            await until(lambda: any(one.starts for one in late), PATIENCE, lab.controller.log_end)
            began = time.monotonic()
            await lab.controller.kill()
            records = read_records(lab)
            await asyncio.to_thread(account.lose, old.instance, lost == "host and volume")
            new = await asyncio.to_thread(Host, account, "new")
            stack.push_async_callback(new.close)
            await serve_on(lab, new)
            LOG.info("%s lost: ready again after %.1f s", lost, time.monotonic() - began)
            await until(lambda: not lab.github.unfinished, PATIENCE, lab.controller.log_end)
            await until(lambda: not lab.ec2.machines_left(), PATIENCE, lab.controller.log_end)
            assert lab.wrong_jobs() == []
            if lost == "host":
                assert wrong_slots(lab) == []
                assert wrong_runners(lab) == []
                # On a slow host, machines that boot while the controller is away give up, and are replaced.
                known = {machine.placement.provider_id for machine in read_records(lab).machines}
                assert {instance.id for instance in lab.ec2.instances} == known
                assert await asyncio.to_thread(account.holders) == [new.instance]
            else:
                # The new controller does not know every machine that ran a job.
                assert unknown_machines_with_jobs(lab, records) != []
                assert doubled_machines(lab, records, backup_began) == []
