"""Waits for a laboratory and checks its end state.

It reads the controller's store as a file. Only `Operator` sends requests to the controller.
"""

import asyncio
import json
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from autoscaler.model.jobs.job import Job, JobState
from autoscaler.model.jobs.runners import Runner, RunnerState
from autoscaler.model.machines.launch_requests import LaunchRequest, LaunchRequestState
from autoscaler.model.machines.machine import Machine, MachineState
from autoscaler.store.codec import R, decode
from lab.github.records import Job as PushedJob
from lab.github.settings import JobSpec
from lab.laboratory import Laboratory
from tests.lab.system.pace import stretched

ORGANIZATION = "acme"
REPOSITORY = "acme/widgets"
CALL_TAG = "autoscaler:launch-request"
SKU_TAG = "autoscaler:sku"
_LOOK_EVERY = 0.05
_OPEN_ROWS = " UNION ALL ".join(
    f"SELECT 1 FROM {table} WHERE ended_at IS NULL"
    for table in ("jobs", "launch_requests", "machines", "runners")
).join(("SELECT count(*) FROM (", ")"))


@dataclass(frozen=True, slots=True)
class Records:
    """Everything in the four tables of the store."""

    jobs: tuple[Job, ...]
    calls: tuple[LaunchRequest, ...]
    machines: tuple[Machine, ...]
    runners: tuple[Runner, ...]


def read_records(lab: Laboratory) -> Records:
    """Read the store, whether or not its controller runs."""
    with closing(_store(lab)) as file:
        return records_in(file)


def history_of(lab: Laboratory, machine: str, event: str) -> list[str]:
    """Return the details of one kind of event in a machine's history."""
    query = "SELECT detail FROM history WHERE kind = 'machine' AND record = ? AND event = ?"
    with closing(_store(lab)) as file:
        return [detail for (detail,) in file.execute(query, (machine, event))]


def moments_of(lab: Laboratory, event: str) -> dict[str, float]:
    """Return when this kind of event last came into the history of each machine, in lab seconds."""
    query = (
        "SELECT record, max(at) FROM history WHERE kind = 'machine' AND event = ? GROUP BY record"
    )
    with closing(_store(lab)) as file:
        return dict(file.execute(query, (event,)))


def records_in(file: sqlite3.Connection) -> Records:
    """All records of an open store."""

    def of(kind: type[R], table: str) -> tuple[R, ...]:
        return tuple(decode(kind, text) for (text,) in file.execute(f"SELECT record FROM {table}"))

    return Records(
        of(Job, "jobs"),
        of(LaunchRequest, "launch_requests"),
        of(Machine, "machines"),
        of(Runner, "runners"),
    )


@contextmanager
def copied_store(lab: Laboratory) -> Iterator[sqlite3.Connection]:
    """Open a copy of a dead controller's store, so that the original stays untouched."""
    with TemporaryDirectory() as folder:
        for suffix in ("", "-wal"):
            shutil.copy(lab.folder / f"state.db{suffix}", folder)
        with closing(sqlite3.connect(Path(folder) / "state.db")) as file:
            yield file


def ec2_sku(*instance_types: str, **more: Any) -> dict[str, Any]:
    """A section of `skus` with one option."""
    return {"on": [{"provider": "lab", "instance_types": list(instance_types)}], **more}


def job(name: str, sku: str, seconds: float, repository: str = REPOSITORY) -> JobSpec:
    """A job for one SKU."""
    return JobSpec(name, repository, ("self-hosted", sku), seconds)


async def until(what: Callable[[], bool], patience: float, why: Callable[[], object]) -> None:
    """Return once `what` holds. Raises AssertionError with `why()` after `patience` s of a quiet host."""
    try:
        async with asyncio.timeout(stretched(patience)):
            while not what():  # noqa: ASYNC110 - what is waited for is another process's doing
                await asyncio.sleep(_LOOK_EVERY)
    except TimeoutError as error:
        raise AssertionError(why()) from error


async def shows(lab: Laboratory, expected: Mapping[str, object], patience: float) -> None:
    """Return once /metrics shows each of these numbers, by `name{labels}`; a `range` means any in it.

    The controller keeps the page for up to a second, so one reading may show what was true before.

    Raises:
        AssertionError: with what it shows of them after `patience` s of a quiet host.
    """
    shown: dict[str, float | None] = {}

    def fits(name: str, wanted: object) -> bool:
        return shown[name] in wanted if isinstance(wanted, range) else shown[name] == wanted

    try:
        async with asyncio.timeout(stretched(patience)):
            while not shown or not all(fits(name, wanted) for name, wanted in expected.items()):
                metrics = await lab.controller.metrics()
                shown = {name: metrics.get(name) for name in expected}
                await asyncio.sleep(_LOOK_EVERY)
    except TimeoutError as error:
        raise AssertionError(f"{shown}, not {dict(expected)}") from error


async def at_rest(lab: Laboratory, patience: float) -> None:
    """Wait until all jobs ended, no resource is left, and the store shows that."""

    def why() -> str:
        lines = [f"{lab.github.unfinished} jobs have not ended", *lab.wrong_jobs()[:10]]
        return "\n".join([*lines, *lab.left()[:10], *unsettled(lab)[:10], lab.controller.log_end()])

    await until(lambda: not lab.github.unfinished and not lab.left(), patience, why)
    await until(lambda: not _open_rows(lab), patience, why)


def unsettled(lab: Laboratory) -> list[str]:
    """Describe records that have not ended."""
    records = read_records(lab)
    found = [f"job {job.id} is {job.state}" for job in records.jobs if not _ended(job)]
    found += [
        f"call {c.id} is {c.state}"
        for c in records.calls
        if c.state is not LaunchRequestState.SETTLED
    ]
    found += [f"machine {m.id} is {m.state}" for m in records.machines if _lives(m)]
    found += [
        f"runner {r.name} is {r.state}" for r in records.runners if r.state is not RunnerState.DONE
    ]
    return found


def wrong_slots(lab: Laboratory) -> list[str]:
    """Describe machines at EC2 without a slot, or whose slot has another machine."""
    records = read_records(lab)
    slots = {str(call.id): len(call.slots) for call in records.calls}
    made = Counter(one.tags[CALL_TAG] for one in lab.ec2.instances)
    found = [
        f"call {call} has {slots.get(call, 0)} slots and {count} machines"
        for call, count in made.items()
        if count > slots.get(call, 0)
    ]
    taken = Counter((m.launch_request, m.slot) for m in records.machines)
    found += [f"slot {slot} is there {count} times" for slot, count in taken.items() if count > 1]
    bound = Counter(str(machine.placement.provider_id) for machine in records.machines)
    found += [
        f"{one.id} is bound {bound[one.id]} times"
        for one in lab.ec2.instances
        if bound[one.id] != 1
    ]
    return found


def wrong_runners(lab: Laboratory) -> list[str]:
    """Describe jobs whose runner differs between GitHub and the store."""
    known = {str(runner.name): runner for runner in read_records(lab).runners}
    return [
        f"{job.spec.name} was run by {job.starts}, the store says otherwise"
        for job in lab.github.jobs
        if job.starts and (job.starts[0] not in known or known[job.starts[0]].job != job.id)
    ]


def github_calls(lab: Laboratory) -> Counter[str]:
    """The controller's REST calls by status that count; not 304, nor machines' looks at GitHub."""
    found: Counter[str] = Counter()
    for (route, status), count in lab.github.calls.items():
        if route != "GET /" and status != 304:
            found[str(status)] += count
    return found


def log_lines(lab: Laboratory, event: str) -> list[dict[str, Any]]:
    """Return the controller's log lines of one event."""
    lines = lab.controller.log_end(100_000).splitlines()
    entries = [json.loads(line) for line in lines if line.startswith("{")]
    return [entry for entry in entries if entry["event"] == event]


class Operator:
    """Runs the operator's commands."""

    def __init__(self, lab: Laboratory) -> None:
        self._file = lab.folder / "fleet.yaml"

    async def says(self, *arguments: str) -> tuple[int, str]:
        """Run a command and return its exit status and output."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "autoscaler.cli", *arguments, "--config", str(self._file)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate()
        return process.returncode or 0, printed.decode()

    async def unverified(self) -> list[str]:
        """Return the lines about unverified machines."""
        status, printed = await self.says("unverified")
        assert status == (0 if printed == "no unverified machines\n" else 1), printed
        return printed.splitlines() if status else []


def started(jobs: list[PushedJob]) -> bool:
    """Return True if all of these jobs were started."""
    return all(job.starts for job in jobs)


def _open_rows(lab: Laboratory) -> int:
    """Return the number of rows without an end: like `unsettled`, without reading every record."""
    with closing(_store(lab)) as file:
        (total,) = file.execute(_OPEN_ROWS).fetchone()
    return int(total)


def _store(lab: Laboratory) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{lab.folder / 'state.db'}?mode=ro", uri=True)


def _ended(job: Job) -> bool:
    return job.state is JobState.COMPLETED


def _lives(machine: Machine) -> bool:
    if machine.state is MachineState.FAILED:
        return machine.placement.provider_id is not None
    return machine.state is not MachineState.TERMINATED
