"""Marks a pod that may run a job."""

from collections.abc import Collection, Mapping
from typing import Any

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import ProviderMachineId
from autoscaler.providers.kubernetes import ownership, paths
from autoscaler.providers.kubernetes.api_server import ApiServer
from autoscaler.providers.kubernetes.ownership import identity_of, metadata_of
from autoscaler.providers.kubernetes.settings import PodOption
from autoscaler.providers.kubernetes.statuses import pod_state


async def protect_pod(
    api: ApiServer,
    namespace: str,
    machine: ProviderMachineId,
    options: Collection[PodOption] = (),
) -> None:
    """Set the annotation `karpenter.sh/do-not-disrupt` on this pod, and on no other one of its name.

    It stays: Karpenter ignores it on a pod that has ended. The API server refuses a patch whose UID is not that
    of the pod. Pods of those `options` that have no `do_not_disrupt` get no annotation. Raises ProviderError,
    also if the pod was deleted or has ended; OutcomeUnknownError.
    """
    known = identity_of(machine)
    if known is None:
        raise ProviderError(FailureClass.UNKNOWN, "NotFound", f"{machine} is not a pod")
    path = paths.pod(namespace, known.name)
    pod: Mapping[str, Any] | None = None
    if not all(one.do_not_disrupt for one in options):
        pod = await api.request("GET", path)
        if pod["metadata"].get("uid") != known.uid:
            raise ProviderError(
                FailureClass.UNKNOWN, "NotFound", f"{machine} does not exist any more"
            )
    if pod is None or _is_protected(pod, options):
        change = {"metadata": {"uid": known.uid, "annotations": {ownership.DO_NOT_DISRUPT: "true"}}}
        pod = await api.request("PATCH", path, body=change)
    state = pod_state(pod)
    if state.leaving or state.terminated:
        text = state.finding.text if state.finding is not None else state.state
        raise ProviderError(FailureClass.UNKNOWN, "Leaving", f"pod {known.name}: {text}")


def _is_protected(pod: Mapping[str, Any], options: Collection[PodOption]) -> bool:
    """Return whether the launch option of a pod says so. It may have left the settings."""
    found = metadata_of(pod, "annotations")
    own = (found.get(ownership.SKU), found.get(ownership.SHAPE))
    return all(one.do_not_disrupt for one in options if (one.sku, one.shape) == own)
