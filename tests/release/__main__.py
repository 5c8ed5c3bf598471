"""`make release-check`: builds a release of the commit that is checked out, and inspects it. Publishes nothing.

    python -m tests.release [--keep FOLDER] [STAGE ...]

Prints each stage with its seconds. A stage that needs one that failed is not run.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.kubernetes.programs import ProgramMissingError
from scripts.release import ReleaseError
from tests.deploy.helm import HelmError
from tests.release import building, running
from tests.release.building import Site, StageError
from tests.watchdog.children import children, kill

Stage = Callable[[Site], str]

STAGES: dict[str, tuple[Stage, str]] = {
    "versions": (building.check_versions, ""),
    "files": (building.build_files, "versions"),
    "again": (building.build_again, "files"),
    "install": (building.install_wheel, "files"),
    "bill": (building.check_bill, "install"),
    "commands": (running.run_commands, "install"),
    "serve": (running.serve, "install"),
    # After `bill`: the extra's packages are not in the bill of materials.
    "demo": (running.write_demo, "install"),
    "chart": (running.render_chart, "files"),
    "image": (running.build_image, "versions"),
}
"""Each stage, and the one that it needs."""

LONGEST = 1800
"""Real seconds for a stage. It only keeps a stage from hanging: on a busy host each takes ten times as long."""

FAILURES = (
    StageError,
    ReleaseError,
    ProgramMissingError,
    HelmError,
    OSError,
    subprocess.CalledProcessError,
)


def selected(names: list[str]) -> list[str]:
    """Return these stages and those that they need, in order; all of them without names."""
    wanted = set(names or STAGES)
    for name in reversed(STAGES):
        if name in wanted and STAGES[name][1]:
            wanted.add(STAGES[name][1])
    return [name for name in STAGES if name in wanted]


@contextmanager
def bounded(seconds: int) -> Iterator[None]:
    """Raise StageError after so many seconds, and kill the programs that this process has started."""

    def expire(*_: object) -> None:
        kill(children())
        raise StageError(f"not finished after {seconds} s: run it again on a quieter host")

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check(site: Site, names: list[str]) -> list[str]:
    """Run stages. Return the names of those that failed."""
    failed: list[str] = []
    for name in selected(names):
        stage, needs = STAGES[name]
        if needs in failed:
            print(f"{name:<9} not run: it needs {needs}", flush=True)
            failed.append(name)
            continue
        start = time.monotonic()
        try:
            with bounded(LONGEST):
                found, word = stage(site), "ok"
        except FAILURES as error:
            found, word = str(error), "FAILED"
            failed.append(name)
        print(f"{name:<9} {time.monotonic() - start:6.1f} s  {word}: {found}", flush=True)
    return failed


def main() -> int:
    """Run the stages that the command line names. Return 1 if one failed."""
    parser = argparse.ArgumentParser(description="Build a release, and inspect it.")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"of: {', '.join(STAGES)}")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the files here")
    given = parser.parse_args()
    if unknown := [name for name in given.stages if name not in STAGES]:
        parser.error(f"there is no stage {unknown[0]}; name one of {', '.join(STAGES)}")
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        site = Site(given.keep.absolute() if given.keep else Path(scratch))
        site.folder.mkdir(parents=True, exist_ok=True)
        failed = check(site, given.stages)
    print(f"{'release-check':<9} {time.monotonic() - start:.1f} s in all")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
