"""Builds the programs that lab.kubernetes.programs names from Go modules, once for all clones on a host.

    python -m lab.kubernetes.build

Needs about 15 minutes on two cores (5 of them for Helm and Kustomize), 5 GB while it builds, and a Go module
proxy (GOPROXY) and PyPI. Go checks every module against `go.sum`, and uv checks the Go toolchain against
`toolchain.txt`. An interrupted build continues where it stopped. Does nothing if all programs are there.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.go_builds import GoBuilds, Note
from lab.kubernetes.programs import (
    ASSETS,
    GO,
    SETS,
    TOOLCHAIN,
    Program,
    ProgramMissingError,
    built_folder,
    cache,
    find,
)


def build_missing(environment: Mapping[str, str], note: Note) -> None:
    """Build all programs if one is missing, and report each step to `note`.

    Raises OSError (also if uv is missing), and CalledProcessError if a step fails.
    """
    if not _missing(environment):
        return
    root = cache(environment)
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        # Another clone may be building.
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = _missing(environment)
        if missing:
            _build(missing, environment, root, note)


def _missing(environment: Mapping[str, str]) -> list[Sequence[Program]]:
    """Return the sets of programs of which one is missing."""
    return [programs for programs in SETS if not _complete(programs, environment)]


def _complete(programs: Sequence[Program], environment: Mapping[str, str]) -> bool:
    try:
        for program in programs:
            find(program.name, environment)
    except ProgramMissingError:
        return False
    return True


def _build(
    missing: Sequence[Sequence[Program]], environment: Mapping[str, str], root: Path, note: Note
) -> None:
    work = root / "build"
    work.mkdir(exist_ok=True)
    names = [program.name for programs in missing for program in programs]
    note(f"Building {', '.join(names)} in {root}, once: all programs take about 15 minutes")
    builds = GoBuilds(TOOLCHAIN, environment, work, note)
    for programs in missing:
        target = built_folder(programs, environment)
        output = work / target.name
        output.mkdir(exist_ok=True)
        for program in programs:
            number = names.index(program.name) + 1
            note(f"Building {program.name} {program.version} ({number} of {len(names)})")
            flags = program.linker_flags
            builds.build(GO / program.module, program.package, flags, output / program.name)
        output.rename(target)
    shutil.rmtree(work)


def main() -> int:
    """Build what is missing. Return 1, after one line, if that fails."""
    try:
        build_missing(os.environ, lambda line: print(f"==> {line}", flush=True))  # noqa: T201
    except (OSError, subprocess.CalledProcessError) as error:
        hint = f"or name a folder of programs in {ASSETS}"
        print(f"==> Could not build the programs of Kubernetes, {hint}: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
