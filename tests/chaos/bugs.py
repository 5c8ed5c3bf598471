"""Checks that the seeds find each planted bug, and how soon. Each bug is a patch.

    python -m tests.chaos.bugs [--keep] [NAME ...]        NAME as in patches/NAME.patch

Applies a patch to a copy of the package in a temporary folder, and plays the seeds there in a separate
process. The checkout does not change. The shrunken schedules are written to .cache/chaos. With `--keep`
they are written to patches/NAME.json, which the tests replay.

Exit status: 0 if every bug was found, 1 if not, 2 for an unknown name, 130 after Ctrl-C.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.campaign import INTERRUPTED, stop_by_signals
from tests.chaos.mix import LISTS_EVERY
from tests.chaos.worlds import Worlds

ROOT = Path(__file__).parents[2]
PATCHES = Path(__file__).parent / "patches"
FOUND = ROOT / ".cache" / "chaos"
WITHIN = 150
"""Number of seeds within which every bug is found."""

IN_TESTS = (*range(60), *range(60, WITHIN, LISTS_EVERY))
"""Seeds that `make test-systems` plays: they find every bug. After the first sixty, only those in which the
controller reads GitHub's lists: their worlds have the faults that no other world has."""

IN_TESTS_OF_CLUSTERS = (0, 2, 8, 12, 13, 30)
"""Seeds whose worlds with Kubernetes clusters `make test-systems` plays. They have all kinds of faults of
clusters, and find the bugs of that provider."""

IN_TESTS_OF_REPLICAS = range(24)
"""Seeds whose worlds with replicas `make test-systems` plays. They find the bugs of leadership."""

_OF_CLUSTERS = "autoscaler/providers/kubernetes/"
_OF_REPLICAS = ("autoscaler/controller/replicas/", "autoscaler/controller/intake/inbox.py")
_COPIED = ("autoscaler", "tests/chaos")
_SHRUNK = re.compile(r"^seed (\d+), shrunk to (\d+) events: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Hunt:
    """The result for one planted bug. `events` is the length of the shrunk schedule."""

    name: str
    found: bool
    seed: int
    events: int
    violation: str
    took: float
    output: str


def names() -> list[str]:
    """Return the names of all planted bugs."""
    return sorted(path.stem for path in PATCHES.glob("*.patch"))


def worlds_of(name: str) -> Worlds:
    """Return the only worlds that can find a bug: those that run the code that it changes."""
    patch = (PATCHES / f"{name}.patch").read_text()
    if _OF_CLUSTERS in patch:
        return Worlds.CLUSTERS
    return Worlds.REPLICAS if any(part in patch for part in _OF_REPLICAS) else Worlds.EC2


def hunt(name: str, tries: int = 200, folder: Path = FOUND) -> Hunt:
    """Play seeds with a planted bug until one finds it. Shrink its schedule with at most `tries` replays.

    Writes the schedule to `folder`. Raises CalledProcessError if the patch does not apply.
    """
    began = time.monotonic()
    with planted(name) as copy:
        options = ["--until-found", "--seeds", str(WITHIN), "--tries", str(tries)]
        worlds = worlds_of(name)
        options += [] if worlds is Worlds.EC2 else [f"--{worlds}"]
        done = play_in(copy, *options, "--folder", str(copy / "found"))
        printed = _SHRUNK.search(done.stdout)
        seed, events, violation = printed.groups() if printed is not None else ("-1", "0", "")
        folder.mkdir(parents=True, exist_ok=True)
        for path in (copy / "found").glob("*.json"):
            shutil.copy(path, folder / f"{name}.json")
    took = time.monotonic() - began
    output = done.stdout + done.stderr
    return Hunt(name, printed is not None, int(seed), int(events), violation, took, output)


@contextmanager
def planted(name: str) -> Iterator[Path]:
    """Make a copy of what the seeds need, with one bug planted. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for part in _COPIED:
            # With its bytecode: compiling all of it again is a seventh of a replay. Another process may be
            # writing some, which Python renames from x.pyc.NUMBER to x.pyc.
            unfinished = shutil.ignore_patterns("*.pyc.*")
            shutil.copytree(ROOT / part, copy / part, ignore=unfinished)
        (copy / "tests" / "__init__.py").touch()
        patch = ["patch", "-p1", "--fuzz=0", "--quiet", "-i", str(PATCHES / f"{name}.patch")]
        subprocess.run(patch, cwd=copy, check=True)
        yield copy


def play_in(copy: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the seeds' command in a copy. After Ctrl-C it ends with its workers."""
    command = [sys.executable, "-m", "tests.chaos", *options]
    with subprocess.Popen(
        command,
        cwd=copy,
        env={"PYTHONPATH": str(copy), "PATH": os.defpath, "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as process:
        try:
            output, errors = process.communicate()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def main(arguments: list[str]) -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(prog="make chaos-bugs", description=f"Known: {names()}")
    parser.add_argument("names", nargs="*", metavar="NAME", help="the bugs to plant (default: all)")
    parser.add_argument(
        "--keep",
        action="store_true",
        help="write the shrunken schedules to patches/, for the tests",
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(names()):
        parser.error(f"no such bug: {', '.join(sorted(unknown))}; there are {', '.join(names())}")
    try:
        return _hunt_all(options.names or names(), PATCHES if options.keep else FOUND)
    except KeyboardInterrupt:
        sys.stdout.write("interrupted\n")
        return INTERRUPTED


def _hunt_all(wanted: list[str], folder: Path) -> int:
    hunts = []
    for name in wanted:
        done = hunt(name, folder=folder)
        hunts.append(done)
        what = f"seed {done.seed}, {done.events} events: {done.violation}"
        text = what if done.found else f"NOT FOUND\n{done.output}"
        sys.stdout.write(f"{name:32} {done.took:6.1f} s  {text}\n")
        sys.stdout.flush()
    found = sum(done.found for done in hunts)
    sys.stdout.write(f"{found} of {len(hunts)} planted bugs found\n")
    return 0 if found == len(hunts) else 1


if __name__ == "__main__":
    stop_by_signals()
    sys.exit(main(sys.argv[1:]))
