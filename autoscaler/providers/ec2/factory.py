"""Creates an EC2 provider: first its worker process, then the provider itself."""

from pathlib import Path

from autoscaler.config.settings import Settings
from autoscaler.controller.ports.provider import ProviderContext
from autoscaler.model.identifiers import ProviderName
from autoscaler.providers.ec2.channel import WorkerChannel
from autoscaler.providers.ec2.provider import Ec2Provider
from autoscaler.providers.ec2.translation import ec2_section, ec2_settings


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
        settings = ec2_settings(
            self._name,
            self._settings,
            self._folder,
            context.installations,
            context.agent_sha256,
        )
        return Ec2Provider(settings, context.telemetry, context.clock, self._worker)

    async def close(self) -> None:
        """End the worker process. Idempotent."""
        await self._worker.close()
