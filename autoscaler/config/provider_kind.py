"""A kind of provider: its keys in fleet.yaml, their checks, and how its providers are created.

Each kind is an instance of a subclass, in the folder of its provider. `providers/registry.py` lists them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from autoscaler.config.checks.contradictions import text
from autoscaler.config.problems import KeyPath, Problem
from autoscaler.config.reading.document import Document, Node
from autoscaler.config.settings.fleet import ProviderSection, Settings
from autoscaler.config.settings.sku import Accelerator, LaunchOptionSettings, SkuSettings
from autoscaler.controller.ports.provider import ProviderFactory
from autoscaler.model.identifiers import ProviderName


@dataclass(frozen=True, slots=True)
class OnlineCheck:
    """What providers answered to `check --online`. `lines` list what is in order, for the operator."""

    problems: tuple[Problem, ...] = ()
    lines: tuple[str, ...] = ()


class ProviderKind(ABC):
    """One kind of provider. Importing its module must not import an SDK: `check` needs the kind, too."""

    key: str
    """The key of its section under `providers.NAME` in fleet.yaml."""
    about: str
    """What providers of this kind are, in a short sentence: the description of the key."""
    section: type[ProviderSection]
    """The keys of the section."""
    option: type[LaunchOptionSettings]
    """The keys of its launch options besides `provider`. No other kind has them."""
    needs: str
    """The key that each of its launch options must have."""

    @property
    def option_keys(self) -> list[str]:
        """The keys that only launch options of this kind have."""
        return [
            key for key in self.option.model_fields if key not in LaunchOptionSettings.model_fields
        ]

    @abstractmethod
    def factory(self, name: ProviderName, settings: Settings, folder: Path) -> ProviderFactory:
        """Return the factory of a configured provider.

        `folder` is that of fleet.yaml: the files that it names are relative to it.
        """

    def files(self, section: Node) -> Iterator[KeyPath]:
        """Return the keys of a section that name files, which are then checked to be readable."""
        del section
        return iter(())

    def check(self, document: Document) -> Iterator[Problem]:
        """Return the contradictions in the file as written that this kind knows of.

        Like `preflight`, it ignores values of a wrong type, which `load` reports.
        """
        del document
        return iter(())

    def preflight(self, document: Document, folder: Path, *, files: bool) -> Iterator[Problem]:
        """Return why the file cannot be served, without network requests. `files`: read its files, too."""
        del document, folder, files
        return iter(())

    def accelerators(
        self, sku: SkuSettings, option: LaunchOptionSettings
    ) -> Mapping[str, Accelerator]:
        """Return the accelerators of each instance type of a launch option, as far as the agent can check them.

        Machines of a SKU without `accelerator` must have these. By default, none are known.
        """
        del sku, option
        return {}

    async def check_online(
        self, document: Document, settings: Settings, folder: Path
    ) -> OnlineCheck:
        """Ask the configured providers of this kind whether they would accept the launch options.

        Changes nothing. A provider that does not answer is a problem. By default, no provider is asked.
        """
        del document, folder
        names = [name for name, one in settings.providers.items() if one.kind == self.key]
        return OnlineCheck(lines=tuple(f"{name}: not checked online" for name in names))

    def warnings(self, document: Document, settings: Settings) -> Iterator[Problem]:
        """Return the warnings about values that are allowed but probably not intended."""
        del document, settings
        return iter(())


def sections_of(document: Document, key: str) -> Iterator[tuple[str, Node]]:
    """Return the providers of a kind by name, each with its section as written."""
    providers = document.root.child("providers")
    for name, provider in providers.entries() if providers else ():
        section = provider.child(key)
        if section is not None:
            yield name, section


def options_of(document: Document, key: str) -> Iterator[tuple[str, Node, int, Node]]:
    """Return the launch options at providers of a kind: the SKU's name and node, position, option."""
    providers = dict(sections_of(document, key))
    skus = document.root.child("skus")
    for name, sku in skus.entries() if skus else ():
        launch_options = sku.child("on")
        for index, option in launch_options.items() if launch_options else ():
            if text(option, "provider") in providers:
                yield name, sku, index, option
