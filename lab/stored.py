"""What the demo reads from the store of stopped controllers."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Steps:
    """The controller's record of a runner: its instance id and two times in lab time.

    `ready_at` is when its machine passed the health checks. `assigned_at` is when the machine received
    the registration. Either is None if it did not happen.
    """

    instance: str
    ready_at: float | None
    assigned_at: float | None


@dataclass(frozen=True, slots=True)
class Stored:
    """The `steps` of each runner by its name, and for how many machines each launch request was."""

    steps: Mapping[str, Steps] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)


ReadStored = Callable[[str, Path], Awaitable[Stored]]
"""Reads the store at a URL, which is this SQLite file, or is copied to it. May raise any Exception."""
