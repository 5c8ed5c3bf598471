"""Compares an older revision with this one in one run: plans of a burst, webhooks, the store.

Run: `python benchmarks/before_after.py FOLDER [--jobs 100000] [--rounds 3]`. FOLDER is a checkout of the older
revision with its own `.venv`: `git worktree add FOLDER REVISION`, then `make setup` in it. For each figure, the
checkouts run one program with their own Python and code, turn about, and the best round of each counts.
Modules and records may have had other names, so only programs that both revisions can run are compared.
"""

import argparse
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parents[1]

BURST = """
import sys, time
from tests.ledger.builders import World
world = World()
world.queue(*range(int(sys.argv[1])))
began = time.process_time()
plan = world.plan()
spent = time.process_time() - began
machines = sum(getattr(intent, "count", 0) for intent in plan.intents)
print(f"{spent * 1000:.1f} ms, {machines} machines")
"""
"""Prints the CPU time of the first plan of a burst in an empty fleet, and how many machines it launches."""


@dataclass(frozen=True)
class Figure:
    """All numbers that `pattern` finds in the output of a program. `best` chooses one of all rounds."""

    name: str
    pattern: str
    best: Callable[[list[float]], float]


Programs = Mapping[tuple[str, ...], tuple[Figure, ...]]
"""By a program's arguments for Python: what it prints."""


def programs(jobs: int) -> Programs:
    """Return what is compared."""
    accept = ("benchmarks/webhook_accept.py", "--deliveries", "5000", "--seconds", "120")
    store = ("benchmarks/store_accept.py", "--rate", "500", "--seconds", "5")
    return {
        ("-c", BURST, str(jobs)): (
            Figure(f"ms of CPU for the first plan of {jobs} jobs", r"([\d.]+) ms", min),
            Figure("machines that this plan launches", r"(\d+) machines", min),
        ),
        accept: (
            Figure("us of CPU for a webhook", r"webhook .* ([\d.]+) us", min),
            Figure("webhooks a second, as a part of a bare handler's", r"bare: ([\d.]+)", max),
        ),
        store: (
            Figure("ms until a delivery is stored, p50 at 500 a second", r"p50 ([\d.]+)", min),
            Figure("the same, p99", r"p99 ([\d.]+)", min),
            Figure("deliveries stored a second, 64 in flight", r"in flight: (\d+)", max),
        ),
    }


def output(checkout: Path, arguments: Sequence[str]) -> str:
    """Return what a program prints in a checkout. Raises SystemExit if it fails."""
    done = subprocess.run(
        [checkout / ".venv" / "bin" / "python", *arguments],
        cwd=checkout,
        env={"PYTHONPATH": str(checkout), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{checkout}: {arguments[0]}: status {done.returncode}\n{done.stdout}")
    return done.stdout


def main() -> None:
    """Print both figures of each program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path, help="the older checkout, with its .venv")
    parser.add_argument("--jobs", type=int, default=100_000, help="jobs of the burst")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"{'before':>10} {'now':>10}", flush=True)
    for arguments, figures in programs(options.jobs).items():
        said: dict[Path, str] = {options.folder.resolve(): "", HERE: ""}
        for _ in range(options.rounds):
            for checkout in said:
                said[checkout] += output(checkout, arguments)
        for figure in figures:
            found = (map(float, re.findall(figure.pattern, text)) for text in said.values())
            before, now = (figure.best(list(numbers)) for numbers in found)
            print(f"{before:10.6g} {now:10.6g}  {figure.name}", flush=True)


if __name__ == "__main__":
    main()
