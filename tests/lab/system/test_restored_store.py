"""A store is restored from a backup, or lost, while machines are at work: no job dies.

Nothing is launched twice, and unverified machines are shown to an operator and terminated on command.
Both stories begin together, each in a laboratory of its own, for most of a story is waiting for jobs.
"""

import asyncio
import math
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from autoscaler.model.machines.launch_requests import LaunchRequestState
from autoscaler.model.machines.machine import TerminationReason
from lab.ec2.instances import IN_USE
from lab.ec2.moto import MotoProcess
from lab.github.records import Job as PushedJob
from lab.laboratory import LabFleet, Laboratory
from lab.machines.interception import MachineRequest
from tests.lab.system.harness import (
    CALL_TAG,
    Operator,
    ec2_sku,
    job,
    read_records,
    shows,
    started,
    until,
)
from tests.lab.system.pace import PATIENCE, yielding

pytestmark = pytest.mark.asyncio(loop_scope="module")

SKU = "linux.g5"
SCALE = 60.0
INSTALLATION_TAG = "autoscaler:installation"


class StaysOn:
    """Stops machines when they report their exit, so that they stay after their jobs."""

    def __init__(self) -> None:
        self.lab: Laboratory
        self.wanted = 0
        self.spared: frozenset[str] = frozenset()
        self.hung: list[str] = []

    async def before(self, said: MachineRequest) -> bool:
        if said.step != "exit" or not self.wanted or said.machine in self.spared:
            return True
        self.wanted -= 1
        known = {
            machine.id: machine.placement.provider_id for machine in read_records(self.lab).machines
        }
        instance = str(known[said.machine])  # type: ignore[index]
        await self.lab.hang(instance)
        self.hung.append(instance)
        return False

    async def after(self, _said: MachineRequest, _status: int, _answer: dict[str, Any]) -> None:
        """Do nothing with answers."""


def fleet(listener: StaysOn) -> LabFleet:
    skus = {SKU: ec2_sku("g5.xlarge")}
    return LabFleet(
        "acme", ("widgets",), skus, scale=yielding(SCALE), most_machines=300, listener=listener
    )


def push(lab: Laboratory, name: str, count: int, seconds: float = math.inf) -> list[PushedJob]:
    """Jobs that run for `seconds`; without any, until `end`."""
    return lab.github.push([job(f"{name} {n}", SKU, seconds) for n in range(count)])


def end(lab: Laboratory, jobs: list[PushedJob]) -> None:
    for one in jobs:
        lab.github.end(one)


def back_up(lab: Laboratory, to: Path) -> None:
    """Back the store up as documented, while the controller writes."""
    with (
        closing(sqlite3.connect(lab.folder / "state.db")) as of,
        closing(sqlite3.connect(to)) as copy,
    ):
        of.backup(copy)


def lose(lab: Laboratory) -> None:
    for suffix in ("", "-wal", "-shm"):
        (lab.folder / f"state.db{suffix}").unlink(missing_ok=True)


def ids_of(lines: list[str]) -> set[str]:
    """The provider's ids in the operator's list."""
    return {word for line in lines for word in line.split() if word.startswith("i-")}


def at_work(lab: Laboratory) -> set[str]:
    return {one.id for one in lab.ec2.instances if one.state in IN_USE}


async def shown(lab: Laboratory, operator: Operator) -> list[str]:
    """Return the operator's lines when only machines with a job are left in them."""
    async with asyncio.timeout(PATIENCE):
        while True:
            before = at_work(lab)
            lines = await operator.unverified()
            if at_work(lab) <= ids_of(lines) <= before:
                return lines


async def all_have_ended(lab: Laboratory, left: Callable[[], set[str]]) -> None:
    await until(lambda: not lab.github.unfinished, PATIENCE, lab.controller.log_end)
    await until(lambda: at_work(lab) == left(), PATIENCE, lab.controller.log_end)
    assert lab.wrong_jobs() == []
    # One machine for each job, whatever the store knew of it.
    assert len(list(lab.ec2.instances)) == len(lab.github.jobs)


Stories = tuple[asyncio.Task[None], asyncio.Task[None]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stories(
    tmp_path_factory: pytest.TempPathFactory, moto: MotoProcess
) -> AsyncIterator[Stories]:
    """Both, under way: of a restored store, and of a lost one."""
    backup = tmp_path_factory.mktemp("restored") / "backup"
    under_way = asyncio.create_task(_restored(backup, moto)), asyncio.create_task(_lost(moto))
    yield under_way
    for story in under_way:
        story.cancel()
    await asyncio.wait(under_way)


@pytest.mark.case(
    "an older backup is restored while machines are at work: no job dies, nothing is launched "
    "twice",
    topic="EC2's machines",
    source="SQLite: backup",
)
@pytest.mark.case(
    "a backup was made while a launch request was in flight",
    topic="EC2's machines",
    source="SQLite: backup",
)
async def test_after_a_restore_no_job_is_lost_and_no_machine_is_launched_twice(
    stories: Stories,
) -> None:
    restored, _ = stories
    await restored


@pytest.mark.case(
    "the store is lost: an operator names the installation whose machines belong to the fleet",
    topic="EC2's machines",
    source="ARC#4397",
)
async def test_after_a_lost_store_an_operator_adopts_the_old_installation(
    stories: Stories,
) -> None:
    _, lost = stories
    await lost


async def _restored(backup: Path, moto: MotoProcess) -> None:
    listener = StaysOn()
    async with Laboratory(fleet(listener), moto) as lab:
        listener.lab, operator = lab, Operator(lab)
        await lab.start_controller()
        long = push(lab, "before", 50)
        await until(lambda: started(long), PATIENCE, lab.controller.log_end)
        lab.ec2.faults.lose_answers("CreateFleet", 1, then=lambda _: back_up(lab, backup))
        half = push(lab, "half way", 30)
        await until(backup.exists, PATIENCE, lab.controller.log_end)
        assert not any(one.starts for one in half)
        # First these: on a busy host their machines could come last, and then run the short jobs.
        await until(lambda: started(half), PATIENCE, lab.controller.log_end)
        # Most machines that the backup has are verified.
        listener.spared = frozenset(str(machine.id) for machine in read_records(lab).machines)
        listener.wanted = 3
        later = [*half, *push(lab, "after", 50), *push(lab, "short", 20, 30.0)]
        await until(
            lambda: started(later) and len(listener.hung) == 3, PATIENCE, lab.controller.log_end
        )
        await lab.controller.kill()
        lose(lab)
        shutil.move(backup, lab.folder / "state.db")
        calls = read_records(lab).calls
        assert any(call.state is LaunchRequestState.SENT for call in calls), (
            "it was made in mid-call"
        )
        known = {call.id for call in calls}
        unknown = {
            one.id
            for one in lab.ec2.instances
            if one.state in IN_USE and one.tags[CALL_TAG] not in known
        }
        assert len(unknown) > 40
        await lab.start_controller()
        assert ids_of(await operator.unverified()) >= unknown & at_work(lab)
        status, said = await operator.says("terminate", listener.hung[0])
        assert (status, "that may be on it" in said) == (1, True), said
        push(lab, "new", 10, 30.0)
        end(lab, [*long, *later])
        await all_have_ended(lab, lambda: set(listener.hung))
        await until(
            lambda: not _open_machines(lab) - set(listener.hung), PATIENCE, lab.controller.log_end
        )
        assert ids_of(await operator.unverified()) == set(listener.hung)
        assert (await operator.says("terminate", "i-unknown"))[0] == 1
        for one in listener.hung:
            assert (await operator.says("terminate", one))[0] == 0
        await until(lambda: not lab.left(), PATIENCE, lab.controller.log_end)
        await until(lambda: not _open_machines(lab), PATIENCE, lab.controller.log_end)
        assert await operator.unverified() == []
        reason_codes = {
            str(m.placement.provider_id): m.termination.reason for m in read_records(lab).machines
        }
        assert {reason_codes[one] for one in listener.hung} == {TerminationReason.OPERATOR}
        # The controller terminated no other machine: each powered itself off after its job.
        assert {
            reason_code for one, reason_code in reason_codes.items() if one not in listener.hung
        } <= {
            TerminationReason.POWERED_OFF,
            TerminationReason.SHUT_DOWN,
            TerminationReason.EXITED,
        }


async def _lost(moto: MotoProcess) -> None:
    listener = StaysOn()
    async with Laboratory(fleet(listener), moto) as lab:
        listener.lab, operator = lab, Operator(lab)
        await lab.start_controller()
        listener.wanted = 1
        long = [*push(lab, "short", 1, 30.0), *push(lab, "before", 40)]
        await until(
            lambda: started(long) and len(listener.hung) == 1, PATIENCE, lab.controller.log_end
        )
        (old,) = {one.tags[INSTALLATION_TAG] for one in lab.ec2.instances}
        await lab.controller.kill()
        lose(lab)
        await lab.start_controller()
        assert len(list(lab.ec2.instances)) == 41
        lines = await shown(lab, operator)
        # Machines without a job terminate meanwhile.
        foreign = range(len(at_work(lab)), len(lines) + 1)
        await shows(lab, {"autoscaler_machines_foreign": foreign}, PATIENCE)
        assert all(f"adopt {old}" in line for line in lines)
        status, said = await operator.says("terminate", listener.hung[0])
        assert (status, "another installation" in said) == (1, True), said
        status, said = await operator.says("adopt", "0badcafe")
        assert (status, f"shown are: {old}" in said) == (1, True), said
        status, said = await operator.says("adopt", old)
        assert status == 0, said
        assert await shown(lab, operator)
        new = push(lab, "new", 10, 30.0)
        end(lab, long)
        await all_have_ended(lab, lambda: set(listener.hung))
        # From now on, also after a restart, tags and names have the ID of the old installation.
        assert {one.tags[INSTALLATION_TAG] for one in lab.ec2.instances} == {old}
        assert all(one.starts[0].startswith(f"lab-{old}-") for one in new)
        assert await lab.controller.terminate() == 0
        await lab.start_controller()
        await shows(lab, {"autoscaler_machines_foreign": 0}, PATIENCE)
        assert (await operator.says("terminate", listener.hung[0]))[0] == 0
        await until(lambda: not lab.left(), PATIENCE, lab.controller.log_end)


def _open_machines(lab: Laboratory) -> set[str]:
    return {str(one.placement.provider_id) for one in read_records(lab).machines if one.occupies}
