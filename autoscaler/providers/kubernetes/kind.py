"""The kind `kubernetes` of providers."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from autoscaler.config.configuration import Configuration
from autoscaler.config.problems import Problem
from autoscaler.config.provider_kind import OnlineCheck, ProviderKind
from autoscaler.config.settings.fleet import ProviderSection, Settings
from autoscaler.config.settings.sku import LaunchOptionSettings, SkuSettings
from autoscaler.model.identifiers import ProviderName
from autoscaler.providers.kubernetes.checks import amounts, contradictions, labels, modes
from autoscaler.providers.kubernetes.configuration import (
    KEY,
    KubernetesOptionKeys,
    KubernetesSection,
)

if TYPE_CHECKING:
    from autoscaler.providers.kubernetes.provider import KubernetesFactory


class KubernetesKind(ProviderKind):
    """Pods of a Kubernetes cluster."""

    key = KEY
    about = "Pods on Kubernetes."
    section = KubernetesSection
    option = KubernetesOptionKeys
    needs = "pod"

    def factory(self, name: ProviderName, settings: Settings, folder: Path) -> "KubernetesFactory":
        """Return the factory of a provider."""
        from autoscaler.providers.kubernetes.provider import KubernetesFactory

        return KubernetesFactory(name, settings, folder)

    def check(self, configuration: Configuration) -> Iterator[Problem]:
        """Return contradictions between providers, and between a SKU and its pods; and warnings about pods."""
        yield from contradictions.check(configuration)
        yield from modes.check(configuration)
        yield from amounts.check(configuration)
        yield from labels.check(configuration)

    def preflight(self, configuration: Configuration, *, files: bool) -> Iterator[Problem]:
        """Return overlays that break a rule, unknown contexts, and files that cannot be used."""
        from autoscaler.providers.kubernetes.checks.kubeconfigs import file_problems
        from autoscaler.providers.kubernetes.checks.overlays import overlay_problems

        yield from overlay_problems(configuration)
        if files:
            yield from file_problems(configuration)

    def least_dollars(
        self, sku: SkuSettings, option: LaunchOptionSettings, section: ProviderSection
    ) -> float | None:
        """Return the price of a pod."""
        del sku, section
        assert isinstance(option, KubernetesOptionKeys)
        return option.price

    async def check_online(self, configuration: Configuration) -> OnlineCheck:
        """Ask each cluster for the rights of the credentials, and for a dry run of each launch option."""
        from autoscaler.providers.kubernetes.checks.online import check_online

        return await check_online(configuration)
