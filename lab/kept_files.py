"""The files of a replay that the option `--keep` keeps."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from lab.laboratory import Laboratory

_NAMES = ("controller*.log", "fleet*.yaml", "state.db", "state.db-wal", "metrics.txt", "calls.txt")


def write_counts(lab: Laboratory, metrics: Mapping[str, float]) -> None:
    """Write the last scraped metrics, and how often each API call was made, for `keep`."""
    scraped = "".join(f"{name} {value:g}\n" for name, value in metrics.items())
    (lab.folder / "metrics.txt").write_text(scraped)
    lines = [f"EC2 {name} {count}" for name, count in sorted(lab.ec2.calls.items())]
    github = sorted(lab.github.calls.items())
    lines += [f"GitHub {name} {status} {count}" for (name, status), count in github]
    pods = sorted(lab.pods.calls().items()) if lab.pods is not None else []
    lines += [f"Kubernetes {name} {count}" for name, count in pods]
    (lab.folder / "calls.txt").write_text("\n".join(lines) + "\n")


def keep_files(lab: Path, folder: Path) -> None:
    """Copy the files of a laboratory's folder to this one."""
    for name in _NAMES:
        for file in lab.glob(name):
            shutil.copyfile(file, folder / file.name)
