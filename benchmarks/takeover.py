"""How long it takes until another replica leads, after SIGKILL and after SIGTERM of the one that leads.

Run: `PYTHONPATH=. python benchmarks/takeover.py [--rounds 20] [--rows 100000] [--scale 20]`. Two replicas, a
real PostgreSQL server, and the laboratory's GitHub, EC2 and machines on this host. Jobs are queued all the
while. `--rows` are jobs, each with a row of history, that the store has before. They have just ended, and with
them the laboratory's clock is real time, so that each leader of the next ten minutes loads them. Otherwise it
is `--scale` times as fast. Times count from the signal until the other replica's `autoscaler_leader` is 1, and
until its /readyz no longer says that its control loop has made no pass. The third column counts from the lease,
by the replica's log.

The last lines say whether each job ran once, whether a launch request got more machines than it was for, which
machines ran no job, and what is left. Exit status 1 for the first two, or if something is left.
A machine powers itself off after 15 minutes of the laboratory's clock without an answer, as the agent does.
With `--scale 60` these are 15 s, less than a takeover after SIGKILL.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from statistics import median
from typing import NamedTuple

import aiohttp

from autoscaler.controller.ports.store import HistoryRow
from autoscaler.model.jobs.job import JobState
from autoscaler.store.postgresql.store import PostgresqlStore
from lab.controller_process import ControllerProcess
from lab.fleet import LabFleet
from lab.github.settings import JobSpec
from lab.laboratory import Laboratory
from lab.read_store import read_store
from lab.stored import Stored
from tests.store.opened import open_leading
from tests.store.records import job

LABEL, REPOSITORY = "linux.gpu", "acme/widgets"
SCALE = 20.0
JOB_SECONDS = 5.0
"""Real seconds."""

MOST_MACHINES = 500
PUSH_EVERY = 0.5
PATIENCE = 120.0
DEADLINE = 180.0
"""Real seconds for a machine's boot and its checks: it may be slower than the lab's clock on a busy host."""

IDLE = 30.0
"""Real seconds until a ready machine without a job is terminated."""

_LOOK_EVERY = 0.02
_BATCH = 1000
_NO_PASS = "the control loop has made no pass yet"


class Times(NamedTuple):
    """Seconds of one takeover."""

    leads: float
    plans: float
    lease_to_plan: float


async def take_over(lab: Laboratory, signal: str) -> Times:
    """End the leader, measure, and start it again."""
    leader = await leading_replica(lab)
    (other,) = (one for one in lab.controllers.processes if one is not leader)
    began, began_at = time.monotonic(), time.time()
    ending = asyncio.create_task(leader.kill() if signal == "SIGKILL" else leader.terminate())
    async with aiohttp.ClientSession() as session:
        await until(lambda: leads(other))
        leading = time.monotonic() - began
        await until(lambda: has_planned(session, other))
        planned = time.monotonic() - began
        await ending
        leased = leased_at(other) - began_at
        await leader.start()
        await leader.ready()
        await other.ready()
    return Times(leading, planned, planned - leased)


async def until(what: Callable[[], Awaitable[bool]]) -> None:
    """Return once `what` holds. Raises TimeoutError."""
    async with asyncio.timeout(PATIENCE):
        while not await what():  # noqa: ASYNC110 - another process's doing
            await asyncio.sleep(_LOOK_EVERY)


async def leading_replica(lab: Laboratory) -> ControllerProcess:
    """Return the replica that leads, once one does. Raises TimeoutError."""
    async with asyncio.timeout(PATIENCE):
        while (leader := await lab.controllers.leader()) is None:  # noqa: ASYNC110 - other processes' doing
            await asyncio.sleep(_LOOK_EVERY)
    return leader.process


async def leads(replica: ControllerProcess) -> bool:
    """Return whether a replica leads."""
    return bool((await replica.metrics()).get("autoscaler_leader"))


async def has_planned(session: aiohttp.ClientSession, replica: ControllerProcess) -> bool:
    """Return whether the control loop of a replica that leads has made a pass."""
    async with session.get(f"{replica.url}/readyz") as answer:
        return _NO_PASS not in await answer.text()


def leased_at(replica: ControllerProcess) -> float:
    """Return when a replica last took the lease, by its log, in Unix seconds."""
    lines = [json.loads(line) for line in replica.log_end(10**6).splitlines() if line[:1] == "{"]
    taken = [one for one in lines if one["event"] == "lease_seen" and one["mine"]]
    return datetime.fromisoformat(taken[-1]["time"]).timestamp()


async def push_repeatedly(lab: Laboratory) -> None:
    """Queue jobs until cancelled."""
    number, seconds = 0, JOB_SECONDS * lab.clock.scale
    while True:
        number += 1
        lab.github.push([JobSpec(f"job {number}", REPOSITORY, (LABEL,), seconds)])
        await asyncio.sleep(PUSH_EVERY)


async def fill(lab: Laboratory, rows: int) -> None:
    """Store jobs that have just ended."""
    store: PostgresqlStore = await open_leading(lab.store)
    ended = lab.clock.now()
    for first in range(0, rows, _BATCH):
        numbers = range(10**9 + first, 10**9 + first + _BATCH)
        jobs = [
            replace(job(one), state=JobState.COMPLETED, completed_at=ended, updated_at=ended)
            for one in numbers
        ]
        history = [HistoryRow(ended, "job", str(one), "completed", "read") for one in numbers]
        await store.commit(jobs, history)
    await store.close()


async def measure(rounds: int, scale: float, rows: int) -> int:
    """Measure and print. Return the exit status."""
    section = {
        "on": [{"provider": "lab", "instance_types": ["g5.xlarge"]}],
        "deadlines": dict.fromkeys(
            ("boot", "health_checks", "ready_silence"), f"{DEADLINE * scale:.0f}s"
        ),
        "idle": {"timeout": f"{IDLE * scale:.0f}s"},
    }
    fleet = LabFleet(
        "acme",
        ("widgets",),
        {LABEL: section},
        scale=scale,
        most_machines=MOST_MACHINES,
        replicas=2,
    )
    async with Laboratory(fleet) as lab:
        if rows:
            await fill(lab, rows)
        await lab.start_controller()
        pushing = asyncio.create_task(push_repeatedly(lab))
        try:
            for signal in ("SIGTERM", "SIGKILL"):
                await measure_all(lab, signal, rounds)
        finally:
            pushing.cancel()
        left = await settled(lab)
        status = await lab.controllers.terminate()
        await print_left(lab, left)
        stored = await read_store(lab.store, lab.folder / "state.db")
        return verdict(lab, stored, status) or int(bool(left))


async def settled(lab: Laboratory) -> list[str]:
    """Wait until all jobs have ended and nothing is left. Return what is left after the longest deadline."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE + DEADLINE):
            await lab.github.settled()
            while lab.left():  # noqa: ASYNC110 - other processes' doing
                await asyncio.sleep(_LOOK_EVERY)
    return lab.left()


async def print_left(lab: Laboratory, left: Sequence[str]) -> None:
    """Print what is left, and what the stopped controllers' store has of the machines among it."""
    if not left:
        return
    print(f"{lab.clock.now():.0f} left:", *left, sep="\n")
    ids = {one.id for one in lab.ec2.machines_left()}
    store = await open_leading(lab.store)
    try:
        for machine in (await store.load(0.0)).machines:
            if machine.placement.provider_id in ids:
                print(machine, *await store.history("machine", machine.id), sep="\n")
    finally:
        await store.close()


async def measure_all(lab: Laboratory, signal: str, rounds: int) -> None:
    """End the leader so many times, and print each time and their median."""
    found = []
    for number in range(rounds):
        found.append(await take_over(lab, signal))
        print(signal, number + 1, *(f"{one:.2f}" for one in found[-1]), flush=True)
    print_times(f"{rounds} x {signal}", found)


def print_times(title: str, found: Sequence[Times]) -> None:
    """Print median and longest of each time."""
    columns = zip(Times._fields, zip(*found, strict=True), strict=True)
    print(title, *(f"{name}: {median(of):.2f} s, max {max(of):.2f} s;" for name, of in columns))


def verdict(lab: Laboratory, stored: Stored, status: int) -> int:
    """Print what the jobs and the machines came to. Return the exit status."""
    machines = [one.tags["autoscaler:launch-request"] for one in lab.ec2.instances]
    doubled = {one for one in machines if machines.count(one) > stored.requests.get(one, 0)}
    wrong = lab.wrong_jobs()
    print(
        f"{len(lab.github.jobs)} jobs, {len(wrong)} of them did not run exactly once; "
        f"{len(machines)} machines; launch requests with more machines than slots: {len(doubled)}; "
        f"exit status {status}"
    )
    print(*wrong[:10], sep="\n")
    print_unused(lab, stored)
    return int(bool(wrong or doubled or status))


def print_unused(lab: Laboratory, stored: Stored) -> None:
    """Print how many machines ran no job, by EC2's reason for their end, and how old they became."""
    started = {name for job in lab.github.jobs for name in job.starts}
    used = {stored.steps[name].instance for name in started if name in stored.steps}
    ages: dict[str, list[float]] = {}
    for one in lab.ec2.instances:
        if one.id not in used:
            reason = one.reason[0] if one.reason is not None else str(one.state)
            age = (one.ended_at or lab.clock.now()) - one.launched_at
            ages.setdefault(reason, []).append(age)
    print("machines without a job:", sum(map(len, ages.values())))
    for reason, found in ages.items():
        print(f"  {len(found)} x {reason}, after {median(found):.0f} s of the lab's clock (median)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--scale", type=float, help="without --rows (default: 20)")
    options = parser.parse_args()
    speed = 1.0 if options.rows else options.scale or SCALE
    sys.exit(asyncio.run(measure(options.rounds, speed, options.rows)))
