"""A kind of provider: its key in fleet.yaml, and how its providers are created.

Each kind is an instance of a subclass, in the folder of its provider. `providers/registry.py` lists them.
"""

from abc import ABC, abstractmethod
from pathlib import Path

from autoscaler.config.settings import Settings
from autoscaler.controller.ports.provider import ProviderFactory
from autoscaler.model.identifiers import ProviderName


class ProviderKind(ABC):
    """One kind of provider. Importing its module must not import an SDK: `check` needs the kind, too."""

    key: str
    """The key of its section under `providers.NAME` in fleet.yaml."""

    @abstractmethod
    def factory(
        self, name: ProviderName, settings: Settings, folder: Path
    ) -> ProviderFactory | None:
        """Return what creates a configured provider, or None if the kind is not implemented yet.

        `folder` is that of fleet.yaml: the files that it names are relative to it.
        """
