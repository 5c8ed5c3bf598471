"""Creates an EC2 provider: first its worker process, then the provider itself."""

from collections.abc import Callable
from pathlib import Path

from autoscaler.config.settings.fleet import Settings
from autoscaler.controller.ports.provider import Provider, ProviderContext
from autoscaler.model.identifiers import ProviderName
from autoscaler.providers.ec2.provider import Ec2Provider
from autoscaler.providers.ec2.settings import Ec2Settings, ec2_section, ec2_settings
from autoscaler.providers.ec2.worker.channel import WorkerChannel


class Ec2Factory:
    """Implements `ProviderFactory`."""

    def __init__(self, name: ProviderName, settings: Settings, folder: Path) -> None:
        self._name, self._settings, self._folder = name, settings, folder
        self._worker = WorkerChannel(ec2_section(settings, name).region)

    async def start(self) -> None:
        """Start the worker process: its imports take most of a second."""
        await self._worker.start()

    def make(self, context: ProviderContext) -> Ec2Provider:
        """Return the provider (see `ProviderFactory`)."""
        self._worker.leads = context.leads
        return Ec2Provider(
            self._provider_settings(context), context.telemetry, context.clock, self._worker
        )

    def remake(self, context: ProviderContext) -> Callable[[Provider], Provider]:
        """Return what makes a provider with other SKUs (see `ProviderFactory`)."""
        settings = self._provider_settings(context)

        def remade(provider: Provider) -> Provider:
            if not isinstance(provider, Ec2Provider):
                raise ValueError(f"provider {self._name} is not on EC2")  # noqa: TRY004 - as the port says
            return provider.with_skus_of(settings)

        return remade

    def _provider_settings(self, context: ProviderContext) -> Ec2Settings:
        return ec2_settings(
            self._name,
            self._settings,
            self._folder,
            context.installations,
            context.agent_sha256,
        )

    async def close(self) -> None:
        """End the worker process. Idempotent."""
        await self._worker.close()
