"""A provider of machines in memory. In contrast to EC2's:

- A request is for three machines at most, and there is no launch rate.
- A proof of identity is checked by asking the cloud, and names the machine only.
- Prices and quotas come from fleet.yaml and the cloud, and are not kept.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from autoscaler.controller.ports.provider import (
    Capabilities,
    LaunchAnswer,
    LaunchOrder,
    ProofRefusedError,
    ProvenIdentity,
    ProviderError,
    provider_errors,
)
from autoscaler.model.catalogue import Offering
from autoscaler.model.events import ListedMachine
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    ProviderMachineId,
    ProviderName,
    SkuName,
)
from autoscaler.model.machines.failures import FailureClass
from autoscaler.simulator.world.ec2.provider import SimulatedProvider

CLOUDS: Final[dict[str, SimulatedProvider]] = {}
"""The clouds by their address in fleet.yaml: what a network is to other providers."""

LARGEST_REQUEST = 3


@provider_errors
class MemoryProvider:
    """Implements `Provider`. Finds its cloud in `CLOUDS` with each request."""

    def __init__(
        self,
        name: ProviderName,
        address: str,
        offerings: Mapping[tuple[SkuName, int], tuple[Offering, ...]],
        installations: Installations,
    ) -> None:
        self._name, self._address, self._offerings = name, address, offerings
        self._installations = installations

    @property
    def name(self) -> ProviderName:
        return self._name

    @property
    def capabilities(self) -> Capabilities:
        cloud = CLOUDS.get(self._address)
        notices = cloud.notices if cloud is not None else None
        return Capabilities(largest_request=LARGEST_REQUEST, notices=notices)

    async def open(self) -> None:
        await self._cloud.open()
        self._cloud.adopt(self._installations.own)

    def offerings(self, sku: SkuName, option: int) -> tuple[Offering, ...]:
        return self._offerings[sku, option]

    def with_offerings_of(self, other: "MemoryProvider") -> "MemoryProvider":
        return MemoryProvider(self._name, self._address, other._offerings, self._installations)

    def adopt(self, installation: InstallationId) -> None:
        self._installations = self._installations.after_adoption(installation)
        self._cloud.adopt(installation)

    async def prepare(self, order: LaunchOrder) -> str:
        return json.dumps(
            {
                "launch_request": order.launch_request,
                "sku": order.sku,
                "offerings": order.offerings,
                "count": order.count,
                "token": order.token,
                "image": await self._cloud.image(order.sku),
            }
        )

    async def launch(self, request: str) -> LaunchAnswer:
        return await self._cloud.launch(request)

    async def terminate(
        self, machines: Sequence[ProviderMachineId]
    ) -> dict[ProviderMachineId, str]:
        return await self._cloud.terminate(machines)

    def machines(self) -> AsyncIterator[tuple[ListedMachine, ...]]:
        return self._cloud.machines()

    async def quotas(self) -> Mapping[str, int]:
        return await self._cloud.quotas()

    async def delete_unused(self, requests: Sequence[str]) -> tuple[str, ...]:
        return await self._cloud.delete_unused(requests)

    async def image(self, sku: SkuName) -> str:
        return await self._cloud.image(sku)

    async def console(self, machine: ProviderMachineId) -> str:
        return await self._cloud.console(machine)

    async def verify(self, proof: bytes) -> ProvenIdentity:
        """Ask the cloud whose token this is: `signed:ID,...`. It names the machine and nothing else."""
        word, _, rest = proof.partition(b":")
        machine = rest.partition(b",")[0]
        if word != b"signed" or not machine.isascii():
            raise ProofRefusedError("malformed")
        known = self._cloud.show([ProviderMachineId(machine.decode("ascii"))])
        if not known:
            raise ProofRefusedError("signature", "the cloud does not know this token")
        return ProvenIdentity(known[0].provider_id)

    async def close(self) -> None:
        pass

    @property
    def _cloud(self) -> SimulatedProvider:
        """The cloud. Raises ProviderError if it is not there."""
        if self._address not in CLOUDS:
            text = f"there is no cloud {self._address}"
            hint = "correct cloud, or create it"
            raise ProviderError(FailureClass.CONFIGURATION, "NoSuchCloud", text, hint=hint)
        return CLOUDS[self._address]
