"""Implements `Provider` for pods in one namespace of a Kubernetes cluster: one bare pod for each machine.

Sends each stored request once. The planner decides whether to launch, repeat or terminate.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path

from autoscaler.config.settings.fleet import Settings
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import (
    Capabilities,
    LaunchAnswer,
    LaunchOrder,
    ProvenIdentity,
    Provider,
    ProviderContext,
    ProviderError,
    provider_errors,
)
from autoscaler.controller.ports.replicas import Leads, leads_forever
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.model.catalogue import Offering
from autoscaler.model.events import ListedMachine
from autoscaler.model.identifiers import InstallationId, ProviderMachineId, ProviderName, SkuName
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.kubernetes.api import paths
from autoscaler.providers.kubernetes.api.client import KubernetesApi
from autoscaler.providers.kubernetes.api.errors import HINTS
from autoscaler.providers.kubernetes.api.kubeconfigs import import_library
from autoscaler.providers.kubernetes.api.server import ApiServer
from autoscaler.providers.kubernetes.capacity.accelerators import read_capacity
from autoscaler.providers.kubernetes.deletion import delete_left_pods, delete_pods
from autoscaler.providers.kubernetes.identity.tokens import verify_token
from autoscaler.providers.kubernetes.launching import launch_pods, launch_text, request_of
from autoscaler.providers.kubernetes.listing.machines import identity, listed_machine, offering
from autoscaler.providers.kubernetes.listing.pending import PendingPods
from autoscaler.providers.kubernetes.listing.pods import PAGE, list_pods
from autoscaler.providers.kubernetes.logs import pod_logs
from autoscaler.providers.kubernetes.notices.queue import PodNotices
from autoscaler.providers.kubernetes.protection import protect_pod
from autoscaler.providers.kubernetes.settings import KubernetesSettings, kubernetes_settings

LARGEST_REQUEST = 250
"""Pods in one launch request: half a second at the API server's own rate."""


@provider_errors
class KubernetesProvider:
    """Implements `Provider` for one namespace of one cluster."""

    def __init__(
        self,
        settings: KubernetesSettings,
        telemetry: Telemetry,
        clock: Clock,
        api: ApiServer | None = None,
        leads: Leads = leads_forever,
    ) -> None:
        """Connects to `api` with the first request; by default, to the API server of the settings.

        That one is asked to change something only while this process `leads`.
        """
        self._settings = settings
        connection = api if api is not None else KubernetesApi(settings, telemetry, clock, leads)
        self.notices = PodNotices(connection, settings, clock)
        self._api = self.notices.api
        self._pending = PendingPods(clock, settings.pending_timeout)
        self._opened = False
        self._ended: dict[ProviderMachineId, str] = {}

    @property
    def capabilities(self) -> Capabilities:
        """The watch of its pods, and their protection (see `Provider`)."""
        return Capabilities(
            largest_request=LARGEST_REQUEST,
            notices=self.notices,
            protect=self.protect,
            mends=HINTS,
        )

    @property
    def name(self) -> ProviderName:
        """The provider's name in the configuration."""
        return self._settings.name

    def with_skus_of(self, settings: KubernetesSettings) -> "KubernetesProvider":
        """Return a provider with the launch options of these settings. It shares the watch and connections."""
        changed = copy(self)
        changed._settings = replace(  # noqa: SLF001 - its own class
            self._settings, options=settings.options
        )
        return changed

    async def open(self) -> None:
        """Check that the namespace's pods can be listed (see `Provider`)."""
        await self._api.request("GET", paths.pods(self._settings.namespace), {"limit": "1"})
        self._opened = True

    def offerings(self, sku: SkuName, option: int) -> tuple[Offering, ...]:
        """Return the one offering of a launch option (see `Provider`)."""
        found = self._settings.options.get((sku, option))
        if found is None or not self._opened:
            return ()
        return (offering(self._settings, found),)

    def adopt(self, installation: InstallationId) -> None:
        """Use this installation's ID for new pods (see `Provider`)."""
        self._settings = self._settings.after_adoption(installation)

    async def prepare(self, order: LaunchOrder) -> str:
        """Return the pods to create as canonical JSON (see `Provider`)."""
        return launch_text(self._settings, order)

    async def launch(self, request: str) -> LaunchAnswer:
        """Create the pods of a stored request (see `Provider`)."""
        answer = await launch_pods(self._api, request)
        self._pending.created(one.provider_id for one in answer.launched)
        return answer

    async def terminate(
        self, machines: Sequence[ProviderMachineId]
    ) -> dict[ProviderMachineId, str]:
        """Delete these pods, and no others of the same names (see `Provider`)."""
        return await delete_pods(self._api, self._settings.namespace, machines)

    async def machines(self) -> AsyncIterator[tuple[ListedMachine, ...]]:
        """Yield pages of all pods with this fleet's label (see `Provider`)."""
        pods = (await list_pods(self._api, self._settings)).pods
        self._pending.keep_only({identity(pod).machine for pod in pods})
        listed: list[ListedMachine] = []
        for start in range(0, len(pods), PAGE):
            page = [
                listed_machine(self._settings, pod, overdue=self._pending.is_overdue(pod))
                for pod in pods[start : start + PAGE]
            ]
            listed += page
            yield tuple(page)
            # Thousands of pods in one step would hold the event loop.
            await asyncio.sleep(0)
        own = self._settings.installations.all
        self._ended = {
            one.provider_id: one.launch_request
            for one in listed
            if one.terminated and one.installation in own
        }

    async def quotas(self) -> Mapping[str, int]:
        """Return the accelerators of the nodes, if no provisioner adds nodes (see `Provider`)."""
        if self._settings.provisioner:
            return {}
        return (await read_capacity(self._api, self._settings)).free

    async def delete_unused(self, requests: Sequence[str]) -> tuple[str, ...]:
        """Delete the pods that have ended, after a listing showed them as terminated (see `Provider`).

        The names of a request that may still be sent stay taken, so that it creates no second pod. Pods of
        container hooks whose runner's pod is gone are deleted, too.
        """
        kept = {request_of(request) for request in requests}
        ended = [machine for machine, request in self._ended.items() if request not in kept]
        refused = await self.terminate(ended)
        await delete_left_pods(self._api, self._settings)
        return tuple(machine for machine in ended if machine not in refused)

    async def image(self, sku: SkuName) -> str:
        """Return the image of the SKU's first launch option here: as configured (see `Provider`)."""
        for (name, _), option in sorted(self._settings.options.items(), key=lambda one: one[0]):
            if name == sku:
                return option.image
        text = f"{sku} is not a SKU on {self.name}"
        raise ProviderError(FailureClass.CONFIGURATION, "Sku", text)

    async def console(self, machine: ProviderMachineId) -> str:
        """Return the end of the logs of a pod's containers (see `Provider`)."""
        return await pod_logs(self._api, self._settings, machine)

    async def verify(self, proof: bytes) -> ProvenIdentity:
        """Ask the API server whose token this is (see `Provider`)."""
        return await verify_token(self._api, self._settings, proof)

    async def protect(self, machine: ProviderMachineId) -> None:
        """Annotate a pod, so that Karpenter keeps its node until it has ended (see `Capabilities`)."""
        settings = self._settings
        await protect_pod(self._api, settings.namespace, machine, settings.options.values())

    async def close(self) -> None:
        """End the watch and release the connections. Idempotent."""
        await self.notices.close()
        await self._api.close()


class KubernetesFactory:
    """Implements `ProviderFactory`."""

    def __init__(self, name: ProviderName, settings: Settings, folder: Path) -> None:
        self._name, self._settings, self._folder = name, settings, folder
        self._importing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Import the official client in a thread: its 900 modules take two seconds of CPU."""
        self._importing = asyncio.create_task(asyncio.to_thread(import_library))

    def make(self, context: ProviderContext) -> KubernetesProvider:
        """Return the provider (see `ProviderFactory`)."""
        return KubernetesProvider(
            self._provider_settings(context),
            context.telemetry,
            context.clock,
            leads=context.leads,
        )

    def remake(self, context: ProviderContext) -> Callable[[Provider], Provider]:
        """Return what makes a provider with other SKUs (see `ProviderFactory`)."""
        settings = self._provider_settings(context)

        def remade(provider: Provider) -> Provider:
            if not isinstance(provider, KubernetesProvider):
                raise ValueError(f"provider {self._name} is not on Kubernetes")  # noqa: TRY004 - as the port says
            return provider.with_skus_of(settings)

        return remade

    def _provider_settings(self, context: ProviderContext) -> KubernetesSettings:
        return kubernetes_settings(
            self._name,
            self._settings,
            self._folder,
            context.installations,
            context.agent_sha256,
        )

    async def close(self) -> None:
        """Wait until the import is done: a thread cannot be stopped. Idempotent."""
        if self._importing is not None:
            await self._importing
