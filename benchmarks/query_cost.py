"""Measures what operators' questions cost the event loop, in milliseconds of CPU time.

Run: `PYTHONPATH=. python benchmarks/query_cost.py [--large]`. Each figure is the minimum of several answers,
their JSON included. `scans` is the same cost in units of one scan that reads an attribute of every machine and
job, so that hosts can be compared.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from autoscaler.ledger.ledger import Ledger
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import ProviderName
from autoscaler.model.jobs.job import Job, JobState
from autoscaler.planner.planner import plan
from autoscaler.server.operators.filters import MAX_ROWS, MAX_SKIPPED
from autoscaler.views.faults.counts import Counts
from autoscaler.views.jobs.explanation import explain_job
from autoscaler.views.jobs.lists import JobFilter, running_jobs, waiting_jobs
from autoscaler.views.jobs.waits import Reasons
from autoscaler.views.listed import Part
from autoscaler.views.machines import MachineFilter, machines
from autoscaler.views.preview import demand_of, preview, under
from autoscaler.views.status import status
from benchmarks import sent_fleet
from benchmarks.crowded_fleet import NOW, Crowd, crowded

TRIES = 7


def main() -> None:
    """Print a line for each question."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="100,000 machines and jobs instead")
    large = parser.parse_args().large
    size = (100_000, 100_000) if large else (3_500, 10_000)
    ledger = crowded(Crowd(*size, most_machines=size[0]))
    scan = cheapest(lambda: _scan(ledger))
    print(f"{size[0]:,} machines, {size[1]:,} jobs")
    for name, ask in _questions(ledger).items():
        took = cheapest(ask)
        print(f"{name:48}{1000 * took:8.2f} ms{took / scan:8.2f} scans")


def cheapest(ask: Callable[[], object]) -> float:
    """Return the least CPU time of several answers, in seconds."""
    times = []
    for _ in range(TRIES):
        began = time.process_time()
        ask()
        times.append(time.process_time() - began)
    return min(times)


def _questions(ledger: Ledger) -> dict[str, Callable[[], object]]:
    fleet = ledger.fleet(NOW)
    reasons = plan(fleet).waiting
    oldest = fleet.jobs[fleet.waiting[0][2]]
    counts = Counts(running={}, dollars_per_hour=0.0)
    return {
        "status": lambda: _json(status(fleet, reasons, counts)),
        **_lists(fleet, reasons, oldest),
        "explain the oldest waiting job": lambda: _json(explain_job(fleet, reasons, oldest)),
        **_changes(ledger),
    }


def _lists(fleet: Fleet, reasons: Reasons, oldest: Job) -> dict[str, Callable[[], object]]:
    """Return the costs of lists: what they show, and what their filters add."""
    every, largest, last = JobFilter(), Part(0, MAX_ROWS), Part(MAX_SKIPPED, MAX_ROWS)
    narrow = JobFilter(code=reasons[oldest.demand][-1].code.value) if oldest.demand else every
    of_one = JobFilter(repository=oldest.repository)
    return {
        "50 waiting jobs": lambda: _json(waiting_jobs(fleet, reasons, every, Part(0, 50)).rows),
        f"{MAX_ROWS} waiting jobs": lambda: _json(
            waiting_jobs(fleet, reasons, every, largest).rows
        ),
        "  the last page": lambda: _json(waiting_jobs(fleet, reasons, every, last).rows),
        "  by reason": lambda: _json(waiting_jobs(fleet, reasons, narrow, largest).rows),
        "  by repository": lambda: _json(waiting_jobs(fleet, reasons, of_one, largest).rows),
        f"{MAX_ROWS} running jobs": lambda: _json(
            running_jobs(fleet, reasons, every, largest).rows
        ),
        f"{MAX_ROWS} machines": lambda: _json(machines(fleet, MachineFilter(), largest).rows),
        "  by provider": lambda: _json(
            machines(fleet, MachineFilter(provider=ProviderName("ec2")), largest).rows
        ),
    }


def _changes(ledger: Ledger) -> dict[str, Callable[[], object]]:
    """Return the costs of a changed fleet.yaml: what runs in a thread, and what holds the event loop."""
    changed = replace(ledger.state.catalogue)
    demand = demand_of(changed, _queued(ledger))
    sent = sent_fleet.largest()
    of_sent = demand_of(sent, _queued(ledger))
    return {
        "plan --against: the jobs, in a thread": lambda: demand_of(changed, _queued(ledger)),
        "plan --against: in the loop": lambda: _preview(ledger, demand),
        **{
            f"  the largest file: {name}, in a thread": ask
            for name, ask in sent_fleet.steps().items()
        },
        "  the largest file: the jobs, in a thread": lambda: demand_of(sent, _queued(ledger)),
        "  the largest file: in the loop": lambda: _preview(ledger, of_sent),
        "reload: change the catalogue": lambda: ledger.change_catalogue(changed),
    }


def _queued(ledger: Ledger) -> list[Job]:
    return [job for job in ledger.state.jobs.values() if job.state is JobState.QUEUED]


def _preview(ledger: Ledger, demand: LedgerState) -> str:
    _queued(ledger)
    fleet = under(ledger.fleet(NOW), demand)
    return _json(preview(fleet, plan(fleet)))


def _json(found: Any) -> str:
    return json.dumps([asdict(one) for one in found] if isinstance(found, list) else asdict(found))


def _scan(ledger: Ledger) -> None:
    for job in ledger.state.jobs.values():
        _ = job.state
    for machine in ledger.state.machines.values():
        _ = machine.state


if __name__ == "__main__":
    main()
