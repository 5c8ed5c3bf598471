"""The kind `kubernetes` of providers."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from autoscaler.config.document import Document, Node
from autoscaler.config.problems import KeyPath, Problem
from autoscaler.config.provider_kind import OnlineCheck, ProviderKind
from autoscaler.config.settings import Settings
from autoscaler.model.identifiers import ProviderName
from autoscaler.providers.kubernetes.checks import amounts, contradictions, gpu_images, modes
from autoscaler.providers.kubernetes.checks.contradictions import KEY
from autoscaler.providers.kubernetes.configuration import KubernetesOptionKeys, KubernetesSection

if TYPE_CHECKING:
    from autoscaler.providers.kubernetes.factory import KubernetesFactory


class KubernetesKind(ProviderKind):
    """Pods of a Kubernetes cluster."""

    key = KEY
    about = "Pods on Kubernetes."
    section = KubernetesSection
    option = KubernetesOptionKeys
    needs = "pod"

    def factory(self, name: ProviderName, settings: Settings, folder: Path) -> "KubernetesFactory":
        """Return the factory of a provider."""
        from autoscaler.providers.kubernetes.factory import KubernetesFactory

        return KubernetesFactory(name, settings, folder)

    def files(self, section: Node) -> Iterator[KeyPath]:
        """Return the key of the kubeconfig."""
        if section.child("kubeconfig") is not None:
            yield ("kubeconfig",)

    def check(self, document: Document) -> Iterator[Problem]:
        """Return contradictions between providers, and between a SKU and its pods."""
        yield from contradictions.contradictions(document)
        yield from modes.contradictions(document)
        yield from amounts.contradictions(document)

    def warnings(self, document: Document, settings: Settings) -> Iterator[Problem]:
        """Return unused machine images, pods without a price or GPUs, and what container modes give to jobs."""
        yield from contradictions.warnings(document, settings)
        yield from modes.warnings(document)
        yield from gpu_images.warnings(document)

    def preflight(self, document: Document, folder: Path, *, files: bool) -> Iterator[Problem]:
        """Return overlays that break a rule, unknown contexts, and files that cannot be used."""
        from autoscaler.providers.kubernetes.checks.preflight import preflight

        yield from preflight(document, folder, files=files)

    async def check_online(
        self, document: Document, settings: Settings, folder: Path
    ) -> OnlineCheck:
        """Ask each cluster for the rights of the credentials, and for a dry run of each launch option."""
        from autoscaler.providers.kubernetes.checks.online import check_online

        return await check_online(document, settings, folder)
