"""The stored text of a launch request: the pods to create. Pure."""

import json

from autoscaler.controller.ports.provider import LaunchOrder, ProviderError
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.kubernetes import ownership
from autoscaler.providers.kubernetes.avoided_nodes import avoiding
from autoscaler.providers.kubernetes.manifests import pod_template
from autoscaler.providers.kubernetes.overlay import OverlayError
from autoscaler.providers.kubernetes.ownership import pod_names
from autoscaler.providers.kubernetes.settings import KubernetesSettings, PodOption


def launch_text(settings: KubernetesSettings, order: LaunchOrder) -> str:
    """Return the exact pods of a launch order as canonical JSON: their common part, and their names.

    Raises ProviderError.
    """
    option = option_of(settings, order)
    # Nodes that do not exist yet count as others, so a preference is enough for a provisioner.
    strictly = order.others_work and not settings.provisioner
    try:
        template = avoiding(pod_template(settings, option, order), order.avoided_hosts, strictly)
        names = pod_names(settings.fleet, order.launch_request, order.count)
    except OverlayError as error:
        raise ProviderError(FailureClass.CONFIGURATION, "Overlay", str(error)) from error
    except ValueError as error:
        raise ProviderError(FailureClass.CONFIGURATION, "Name", str(error)) from error
    request = {"pod": template, "names": names, "token": order.token}
    return json.dumps(request, sort_keys=True, separators=(",", ":"))


def option_of(settings: KubernetesSettings, order: LaunchOrder) -> PodOption:
    """Return the launch option of an order. Raises ProviderError if the settings do not have it."""
    option = settings.options.get((order.sku, order.option))
    if option is None:
        text = f"launch option {order.option} of {order.sku} is not on {settings.name}"
        raise ProviderError(FailureClass.CONFIGURATION, "Sku", text)
    return option


def request_of(text: str) -> str:
    """Return the ID of the launch request of a stored request, which is JSON text."""
    found: str = json.loads(text)["pod"]["metadata"]["labels"][ownership.LAUNCH_REQUEST]
    return found
