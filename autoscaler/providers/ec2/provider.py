"""EC2 as a provider: orders become CreateFleet requests, answers become facts.

Each stored request is sent once, and what EC2 says is put in the records' words. Whether to
launch, repeat or end is never decided here.
"""

import json
from collections.abc import AsyncIterator, Sequence

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import (
    LaunchAnswer,
    LaunchOrder,
    ProofRefusedError,
    ProvenIdentity,
    ProviderError,
)
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.model.catalogue import Architecture, CapacityType, Offering, OperatingSystem
from autoscaler.model.events import ListedMachine
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import ProviderMachineId, ProviderName
from autoscaler.providers.ec2.answers import launch_answer, listed_machine
from autoscaler.providers.ec2.calls import MeteredApi
from autoscaler.providers.ec2.channel import Api, WorkerChannel
from autoscaler.providers.ec2.endings import end_machines
from autoscaler.providers.ec2.errors import first_part
from autoscaler.providers.ec2.identity import IdentityVerifier, pinned_certificates
from autoscaler.providers.ec2.instance_types import InstanceTypeError, instance_type
from autoscaler.providers.ec2.offerings import price_offerings
from autoscaler.providers.ec2.requests import fleet_request
from autoscaler.providers.ec2.resources import Resources
from autoscaler.providers.ec2.rows import InstanceRow
from autoscaler.providers.ec2.settings import Ec2Settings
from autoscaler.providers.ec2.tags import FLEET
from autoscaler.providers.ec2.throttle import Throttle

PAGE = 500
"""Machines a page of the list: some 0.2 s of the worker's parsing."""

_GONE = frozenset(
    {"InvalidAMIID", "InvalidLaunchTemplateId", "InvalidLaunchTemplateName", "InvalidSubnetID"}
)


class Ec2Provider:
    """One region of one account, as `Provider` demands it. Call `open` before anything else."""

    def __init__(
        self,
        settings: Ec2Settings,
        telemetry: Telemetry,
        clock: Clock,
        api: Api | None = None,
    ) -> None:
        """`api` is a worker process of the provider's own when left out.

        Raises ValueError when an identity certificate cannot be used.
        """
        worker = api or WorkerChannel(settings.region, settings.endpoint_url, settings.timeouts)
        throttle = Throttle(clock, settings.buckets)
        self._settings = settings
        self._api = MeteredApi(worker, settings.name, telemetry, clock, throttle)
        self._resources = Resources(settings, self._api, clock)
        self._verifier = IdentityVerifier(
            settings.region, pinned_certificates(settings.region, settings.identity_certificates)
        )
        self._account: str | None = settings.account

    @property
    def name(self) -> ProviderName:
        """As the configuration calls it."""
        return self._settings.name

    @property
    def believes_documents(self) -> bool:
        """Whether any certificate is pinned; without one no machine can prove who it is."""
        return bool(self._verifier.certificates)

    async def open(self) -> None:
        """Read the account and the subnets' zones. Raises ProviderError, OutcomeUnknownError."""
        if not self.believes_documents:
            text = (
                f"no certificate is pinned for region {self._settings.region}: no machine could "
                "prove who it is; name AWS's certificate for it in identity_certificates"
            )
            raise ProviderError(FailureClass.CONFIGURATION, "IdentityCertificates", text)
        self._account = await self._resources.account()
        await self._resources.subnets()

    def offerings(
        self,
        instance_types: Sequence[str],
        capacity_types: Sequence[CapacityType],
        os: OperatingSystem,
        arch: Architecture,
    ) -> tuple[Offering, ...]:
        """A rung's offerings: by capacity type, then instance type, each in every zone.

        Raises InstanceTypeError (a ValueError), naming the type, when it is not known, has no
        price, or is of another architecture.
        """
        for name in instance_types:
            if instance_type(name).arch is not arch:
                raise InstanceTypeError(f"instance type {name} is not {arch.value}")
        wanted = (instance_types, capacity_types, os)
        zones = self._resources.zones
        return price_offerings(self.name, zones, wanted, self._settings.prices)

    async def prepare(self, order: LaunchOrder) -> str:
        """The exact CreateFleet request as canonical JSON (see `Provider`)."""
        sku = self._settings.skus.get(order.sku)
        if sku is None:
            raise ProviderError(FailureClass.CONFIGURATION, "Sku", f"{order.sku} is not for EC2")
        template = await self._resources.template(sku)
        return fleet_request(self._settings, order, template, await self._resources.subnets())

    async def launch(self, request: str) -> LaunchAnswer:
        """Send a stored request, once (see `Provider`)."""
        body = json.loads(request)
        template = body["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"]
        try:
            answer = await self._api.call("CreateFleet", body)
        except ProviderError as error:
            self._note(error.code)
            raise
        image = self._resources.image_of(template["LaunchTemplateId"])
        result = launch_answer(self.name, body, answer, image)
        for failure in result.failures:
            self._note(failure.code)
        return result

    async def end(self, machines: Sequence[ProviderMachineId]) -> dict[ProviderMachineId, str]:
        """Ask for these to be terminated (see `Provider`)."""
        return await end_machines(self._api, machines)

    async def machines(self) -> AsyncIterator[tuple[ListedMachine, ...]]:
        """Every machine with this fleet's tag, in pages (see `Provider`)."""
        page: str | None = None
        while True:
            arguments = {"tag": FLEET, "value": self._settings.fleet, "size": PAGE, "page": page}
            rows, page = await self._api.call("DescribeInstances", arguments)
            yield tuple(listed_machine(self._settings, InstanceRow(*row)) for row in rows)
            if not page:
                return

    def verify(self, proof: bytes) -> ProvenIdentity:
        """Check an instance identity document (see `Provider`)."""
        if self._account is None:
            raise ProofRefusedError("account", "the provider has not been opened")
        return self._verifier.verify(proof, self._account)

    async def close(self) -> None:
        """End the worker process. Idempotent."""
        await self._api.close()

    def _note(self, code: str) -> None:
        if first_part(code) in _GONE:
            self._resources.forget()
