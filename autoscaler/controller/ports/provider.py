"""The port of a provider of machines: EC2, a Kubernetes cluster, or another source of machines.

A provider never retries a launch or a termination by itself. The controller decides about retries,
deadlines and cooldowns. docs/providers.md explains how to add a provider.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from autoscaler.controller.ports.capabilities import Capabilities as Capabilities
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider_errors import OutcomeUnknownError as OutcomeUnknownError
from autoscaler.controller.ports.provider_errors import ProofRefusedError as ProofRefusedError
from autoscaler.controller.ports.provider_errors import ProviderError as ProviderError
from autoscaler.controller.ports.provider_errors import provider_errors as provider_errors
from autoscaler.controller.ports.replicas import Leads, leads_forever
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.model.catalogue import CapacityType, Offering
from autoscaler.model.events import LaunchedMachine, LaunchFailure, ListedMachine
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    LaunchRequestId,
    ProviderMachineId,
    Seconds,
    SkuName,
)

MOST_CONSOLE = 16 * 1024
"""Maximum number of characters of a console output, the last ones."""


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """What to launch. `offerings` are `Offering.key`s in the order of preference.

    No machine is launched from a canary's image that is `refused_image`: GitHub refuses the version of its
    runner. Machines of the SKU failed on the `avoided_hosts`. `others_work`: machines of it work on others.
    """

    launch_request: LaunchRequestId
    sku: SkuName
    option: int
    capacity_type: CapacityType
    offerings: tuple[str, ...]
    count: int
    token: str
    refused_image: str = ""
    avoided_hosts: tuple[str, ...] = ()
    others_work: bool = False


@dataclass(frozen=True, slots=True)
class LaunchAnswer:
    """The answer to a launch: machines in the provider's order, and why there are fewer than requested.

    `retry_after` (seconds) is set if the provider gave one with a failure.
    """

    launched: tuple[LaunchedMachine, ...]
    failures: tuple[LaunchFailure, ...]
    retry_after: Seconds | None = None


@dataclass(frozen=True, slots=True)
class ProvenIdentity:
    """The content of a valid proof: enough to find the launched machine and to compare it.

    `image`, `launch_time` and `host` are empty if this kind of proof does not contain them. The controller
    then does not compare the first two, and learns the host from a listing.
    """

    provider_id: ProviderMachineId
    image: str = ""
    launch_time: str = ""
    host: str = ""


class Provider(Protocol):
    """A provider of machines. Decorate its class with `provider_errors`."""

    @property
    def capabilities(self) -> Capabilities:
        """What this provider can do. The parts of it stay the same objects."""

    async def open(self) -> None:
        """Read what `offerings` and `verify` need, such as the account. The controller calls it daily.

        Nothing is launched before the first call that succeeds. Raises ProviderError,
        OutcomeUnknownError.
        """

    def offerings(self, sku: SkuName, option: int) -> tuple[Offering, ...]:
        """Return the offerings of a SKU's launch option with their prices, in order of preference.

        `option` is its position in the SKU's `on`. Empty before `open`, and if there are none. May be called
        in a thread.
        """

    def adopt(self, installation: InstallationId) -> None:
        """Use this installation's ID for new machines; the previous IDs become former ones.

        Unused resources of all these IDs belong to this fleet (see `delete_unused`).
        """

    async def prepare(self, order: LaunchOrder) -> str:
        """Resolve image and template, and return the exact request as text, to be stored.

        Creates at most things that cost nothing and can be created again (a launch template).
        Idempotent. Raises ProviderError, OutcomeUnknownError.
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

        Terminated machines may be among them for a while, as `terminated`. Exhausting the
        iterator without an error is a complete list. Raises ProviderError, OutcomeUnknownError.
        """

    async def quotas(self) -> Mapping[str, int]:
        """Return the quotas available to this fleet, in units by `Offering.quota_key`.

        Usage by others in the account is subtracted. A missing quota is unknown.
        Raises: ProviderError, OutcomeUnknownError.
        """

    async def delete_unused(self, requests: Sequence[str]) -> tuple[str, ...]:
        """Delete unused resources of this installation's launches. Return their ids.

        Keeps the resources of `requests`: stored requests that may still be sent. Never deletes a
        machine. Raises ProviderError, OutcomeUnknownError.
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

    async def verify(self, proof: bytes) -> ProvenIdentity:
        """Check a machine's proof of identity, with pinned certificates or by asking the provider.

        Any host may send a proof: refuse a malformed one before asking another system about it.
        Raises ProofRefusedError; ProviderError or OutcomeUnknownError if the proof could not be
        checked now, and the machine then tries again.
        """

    async def close(self) -> None:
        """Release connections and tasks, when the controller stops. Idempotent."""


@dataclass(frozen=True, slots=True)
class ProviderContext:
    """What a provider gets from the controller. `agent_sha256` is the hash of the agent's file.

    The provider asks `leads` before each request that changes something.
    """

    installations: Installations
    agent_sha256: str
    telemetry: Telemetry
    clock: Clock
    leads: Leads = leads_forever


class ProviderFactory(Protocol):
    """Creates one configured provider, in two steps: the first one does not need the store."""

    async def start(self) -> None:
        """Start what takes long to start, such as a worker process, without waiting for it.

        The controller opens its store meanwhile.
        """

    def make(self, context: ProviderContext) -> Provider:
        """Return the provider. Called once.

        Raises ValueError if its configuration cannot be used. Its text is for the operator.
        """

    def remake(self, context: ProviderContext) -> Callable[[Provider], Provider]:
        """Return a function: it returns a provider with the SKUs of this factory, but all else of another one.

        A factory of the same kind made the other one, from a configuration that differs in its SKUs. It does
        not change. `remake` reads files, and may run in a thread. The function runs in the event loop, so that
        it misses no change of the other provider. Neither `start` nor `close` of this factory is called.
        Before its first launch, `open` of the new provider is called. Both raise ValueError, as `make` does.
        """

    async def close(self) -> None:
        """Release what `start` started. Idempotent. Called after `close` of the provider."""
