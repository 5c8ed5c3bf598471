"""Measures the cost of a plan in milliseconds of CPU time, by the size of the fleet.

Run: `PYTHONPATH=. python benchmarks/planner_cost.py [--large] [--before FOLDER]`. Each figure is the minimum of
several plans of one fleet. `scans` is the same cost in units of one scan that reads an attribute of every
machine and job, so that hosts can be compared. `--before` names the folder of an older `planner/` package (`git
worktree add ../before REVISION` creates one in `../before/autoscaler`). The older planner is measured in the
same run, and must return the same plan.
"""

import argparse
import gc
import importlib
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from autoscaler.ledger.ledger import Ledger
from autoscaler.model.catalogue import RegistrationRate
from autoscaler.model.fleet import Fleet
from autoscaler.model.jobs.job import Job
from autoscaler.model.machines.machine import Machine
from autoscaler.model.plan import Plan
from autoscaler.planner.planner import plan
from benchmarks.crowded_fleet import NOW, Crowd, crowded

MakePlan = Callable[[Fleet], Plan]

FULL = Crowd(3_500, 10_000, most_machines=3_500, working=100, listening=0, ready=0)

SMALL: dict[str, Crowd] = {
    "all at work, 20 classes, 1 SKU": replace(FULL, classes=20, skus=1),
    "all at work, 200 classes, 1 SKU": replace(FULL, skus=1),
    "all at work, 200 classes, 4 SKUs": replace(FULL, skus=4),
    "90 % at work, 200 classes, 4 SKUs, at its limit": Crowd(
        3_500, 10_000, skus=4, most_machines=3_500
    ),
    "90 % at work, 200 classes, 20 SKUs, at its limit": Crowd(3_500, 10_000, most_machines=3_500),
    "the same with GitHub's limit of registrations": Crowd(
        3_500, 10_000, most_machines=3_500, registration=RegistrationRate()
    ),
    "a burst: nothing there yet, 200 classes, 20 SKUs": Crowd(0, 10_000),
    "90 % at work and 9,790 to launch, 20 SKUs": Crowd(3_500, 10_000),
    "no machine at work: each machine has its job to find": Crowd(
        3_500, 10_000, working=0, listening=20, ready=40
    ),
    "200 SKUs that share labels, each with a ready minimum": Crowd(
        3_500, 10_000, skus=200, registration=RegistrationRate(), idle_minimum=1
    ),
}

LARGE: dict[str, Crowd] = {
    "all at work, 200 classes, 4 SKUs": replace(
        FULL, machines=100_000, jobs=100_000, most_machines=100_000, skus=4
    ),
    "90 % at work, 200 classes, 4 SKUs, at its limit": Crowd(
        100_000, 100_000, skus=4, most_machines=100_000
    ),
    "90 % at work, 200 classes, 20 SKUs, at its limit": Crowd(
        100_000, 100_000, most_machines=100_000
    ),
    "90 % at work and 90,000 to launch, 20 SKUs": Crowd(100_000, 100_000),
    "a burst: nothing there yet, 200 classes, 20 SKUs": Crowd(0, 100_000),
    "no machine at work: 40,000 assignments in one plan": Crowd(
        100_000, 100_000, working=0, listening=20, ready=40
    ),
}


def main() -> None:
    """Print a line for each fleet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="100,000 machines and jobs as well")
    parser.add_argument("--before", type=Path, help="the `autoscaler` folder of an older revision")
    options = parser.parse_args()
    before = _older(options.before) if options.before else None
    print(f"{'machines':>9} {'jobs':>8} {'ms':>8} {'scans':>6} {'before':>10}")
    for name, crowd in [*SMALL.items(), *(LARGE.items() if options.large else ())]:
        ledger = crowded(crowd)
        fleet = ledger.fleet(NOW)
        took, made = cheapest(plan, fleet)
        scans = took / _scan(ledger)
        was = "-"
        if before is not None:
            older, other = cheapest(before, fleet)
            assert other.intents == made.intents, "not the same plan"
            assert other.waiting == made.waiting, "not the same reasons"
            was = f"{older:.1f}"
        sizes = f"{crowd.machines:>9,} {crowd.jobs:>8,}"
        print(f"{sizes} {took:>8.2f} {scans:>6.1f} {was:>10}  {name}", flush=True)


def cheapest(make: MakePlan, fleet: Fleet) -> tuple[float, Plan]:
    """Return the minimum CPU time of 15 plans, or of those of one second, in milliseconds, and the plan."""
    least, made, spent = float("inf"), Plan(), 0.0
    for _ in range(15):
        gc.collect()
        began = time.process_time()
        made = make(fleet)
        took = time.process_time() - began
        least, spent = min(least, took * 1000.0), spent + took
        if spent > 1.0:
            break
    return least, made


def _scan(ledger: Ledger) -> float:
    """Return the milliseconds that it takes to read an attribute of every machine and job."""
    records: list[Machine | Job] = [*ledger.state.machines.values(), *ledger.state.jobs.values()]
    least = float("inf")
    for _ in range(15):
        began = time.process_time()
        sum(record.state == "" for record in records)
        least = min(least, (time.process_time() - began) * 1000.0)
    return least


def _older(folder: Path) -> MakePlan:
    """Return the `plan` function of an older planner, which reads today's fleets."""
    name = "autoscaler.before"
    package = ModuleType(name)
    package.__path__ = [str(folder / "planner")]
    sys.modules[name] = package
    ours = {key: module for key, module in sys.modules.items() if key.startswith(OURS)}
    for key in ours:
        del sys.modules[key]
    sys.modules[OURS] = package
    older: MakePlan = importlib.import_module(f"{OURS}.planner").plan
    for key in [key for key in sys.modules if key.startswith(OURS)]:
        del sys.modules[key]
    sys.modules.update(ours)
    return older


OURS = "autoscaler.planner"

if __name__ == "__main__":
    main()
