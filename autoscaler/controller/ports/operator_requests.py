"""The requests that an operator can send to the controller, and the reasons to refuse them."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from autoscaler.model.identifiers import InstallationId, MachineId, ProviderName
from autoscaler.model.machines.unverified import UnverifiedMachine
from autoscaler.model.operators import OperatorName


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
