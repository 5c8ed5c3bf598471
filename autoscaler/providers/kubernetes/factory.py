"""Creates a Kubernetes provider: first imports the official client, then makes the provider itself."""

import asyncio
from pathlib import Path

from autoscaler.config.settings import Settings
from autoscaler.controller.ports.provider import ProviderContext
from autoscaler.model.identifiers import ProviderName
from autoscaler.providers.kubernetes.library import import_library
from autoscaler.providers.kubernetes.provider import KubernetesProvider
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
        settings = kubernetes_settings(
            self._name,
            self._settings,
            self._folder,
            context.installations,
            context.agent_sha256,
        )
        return KubernetesProvider(settings, context.telemetry, context.clock)

    async def close(self) -> None:
        """Wait until the import is done: a thread cannot be stopped. Idempotent."""
        if self._importing is not None:
            await self._importing
