"""`make chaos SEEDS=10000`: play seeds and print the results, or replay the schedule in a file.

Exit status: 0 without a violation, 1 with one, 2 for wrong arguments, 130 after Ctrl-C.
"""

import argparse
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from autoscaler.simulator.world.schedule import Schedule, from_json
from tests.chaos.campaign import INTERRUPTED, Figures, campaign, quiet, stop_by_signals
from tests.chaos.shrink import shrink
from tests.chaos.trial import Outcome, play
from tests.chaos.worlds import Worlds

FOUND = Path(".cache/chaos")
MISTAKEN = 2
SHRUNK = 3
"""Maximum number of failing seeds to shrink, because one bug fails many."""


def main(arguments: list[str]) -> int:
    """Run the command, and return its exit status."""
    options = _options(arguments)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    quiet()
    try:
        if options.replay is not None:
            return _replay(console, options.replay, options.until_found)
        return _play(console, options)
    except KeyboardInterrupt:
        console.print("interrupted")
        return INTERRUPTED


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seeds", type=_positive, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--processes", type=_positive, default=2)
    for worlds, what in (
        (Worlds.CLUSTERS, "worlds with Kubernetes clusters, every other with EC2"),
        (Worlds.REPLICAS, "worlds with two or three replicas of the controller"),
    ):
        parser.add_argument(
            f"--{worlds}", dest="worlds", action="store_const", const=worlds, help=what
        )
    parser.set_defaults(worlds=Worlds.EC2)
    parser.add_argument("--until-found", action="store_true", help="stop at the first violation")
    parser.add_argument("--tries", type=int, default=200, help="schedules played to shrink one")
    parser.add_argument("--folder", type=Path, default=FOUND, help="where schedules are written")
    parser.add_argument("--replay", type=Path, help="play the schedule in this file again")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not at least 1")
    return number


def _play(console: Console, options: argparse.Namespace) -> int:
    seeds = range(options.first, options.first + options.seeds)
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    figures = Figures()
    try:
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("", total=len(seeds))

            def each(outcome: Outcome) -> None:
                if outcome.violations:
                    console.print(f"seed {outcome.seed}: {'; '.join(outcome.violations[:3])}")
                bad = f"{len(figures.bad)} bad" if figures.bad else ""
                progress.update(task, advance=1, description=bad)

            campaign(seeds, figures, options.processes, each, options.until_found, options.worlds)
    finally:
        console.print(figures.summary())
    for outcome in figures.bad[:SHRUNK]:
        _print_shrunk(console, outcome, options)
    return 1 if figures.bad else 0


def _replay(console: Console, path: Path, until_found: bool) -> int:
    try:
        schedule = from_json(path.read_text())
    except (OSError, ValueError) as wrong:
        console.print(f"cannot replay {path}: {wrong}")
        return MISTAKEN
    outcome = play(schedule, wanted=(lambda _: True) if until_found else None)
    console.print(schedule.timeline())
    console.print("\n".join(outcome.violations) or "no violation")
    return 1 if outcome.violations else 0


def _print_shrunk(console: Console, outcome: Outcome, options: argparse.Namespace) -> None:
    kind = kind_of(outcome.violations[0])

    def goes_wrong(part: Schedule) -> bool:
        return fails_with(part, kind)

    small = shrink(options.worlds.schedule(outcome.seed), goes_wrong, options.tries)
    console.print(f"\nseed {outcome.seed}, shrunk to {len(small)} events: {outcome.violations[0]}")
    console.print(small.timeline())
    console.print(write_schedule(small, options.folder / f"{outcome.seed}.json"))


def fails_with(schedule: Schedule, kind: str) -> bool:
    """Return whether a schedule has a violation of this kind. Plays it no further than that."""

    def wanted(violation: str) -> bool:
        return kind_of(violation) == kind

    return any(map(wanted, play(schedule, wanted=wanted).violations))


def write_schedule(schedule: Schedule, path: Path) -> str:
    """Write a schedule to a file. Return the command that replays it, or the error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(schedule.to_json())
    except OSError as failed:
        return f"not written: {failed}"
    return f"again: .venv/bin/python -m tests.chaos --replay {path}"


def kind_of(violation: str) -> str:
    """Return a violation without names and numbers, which change while a schedule shrinks."""
    return re.sub(r"\S*\d\S*", "#", violation)


if __name__ == "__main__":
    stop_by_signals()
    sys.exit(main(sys.argv[1:]))
