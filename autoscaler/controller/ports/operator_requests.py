"""The requests of operators: terminate, adopt, pause, drain, resume, retry, reload, preview."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from autoscaler.model.identifiers import InstallationId, MachineId, ProviderName
from autoscaler.model.machines.unverified import UnverifiedMachine
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


class OperatorRequests(Protocol):
    """The requests of an operator. `by` is who sends it, for the history and the log."""

    def unverified(self) -> Sequence[UnverifiedMachine]:
        """Return the unverified machines, and the machines that do not terminate."""

    def providers_not_listed(self) -> Sequence[ProviderName]:
        """Return the providers whose machines were not listed completely since the start."""

    async def terminate(self, machine: str, *, by: OperatorName, force: bool = False) -> MachineId:
        """Release a machine for termination. `machine` is its ID or the provider's.

        With `force`, also if it may be running a job. Durable on return. Raises: OperatorRequestRefusedError,
        StoreError.
        """

    async def adopt(self, old_id: str, *, by: OperatorName, force: bool = False) -> InstallationId:
        """Take over the id and the machines of an installation whose store is lost.

        With `force`, also if this store has machines of its own. Durable on return.
        Raises: OperatorRequestRefusedError, StoreError.
        """


@dataclass(frozen=True, slots=True)
class HoldOutcome:
    """What a request did, and what happens next, in sentences. `target` is as the commands accept it."""

    target: str
    done: str
    next: str


class HoldRequests(Protocol):
    """The requests of an operator about what the fleet uses. `by` is who sends it.

    `target` is `all`, the name of a SKU or a provider, or a machine's ID or its ID at its provider; with
    `sku/`, `provider/` or `machine/` before it where a name has several meanings. A repeated request changes
    nothing. Durable on return. Every request raises OperatorRequestRefusedError and StoreError.
    """

    async def pause(self, target: str, *, by: OperatorName) -> HoldOutcome:
        """Launch no machine of a SKU, at a provider or in the whole fleet."""

    async def drain(self, target: str, *, by: OperatorName) -> HoldOutcome:
        """Give a machine, or those of a SKU or a provider, no further job, and terminate them without one.

        Machines of a drained SKU or provider are not replaced: the drain pauses it, too.
        """

    async def quarantine(self, target: str, *, by: OperatorName) -> HoldOutcome:
        """Keep a machine without a job for inspection, for its SKU's `lifetime` at most."""

    async def resume(self, target: str, *, by: OperatorName) -> HoldOutcome:
        """End what `pause`, `drain` and `quarantine` began for this target."""

    async def retry(self, target: str, *, by: OperatorName) -> HoldOutcome:
        """End the holds of failures for a SKU, a provider or the fleet, and close its circuit breakers."""


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
