"""The kind `kubernetes` of providers. Its keys are accepted in fleet.yaml and have no effect yet."""

from pathlib import Path

from autoscaler.config.provider_kind import ProviderKind
from autoscaler.config.settings import Settings
from autoscaler.model.identifiers import ProviderName
from autoscaler.providers.kubernetes.configuration import KubernetesOptionKeys, KubernetesSection


class KubernetesKind(ProviderKind):
    """Pods of a Kubernetes cluster."""

    key = "kubernetes"
    about = "Pods on Kubernetes."
    section = KubernetesSection
    option = KubernetesOptionKeys
    needs = "pod"

    def factory(self, name: ProviderName, settings: Settings, folder: Path) -> None:
        """Return None: the provider is not implemented yet."""
