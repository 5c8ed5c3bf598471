"""The kind `kubernetes` of providers."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from autoscaler.config.problems import KeyPath, Problem
from autoscaler.config.provider_kind import OnlineCheck, ProviderKind
from autoscaler.config.reading.document import Document, Node
from autoscaler.config.settings.fleet import Settings
from autoscaler.model.identifiers import ProviderName
from autoscaler.providers.kubernetes import (
    amount_checks,
    container_mode_checks,
    file_checks,
    gpu_images,
)
from autoscaler.providers.kubernetes.configuration import KubernetesOptionKeys, KubernetesSection
from autoscaler.providers.kubernetes.file_checks import KEY

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
        yield from file_checks.contradictions(document)
        yield from container_mode_checks.contradictions(document)
        yield from amount_checks.contradictions(document)

    def warnings(self, document: Document, settings: Settings) -> Iterator[Problem]:
        """Return unused machine images, pods without a price or GPUs, and what container modes give to jobs."""
        yield from file_checks.warnings(document, settings)
        yield from container_mode_checks.warnings(document)
        yield from gpu_images.warnings(document)

    def preflight(self, document: Document, folder: Path, *, files: bool) -> Iterator[Problem]:
        """Return overlays that break a rule, unknown contexts, and files that cannot be used."""
        from autoscaler.providers.kubernetes.preflight import preflight

        yield from preflight(document, folder, files=files)

    async def check_online(
        self, document: Document, settings: Settings, folder: Path
    ) -> OnlineCheck:
        """Ask each cluster for the rights of the credentials, and for a dry run of each launch option."""
        from autoscaler.providers.kubernetes.online_checks import check_online

        return await check_online(document, settings, folder)
