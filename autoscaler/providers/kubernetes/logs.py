"""Reads why a pod did not become ready: its status, and the end of its containers' logs."""

import asyncio
from collections.abc import Mapping
from typing import Any

from autoscaler.controller.ports.provider import (
    MOST_CONSOLE,
    OutcomeUnknownError,
    ProviderError,
)
from autoscaler.model.identifiers import ProviderMachineId, Seconds
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.kubernetes.api import paths
from autoscaler.providers.kubernetes.api.server import ApiServer
from autoscaler.providers.kubernetes.listing.machines import identity
from autoscaler.providers.kubernetes.listing.pods import read_pod
from autoscaler.providers.kubernetes.listing.statuses import pod_state
from autoscaler.providers.kubernetes.settings import RUNNER, KubernetesSettings

LINES = 128
"""Lines that are read of each container's log, the last ones."""

LIMIT_BYTES = LINES * 16 * 1024
"""Bytes that kubelet sends of them, the first ones.

So a smaller limit would cut off the end of the log. containerd splits lines after 16 KiB
(`max_container_log_line_size`), CRI-O's conmon after 8 KiB, and kubelet counts the parts as lines
(`pkg/util/tail`, `FindTailLineStartIndex`).
"""


LOGS_WITHIN: Seconds = 7.0
"""Timeout of all logs of a pod (real seconds). An API server waits longer for a node that does not answer."""


async def pod_logs(
    api: ApiServer,
    settings: KubernetesSettings,
    machine: ProviderMachineId,
    within: Seconds = LOGS_WITHIN,
) -> str:
    """Return a line about the pod's state, and the end of its containers' logs or why they cannot be read.

    At most `MOST_CONSOLE` characters. `within` is in real seconds, for the logs. Raises ProviderError,
    OutcomeUnknownError if the pod cannot be read.
    """
    pod = await read_pod(api, settings.namespace, machine)
    if pod is None:
        raise ProviderError(FailureClass.UNKNOWN, "NotFound", f"pod {machine} does not exist")
    state = pod_state(pod)
    parts = [state.finding.text if state.finding is not None else state.state]
    try:
        async with asyncio.timeout(within):
            await _add_logs(parts, api, settings, pod)
    except TimeoutError:
        parts.append(f"the logs could not be read within {within:g} s")
    except (ProviderError, OutcomeUnknownError) as error:
        # Kubelet has the logs, and the node may be lost. The state may say so.
        parts.append(f"the logs could not be read: {error}")
    return "\n".join(parts)[-MOST_CONSOLE:]


async def _add_logs(
    parts: list[str], api: ApiServer, settings: KubernetesSettings, pod: Mapping[str, Any]
) -> None:
    """Add the end of each container's log, with its name. Raises ProviderError, OutcomeUnknownError."""
    # In the order of their starts: after one that fails, also one of an overlay, the others never start.
    first = [str(one["name"]) for one in pod["spec"].get("initContainers") or ()]
    path = paths.log(settings.namespace, identity(pod).name)
    for container in (*first, RUNNER):
        query = {
            "container": container,
            "tailLines": str(LINES),
            "limitBytes": str(LIMIT_BYTES),
        }
        try:
            text = await api.text(path, query)
        except ProviderError as error:
            # The container has not started, or the pod has no node.
            if error.code != "BadRequest":
                raise
        else:
            parts.append(f"{container}:\n{text[-MOST_CONSOLE:]}")
