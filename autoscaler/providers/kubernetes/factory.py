"""Creates a Kubernetes provider: first imports the official client, then makes the provider itself."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from autoscaler.config.settings.fleet import Settings
from autoscaler.controller.ports.provider import Provider, ProviderContext
from autoscaler.model.identifiers import ProviderName
from autoscaler.providers.kubernetes.api.library import import_library
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from autoscaler.providers.kubernetes.settings import KubernetesSettings
from autoscaler.providers.kubernetes.translation import kubernetes_settings


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
            self._provider_settings(context), context.telemetry, context.clock
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
