"""The keys of a Kubernetes provider and its launch options in fleet.yaml, with their defaults."""

from collections.abc import Mapping

from pydantic import Field

from autoscaler.config.settings import ProviderSection
from autoscaler.config.shapes import Dollars, Name, Section, Text
from autoscaler.config.sku_settings import LaunchOptionSettings


class Pod(Section):
    """A runner's pod."""

    image: Text
    """The container image."""
    resources: Mapping[Text, Text] = Field(default_factory=dict)
    """Requests and limits by resource, as text: `cpu: "14"`."""
    node_selector: Mapping[Text, Text] = Field(default_factory=dict)
    """Labels that the node must have."""


class KubernetesOptionKeys(LaunchOptionSettings):
    """The keys of a launch option on Kubernetes."""

    price: Dollars = 0.0
    """The price of a pod in dollars an hour (Kubernetes)."""
    pod: Pod | None = None
    """The runner's pod (Kubernetes)."""


class KubernetesSection(ProviderSection):
    """Pods in one namespace of one cluster."""

    title = "Kubernetes"
    built = False

    context: Text
    """The kubeconfig context."""
    namespace: Name
    """The namespace of the runner pods."""

    def describe(self, option: LaunchOptionSettings) -> str:
        """Return a word: the pod is too long for the summary."""
        del option
        return "pod"
