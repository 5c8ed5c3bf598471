"""Finds AMD's GPUs of this machine, for containers."""

import re
from pathlib import Path

from autoscaler.images.shells import AmdDevices


def amd_devices(folder: Path = Path("/dev")) -> AmdDevices:
    """Return the render nodes, in order, and the groups of their files and of `kfd`.

    The groups are numbers of this machine: the image may know another one by the name `render`.
    """
    nodes = sorted((folder / "dri").glob("renderD*"), key=_number)
    files = [one for one in (folder / "kfd", *nodes) if one.exists()]
    groups = sorted({one.stat().st_gid for one in files})
    return AmdDevices(tuple(map(str, nodes)), tuple(groups))


def _number(path: Path) -> int:
    return int(re.sub(r"\D", "", path.name) or 0)
