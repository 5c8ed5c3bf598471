"""Keeps the agents of this and of earlier controller versions, by SHA-256.

User data names its agent by SHA-256. A machine that was launched before an upgrade or a downgrade
still asks for that agent. Files that were changed on the disk are not served.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from autoscaler.controller.ports.replicas import MOST_AGENTS

_MAX_AGENT_BYTES = 1 << 20
_SUFFIX = ".py"


def keep_agent(folder: Path, agent: bytes) -> tuple[bytes, ...]:
    """Store an agent in the folder, and return the earlier agents from there, the latest first.

    Raises: OSError if the folder cannot be read or written.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    name = hashlib.sha256(agent).hexdigest() + _SUFFIX
    fresh = folder / "new"
    fresh.write_bytes(agent)
    fresh.replace(folder / name)
    kept = folder.glob("*" + _SUFFIX)
    found = sorted(kept, key=lambda path: path.stat().st_mtime_ns, reverse=True)
    others = [path for path in found if path.name != name]
    for path in others[MOST_AGENTS - 1 :]:
        path.unlink()
    return tuple(_genuine(others[: MOST_AGENTS - 1]))


def _genuine(paths: Iterable[Path]) -> Iterable[bytes]:
    for path in paths:
        with path.open("rb") as file:
            agent = file.read(_MAX_AGENT_BYTES)
        if path.name == hashlib.sha256(agent).hexdigest() + _SUFFIX:
            yield agent
