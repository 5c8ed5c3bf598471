"""The kind `ec2` of providers."""

from pathlib import Path
from typing import TYPE_CHECKING

from autoscaler.config.provider_kind import ProviderKind
from autoscaler.config.settings import Settings
from autoscaler.model.identifiers import ProviderName

if TYPE_CHECKING:
    from autoscaler.providers.ec2.factory import Ec2Factory


class Ec2Kind(ProviderKind):
    """Machines on EC2."""

    key = "ec2"

    def factory(self, name: ProviderName, settings: Settings, folder: Path) -> "Ec2Factory":
        """Return what creates the provider with its worker process."""
        from autoscaler.providers.ec2.factory import Ec2Factory

        return Ec2Factory(name, settings, folder)
