"""A kind of provider: its keys in fleet.yaml, their checks, and how its providers are created.

Each kind is an instance of a subclass, in the folder of its provider. `providers/registry.py` lists them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from autoscaler.config.configuration import Configuration
from autoscaler.config.examinations import Check, Examination, fine, wrong
from autoscaler.config.problems import KeyPath, Problem
from autoscaler.config.settings.fleet import ProviderSection, Settings
from autoscaler.config.settings.sku import Accelerator, LaunchOptionSettings, SkuSettings
from autoscaler.controller.ports.provider import ProviderFactory
from autoscaler.model.identifiers import ProviderName, Seconds

AnySection = TypeVar("AnySection", bound=ProviderSection)
AnyOption = TypeVar("AnyOption", bound=LaunchOptionSettings)


@dataclass(frozen=True, slots=True)
class OnlineCheck:
    """What providers answered to `check --online`. `lines` list what is in order, for the operator."""

    problems: tuple[Problem, ...] = ()
    lines: tuple[str, ...] = ()


def _checks_of(online: OnlineCheck) -> list[Check]:
    """Return the checks of a doctor that say what `check --online` says."""
    return [
        *(
            wrong(
                one.key,
                one.what,
                "a warning of autoscaler check --online"
                if one.warning
                else "no pod can be created",
                f"{one.fix}; then: autoscaler check --online {one.file}",
            )
            for one in online.problems
        ),
        *(fine(*line.partition(": ")[::2]) for line in online.lines),
    ]


class ProviderKind(ABC):
    """One kind of provider. Importing its module must not import an SDK: `check` needs the kind, too.

    A check runs as far as the keys that it reads have values (see `run_checks`).
    """

    key: str
    """The key of its section under `providers.NAME` in fleet.yaml."""
    about: str
    """What providers of this kind are, in a short sentence: the description of the key."""
    section: type[ProviderSection]
    """The keys of the section."""
    option: type[LaunchOptionSettings]
    """The keys of its launch options besides `provider`. No other kind has them."""
    sku: type[SkuSettings] = SkuSettings
    """The keys of SKUs with its launch options, besides those of every SKU."""
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

    def check(self, configuration: Configuration) -> Iterator[Problem]:
        """Return the contradictions that this kind knows of, and warnings about values that seem unintended."""
        del configuration
        return iter(())

    def preflight(self, configuration: Configuration, *, files: bool) -> Iterator[Problem]:
        """Return why the file cannot be served, without network requests. `files`: read its files, too."""
        del configuration, files
        return iter(())

    def accelerators(
        self, sku: SkuSettings, option: LaunchOptionSettings
    ) -> Mapping[str, Accelerator]:
        """Return the accelerators of each instance type of a launch option, as far as the agent can check them.

        Machines of a SKU without `accelerator` must have these. By default, none are known.
        """
        del sku, option
        return {}

    def least_dollars(
        self, sku: SkuSettings, option: LaunchOptionSettings, section: ProviderSection
    ) -> float | None:
        """Return the lowest price of a launch option in dollars an hour, or None if it is not known."""
        del sku, option, section
        return None

    async def check_online(self, configuration: Configuration) -> OnlineCheck | None:
        """Ask the configured providers of this kind whether they would accept the launch options.

        Changes nothing. A provider that does not answer is a problem. Returns None if the kind has
        `examinations` of its own: `check --online` carries these out.
        """
        del configuration
        return None

    def examinations(self, configuration: Configuration, within: Seconds) -> Iterator[Examination]:
        """Return what `autoscaler doctor` asks the providers; by default, what `check_online` asks.

        Each is ended after `within` seconds.
        """
        del within

        async def ask() -> list[Check]:
            online = await self.check_online(configuration)
            return [] if online is None else _checks_of(online)

        if any(one.kind == self.key for _, one in configuration.providers()):
            yield Examination(self.about.removesuffix("."), self.key, ask)

    async def runner_versions(
        self, configuration: Configuration, within: Seconds
    ) -> Mapping[str, str]:
        """Return the version of actions/runner by the name of each image that says it; by default, none."""
        del configuration, within
        return {}


@dataclass(frozen=True, slots=True)
class OptionOf(Generic[AnySection, AnyOption]):
    """A launch option, with the section of its provider and with its SKU. `index` is its position there."""

    name: str
    sku: SkuSettings
    index: int
    option: AnyOption
    section: AnySection

    @property
    def path(self) -> KeyPath:
        """Its place in fleet.yaml."""
        return ("skus", self.name, "on", self.index)


def sections_of(
    configuration: Configuration, section: type[AnySection]
) -> Iterator[tuple[str, AnySection]]:
    """Return the sections of a kind by the names of their providers, except those without a value."""
    for name, provider in configuration.providers():
        found = (getattr(provider, key, None) for key in type(provider).model_fields)
        yield from ((name, one) for one in found if isinstance(one, section))


def options_of(
    configuration: Configuration, section: type[AnySection], option: type[AnyOption]
) -> Iterator[OptionOf[AnySection, AnyOption]]:
    """Return the launch options at providers of a kind, except those without a known provider."""
    sections = dict(sections_of(configuration, section))
    for name, sku in configuration.skus():
        for index, one in enumerate(getattr(sku, "launch_options", ())):
            provider = getattr(one, "provider", None)
            if provider in sections and isinstance(one, option):
                yield OptionOf(name, sku, index, one, sections[provider])
