"""Implements `Provider` for EC2 with CreateFleet, DescribeInstances and TerminateInstances.

Sends each stored request once. The planner decides whether to launch, repeat or terminate.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import structlog

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import (
    Capabilities,
    LaunchAnswer,
    LaunchOrder,
    ProofRefusedError,
    ProvenIdentity,
    ProviderError,
    provider_errors,
)
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.model.catalogue import LaunchRate, Offering, Rate
from autoscaler.model.events import ListedMachine
from autoscaler.model.identifiers import InstallationId, ProviderMachineId, ProviderName, SkuName
from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.providers.ec2.configuration import TokenBucket
from autoscaler.providers.ec2.errors import HINTS, first_part
from autoscaler.providers.ec2.identity.documents import IdentityVerifier, pinned_certificates
from autoscaler.providers.ec2.instance_types import InstanceTypeError, instance_type
from autoscaler.providers.ec2.launching.answers import (
    launch_answer,
    refused_override,
)
from autoscaler.providers.ec2.launching.offerings import price_offerings
from autoscaler.providers.ec2.launching.requests import fleet_request, template_of
from autoscaler.providers.ec2.launching.reservations import Reservations
from autoscaler.providers.ec2.launching.templates import Resources, sku_for
from autoscaler.providers.ec2.launching.termination import terminate_machines
from autoscaler.providers.ec2.launching.unused import UnusedResources
from autoscaler.providers.ec2.listing import list_instances, listed_machine, read_console
from autoscaler.providers.ec2.notices.queue import Ec2NoticeQueue
from autoscaler.providers.ec2.prices.price_book import Ec2Prices
from autoscaler.providers.ec2.prices.quotas import (
    COUNTED_STATES,
    AccountLimits,
    available_quotas,
    quota_requests,
    used_by_others,
)
from autoscaler.providers.ec2.settings import Ec2Settings, Ec2Sku
from autoscaler.providers.ec2.tags import FLEET
from autoscaler.providers.ec2.worker.channel import Api
from autoscaler.providers.ec2.worker.throttle import (
    MeteredApi,
    Throttle,
    request_bucket,
    resource_bucket,
)

LARGEST_REQUEST = 1000
"""Machines in one CreateFleet: EC2 launches no more, and Karpenter requests no more."""

_TEMPLATE_NOT_FOUND = frozenset({"InvalidLaunchTemplateId", "InvalidLaunchTemplateName"})
_NOT_FOUND = frozenset({"InvalidAMIID", "InvalidSubnetID"})

_log = structlog.get_logger(__name__)


@provider_errors
class Ec2Provider:
    """Implements `Provider` for one region of one account. Call `open` first."""

    def __init__(
        self,
        settings: Ec2Settings,
        telemetry: Telemetry,
        clock: Clock,
        api: Api,
    ) -> None:
        """Raises ValueError if an identity certificate cannot be used."""
        ec2 = settings.section
        requests, resources = _rates(ec2.request_buckets), _rates(ec2.resource_buckets)
        throttle = Throttle(clock, requests, resources)
        self._settings = settings
        self._api = MeteredApi(api, settings.name, telemetry, clock, throttle)
        self._resources = Resources(settings, self._api, clock)
        self._reservations = Reservations(settings, self._api)
        self._unused_resources = UnusedResources(settings, self._api, clock, self._resources)
        self.prices = Ec2Prices(settings, self._api, clock)
        self.limits = AccountLimits(settings, self._api, clock)
        files = (settings.folder / one for one in ec2.identity_certificates)
        self._verifier = IdentityVerifier(ec2.region, pinned_certificates(ec2.region, files))
        self.capabilities = Capabilities(
            largest_request=LARGEST_REQUEST,
            launch_rate=LaunchRate(
                request_bucket("CreateFleet", requests),
                resource_bucket("CreateFleet", resources),
            ),
            notices=Ec2NoticeQueue(settings, self._api, queue, self.prices.listed)
            if (queue := ec2.interruption_queue) is not None
            else None,
            prices=self.prices,
            limits=self.limits,
            mends=HINTS | quota_requests(ec2.region),
            image_name=self._resources.image_name,
        )
        self._account = ec2.account
        self._unsold: dict[str, tuple[str, ...]] = {}

    @property
    def name(self) -> ProviderName:
        """The provider's name in the configuration."""
        return self._settings.name

    @property
    def accepts_documents(self) -> bool:
        """Return whether a certificate is pinned; without one no machine can prove its identity."""
        return bool(self._verifier.certificates)

    def adopt(self, installation: InstallationId) -> None:
        """Use this installation's ID for tags, and delete unused resources of all former IDs too."""
        self._settings = self._settings.after_adoption(installation)
        self._resources.use(self._settings)
        self._unused_resources.use(self._settings)

    def with_skus_of(self, settings: Ec2Settings) -> "Ec2Provider":
        """Return a provider with the SKUs of these settings. It shares all caches and the worker process."""
        changed = copy(self)
        changed._settings = replace(  # noqa: SLF001 - its own class
            self._settings, skus=settings.skus, offered=settings.offered
        )
        return changed

    async def open(self) -> None:
        """Read the account, the subnets' zones and their instance types; may be called again.

        Raises ProviderError, OutcomeUnknownError.
        """
        if not self.accepts_documents:
            text = (
                f"no certificate is pinned for region {self._settings.section.region}, so no machine can "
                "prove its identity; add AWS's certificate for the region to identity_certificates"
            )
            raise ProviderError(FailureClass.CONFIGURATION, "IdentityCertificates", text)
        self._resources.keep_only(self._settings)
        self._reservations.use(self._settings)
        self.prices.use(self._settings)
        self.limits.use(self._settings)
        self._account = await self._resources.account()
        await self._resources.read_offered_types()
        await self._reservations.read()

    def offerings(self, sku: SkuName, option: int) -> tuple[Offering, ...]:
        """Return a launch option's offerings (see `Provider`).

        Raises InstanceTypeError (a ValueError), naming the type, when it is not known, has no
        price, or is of another architecture.
        """
        known = self._settings.skus[sku]
        wanted, os = known.options[option], known.keys.os
        for name in wanted.instance_types or ():
            if instance_type(name).arch is not known.keys.arch:
                raise InstanceTypeError(f"instance type {name} is not {known.keys.arch.value}")
        zones, offered = self._resources.zones, self._resources.offered_types
        found = price_offerings(self.name, zones, offered, wanted, os, self.prices.listed())
        sold = {one.instance_type for one in found}
        self._log_unsold(wanted.instance_types or (), sold, zones)
        return self._reservations.offerings(wanted, os, found)

    def _log_unsold(
        self, wanted: Sequence[str], offered: Collection[str], zones: tuple[str, ...]
    ) -> None:
        """Log each type that no zone offers, but only once, because each new price repeats the check."""
        for name in sorted(set(wanted)):
            if name in offered:
                self._unsold.pop(name, None)
            elif zones and self._unsold.get(name) != zones:
                self._unsold[name] = zones
                _log.warning(
                    "instance_type_not_sold", provider=self.name, instance_type=name, zones=zones
                )

    async def prepare(self, order: LaunchOrder) -> str:
        """Return the exact CreateFleet request as canonical JSON (see `Provider`)."""
        sku = self._settings.skus.get(order.sku)
        if sku is None:
            raise ProviderError(
                FailureClass.CONFIGURATION, "Sku", f"{order.sku} is not a SKU on EC2"
            )
        template = await self._template(sku, order)
        return fleet_request(self._settings, order, template, await self._resources.subnets())

    async def _template(self, sku: Ec2Sku, order: LaunchOrder) -> str:
        chosen = sku_for(sku, order.launch_request)
        try:
            if chosen is not sku and await self._resources.image(chosen) == order.refused_image:
                chosen = sku
            return await self._resources.template(chosen, order.option)
        except ProviderError as error:
            if chosen is sku or error.failure is not FailureClass.CONFIGURATION:
                raise
            # A missing canary image must not stop the SKU's launches.
            _log.warning("canary_image_unusable", sku=sku.name, error=str(error))
            return await self._resources.template(sku, order.option)

    async def launch(self, request: str) -> LaunchAnswer:
        """Send a stored request, once (see `Provider`)."""
        body, template = json.loads(request), template_of(request)
        try:
            answer = await self._api.call("CreateFleet", body)
        except ProviderError as error:
            raise self._refused(body, template, error) from error
        result = launch_answer(self.name, body, answer, self._resources.image_of(template))
        # A request has one subnet for each zone. EC2 may also report pools that were not requested.
        subnets = {
            one["AvailabilityZone"]: one["SubnetId"]
            for one in body["LaunchTemplateConfigs"][0]["Overrides"]
        }
        for failure in result.failures:
            self._note(failure.code, template)
            if failure.scope is FailureScope.ZONE and failure.offering is not None:
                zone = failure.offering.rsplit("/", 2)[1]
                if zone in subnets:
                    self._resources.note_full(subnets[zone])
        return result

    async def terminate(
        self, machines: Sequence[ProviderMachineId]
    ) -> dict[ProviderMachineId, str]:
        """Request the termination of these machines (see `Provider`)."""
        return await terminate_machines(self._api, machines)

    async def machines(self) -> AsyncIterator[tuple[ListedMachine, ...]]:
        """Yield pages of all machines with this fleet's tag (see `Provider`)."""
        async for rows in list_instances(self._api, f"tag:{FLEET}", (self._settings.fleet,)):
            prices = self.prices.listed()
            yield tuple(listed_machine(self._settings, row, prices) for row in rows)

    async def quotas(self) -> Mapping[str, int]:
        """Return the vCPUs that others leave of each quota, and the sizes of capacity reservations."""
        known = await self.limits.read()
        await self._reservations.read()
        others: Counter[str] = Counter()
        async for rows in list_instances(self._api, "instance-state-name", COUNTED_STATES):
            others += used_by_others(self._settings.fleet, rows)
        return available_quotas(self.name, known, others) | self._reservations.quotas()

    async def delete_unused(self, requests: Sequence[str]) -> tuple[str, ...]:
        """Delete unused launch templates and volumes (see `Provider`)."""
        return await self._unused_resources.delete_unused(requests)

    async def image(self, sku: SkuName) -> str:
        """Read the SKU's newest image, and use it from now on (see `Provider`)."""
        known = self._settings.skus.get(sku)
        if known is None:
            raise ProviderError(FailureClass.CONFIGURATION, "Sku", f"{sku} is not a SKU on EC2")
        return await self._resources.image(known, anew=True)

    async def console(self, machine: ProviderMachineId) -> str:
        """Return the latest console output, or else the last transition's (see `Provider`)."""
        return await read_console(self._api, machine)

    async def verify(self, proof: bytes) -> ProvenIdentity:
        """Verify an instance identity document, without asking AWS (see `Provider`)."""
        if self._account is None:
            raise ProofRefusedError("account", "the provider has not been opened")
        return self._verifier.verify(proof, self._account)

    async def close(self) -> None:
        """End the worker process. Idempotent."""
        await self._api.close()

    def _refused(self, body: Any, template: str, error: ProviderError) -> ProviderError:
        """Return the error for a refusal of the whole call."""
        refused = refused_override(self.name, body, error)
        if refused is not None:
            if error.scope is FailureScope.ZONE:
                self._resources.note_full(refused[0])
            return refused[1]
        self._note(error.code, template)
        return error

    def _note(self, code: str, template: str) -> None:
        if first_part(code) in _TEMPLATE_NOT_FOUND:
            self._resources.forget_template(template)
        elif first_part(code) in _NOT_FOUND:
            self._resources.invalidate()


def _rates(buckets: Mapping[str, TokenBucket]) -> dict[str, Rate]:
    return {api: Rate(one.burst, one.per_second) for api, one in buckets.items()}
