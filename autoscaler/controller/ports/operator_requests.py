"""The answers to requests of operators and their refusals, and the requests about the configuration."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from autoscaler.model.operators import OperatorName
from autoscaler.views.preview import Preview


class RefusalKind(StrEnum):
    """Machine-readable kind of a refusal."""

    UNKNOWN = "unknown"
    CONTRADICTED = "contradicted"
    UNREACHABLE = "unreachable"


class OperatorRequestRefusedError(Exception):
    """The request was refused and changed nothing. The text says why and what the operator can do."""

    def __init__(self, kind: RefusalKind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


@dataclass(frozen=True, slots=True)
class HoldOutcome:
    """What a request did, and what happens next, in sentences. `target` is as the commands accept it."""

    target: str
    done: str
    next: str


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What a reload did. `changed` are the keys with another value; `done` says when they are in force."""

    changed: tuple[str, ...]
    done: str


@dataclass(frozen=True, slots=True)
class PlanAgainst:
    """What a changed configuration would do. `changed` are its keys that a running controller can use.

    `needs_restart` are the keys for which a reload restarts the controller, and which the preview ignores.
    `refused` has the problems for which a reload would refuse the file now.
    """

    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]
    refused: tuple[str, ...]
    preview: Preview


class RefusedConfigurationError(Exception):
    """The configuration cannot be used. `problems` are lines with file, line, key and fix."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class PlanInProgressError(Exception):
    """The controller already makes a plan for a changed configuration, and makes one at a time."""


class ControllerStopsError(Exception):
    """The controller stops, or starts again, and takes no reload before it runs again."""


class ConfigurationRequests(Protocol):
    """The requests about the configuration of a running controller."""

    async def reload(self, *, by: OperatorName) -> Reloaded:
        """Read fleet.yaml again and apply it. A refused file changes nothing.

        The history has who did it (`by`): on return, or if the controller restarts for it, after that.
        Raises: RefusedConfigurationError, ControllerStopsError, StoreError.
        """

    async def plan_against(self, content: bytes) -> PlanAgainst:
        """Return what a changed fleet.yaml would do now. Changes nothing, and reads no file that it names.

        Raises: RefusedConfigurationError, PlanInProgressError.
        """
