"""The agents that this controller and earlier versions of it gave to machines, by their SHA-256.

User data pins the agent that it was written for, so a machine that was launched before an upgrade,
or before the way back from one, still asks for that. It decides which are kept and for how long;
what was changed on the disk meanwhile is not served.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

MOST_AGENTS = 8
"""So many are kept, the ones that a controller was last started with; machines boot in minutes."""

_MOST_BYTES = 1 << 20
_SUFFIX = ".py"


def keep_agent(folder: Path, agent: bytes) -> tuple[bytes, ...]:
    """Keep an agent in a folder of their own; returns the earlier ones there, the latest first.

    Raises OSError when the folder cannot be read or written.
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
            agent = file.read(_MOST_BYTES)
        if path.name == hashlib.sha256(agent).hexdigest() + _SUFFIX:
            yield agent
