"""What an operator may see and confirm, and why that may be refused.

The server hands requests on by it; whether a confirmation is believed is not decided there.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from autoscaler.model.identifiers import InstallationId, MachineId, ProviderName, SkuName
from autoscaler.model.unverified import UnverifiedMachine


class RefusalKind(StrEnum):
    """What sort of reason it is, for who asks by machine."""

    UNKNOWN = "unknown"
    CONTRADICTED = "contradicted"
    UNREACHABLE = "unreachable"


class OperatorRequestRefusedError(Exception):
    """Nothing was changed. The text says why and what to do, in words for an operator."""

    def __init__(self, kind: RefusalKind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


class OperatorRequests(Protocol):
    """What the operator's requests come to."""

    def unverified(self) -> Sequence[UnverifiedMachine]:
        """Every machine that cannot be told."""

    def unlisted(self) -> Sequence[ProviderName]:
        """The providers that were not listed whole since the start: what they have is not known."""

    async def terminate(self, machine: str, *, force: bool = False) -> MachineId:
        """A machine, by our id or its provider's, is nobody's: it is ended.

        With `force`, although it may be alive. Durable on return. Raises OperatorRequestRefusedError,
        StoreError.
        """

    async def adopt(self, old_id: str, *, force: bool = False) -> InstallationId:
        """The store of this installation is lost: its id and machines are ours from now on.

        With `force`, although this store has machines of its own. Durable on return. Raises
        OperatorRequestRefusedError, StoreError.
        """

    async def close_circuit(self, sku: str) -> SkuName:
        """What opened this SKU's circuit breaker is mended: machines are launched as before.

        Durable on return. Raises OperatorRequestRefusedError, StoreError.
        """
