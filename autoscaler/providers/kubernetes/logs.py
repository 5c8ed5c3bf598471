"""Reads why a pod did not become ready: its status, and the end of its containers' logs."""

from autoscaler.controller.ports.provider import MOST_CONSOLE, ProviderError
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import ProviderMachineId
from autoscaler.providers.kubernetes import paths
from autoscaler.providers.kubernetes.answers import identity
from autoscaler.providers.kubernetes.api_server import ApiServer
from autoscaler.providers.kubernetes.manifests import RUNNER
from autoscaler.providers.kubernetes.ownership import identity_of
from autoscaler.providers.kubernetes.settings import KubernetesSettings
from autoscaler.providers.kubernetes.statuses import pod_state

LINES = 128
"""Lines that are read of each container's log, the last ones."""

LIMIT_BYTES = LINES * 16 * 1024
"""Bytes that kubelet sends of them, the first ones.

So a smaller limit would cut off the end of the log. containerd splits lines after 16 KiB
(`max_container_log_line_size`), CRI-O's conmon after 8 KiB, and kubelet counts the parts as lines
(`pkg/util/tail`, `FindTailLineStartIndex`).
"""


async def pod_logs(api: ApiServer, settings: KubernetesSettings, machine: ProviderMachineId) -> str:
    """Return a line about the pod's state, and the end of its containers' logs.

    At most `MOST_CONSOLE` characters. Raises ProviderError, OutcomeUnknownError.
    """
    known = identity_of(machine)
    name = known.name if known is not None else ""
    pod = await api.request("GET", paths.pod(settings.namespace, name)) if known else None
    if pod is None or identity(pod) != known:
        raise ProviderError(FailureClass.UNKNOWN, "NotFound", f"pod {machine} does not exist")
    state = pod_state(pod)
    parts = [state.finding.text if state.finding is not None else state.state]
    # In the order of their starts: after one that fails, also one of an overlay, the others never start.
    first = [str(one["name"]) for one in pod["spec"].get("initContainers") or ()]
    for container in (*first, RUNNER):
        query = {
            "container": container,
            "tailLines": str(LINES),
            "limitBytes": str(LIMIT_BYTES),
        }
        try:
            text = await api.text("GET", paths.log(settings.namespace, name), query)
        except ProviderError as error:
            # The container has not started, or the pod has no node.
            if error.code != "BadRequest":
                raise
        else:
            parts.append(f"{container}:\n{text[-MOST_CONSOLE:]}")
    return "\n".join(parts)[-MOST_CONSOLE:]
