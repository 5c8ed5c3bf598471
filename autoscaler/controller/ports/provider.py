"""The port of a provider of machines.

A provider never retries a launch or a termination by itself; the controller decides about retries,
deadlines and cooldowns.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from autoscaler.model.catalogue import CapacityType
from autoscaler.model.events import LaunchedMachine, LaunchFailure, ListedMachine
from autoscaler.model.failures import FailureClass, FailureScope
from autoscaler.model.identifiers import (
    LaunchRequestId,
    ProviderMachineId,
    ProviderName,
    Seconds,
    SkuName,
)

MOST_CONSOLE = 16 * 1024
"""Maximum number of characters of a console output, the last ones."""


class ProviderError(Exception):
    """The provider refused, or could not be asked. `failure` says what to do next.

    `retry_after` (seconds) is set where the provider gave one, `reach` where the failure goes
    farther than its class says, `offering` (a key) where the provider named the one that it refuses.
    """

    def __init__(
        self,
        failure: FailureClass,
        code: str,
        message: str,
        retry_after: Seconds | None = None,
        reach: FailureScope | None = None,
        offering: str | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.failure = failure
        self.code = code
        self.message = message
        self.retry_after = retry_after
        self.reach = reach
        self.offering = offering


class OutcomeUnknownError(Exception):
    """The request may have been carried out: a time-out, a connection that broke, a 5xx."""


class ProofRefusedError(Exception):
    """A machine's proof of identity is invalid. `reason` is a fixed, short word.

    One of: malformed, signature, certificate, account, region, expired.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """What to launch. `offerings` are `Offering.key`s in the order of preference.

    A canary's image is not taken if it is `refused_image`: GitHub gives its runners no jobs.
    """

    launch_request: LaunchRequestId
    sku: SkuName
    option: int
    capacity_type: CapacityType
    offerings: tuple[str, ...]
    count: int
    token: str
    refused_image: str = ""


@dataclass(frozen=True, slots=True)
class LaunchAnswer:
    """The answer to a launch: machines in the provider's order, and why there are fewer than requested."""

    launched: tuple[LaunchedMachine, ...]
    failures: tuple[LaunchFailure, ...]


@dataclass(frozen=True, slots=True)
class ProvenIdentity:
    """The content of a valid proof: enough to find the launched machine and to compare it."""

    provider_id: ProviderMachineId
    image: str
    launch_time: str


class Provider(Protocol):
    """A provider of machines. Names are unique within an installation."""

    @property
    def name(self) -> ProviderName:
        """As the configuration calls it."""

    async def prepare(self, order: LaunchOrder) -> str:
        """Resolve image and template, and return the exact request as text, to be stored.

        Makes at most things that cost nothing and can be made again (a launch template).
        Idempotent. Raises ProviderError.
        """

    async def launch(self, request: str) -> LaunchAnswer:
        """Send a stored request, once. The same text sent twice launches once (its token).

        Raises ProviderError when nothing was launched, OutcomeUnknownError when that is not known.
        """

    async def terminate(
        self, machines: Sequence[ProviderMachineId]
    ) -> dict[ProviderMachineId, str]:
        """Request termination of machines. Return the refused ones with the reason. Idempotent.

        A machine that the provider does not know is not an error. Raises ProviderError,
        OutcomeUnknownError.
        """

    def machines(self) -> AsyncIterator[tuple[ListedMachine, ...]]:
        """Yield every machine whose tags name this fleet, in pages, of any installation.

        Machines that ended may be among them for a while, as `terminated`. Exhausting the
        iterator without an error is a complete list. Raises ProviderError, OutcomeUnknownError.
        """

    async def quotas(self) -> Mapping[str, int]:
        """Return the quotas available to this fleet, in units by `Offering.quota_key`.

        Usage by others in the account is subtracted. A missing quota is unknown.
        Raises: ProviderError, OutcomeUnknownError.
        """

    async def collect(self, requests: Sequence[str]) -> tuple[str, ...]:
        """Delete unused resources of this installation's launches. Return their ids.

        Keeps what `requests` name: stored requests that may still be sent. Never deletes a machine.
        Raises: ProviderError, OutcomeUnknownError.
        """

    async def image(self, sku: SkuName) -> str:
        """Read and return the id of the image for the SKU's next machine, ignoring a canary's image.

        Raises ProviderError, OutcomeUnknownError.
        """

    async def console(self, machine: ProviderMachineId) -> str:
        """Return the end of a machine's console output, or an empty text.

        At most `MOST_CONSOLE` characters, as the machine wrote them. Raises ProviderError (also
        for a machine without a console that can be read), OutcomeUnknownError.
        """

    def verify(self, proof: bytes) -> ProvenIdentity:
        """Check a machine's proof of identity. Pure but for its pinned certificates.

        Raises ProofRefusedError.
        """

    async def close(self) -> None:
        """Release connections and worker processes. Idempotent."""
