"""Marks a pod that may run a job."""

from collections.abc import Collection, Mapping
from typing import Any

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.identifiers import ProviderMachineId
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.kubernetes.api import paths
from autoscaler.providers.kubernetes.api.server import ApiServer
from autoscaler.providers.kubernetes.identity import ownership
from autoscaler.providers.kubernetes.identity.ownership import identity_of, metadata_of
from autoscaler.providers.kubernetes.listing.statuses import pod_state
from autoscaler.providers.kubernetes.settings import PodOption


async def protect_pod(
    api: ApiServer,
    namespace: str,
    machine: ProviderMachineId,
    options: Collection[PodOption] = (),
) -> None:
    """Set the annotations `assigned` and `karpenter.sh/do-not-disrupt` on this pod, and on no later one.

    They stay: Karpenter ignores pods that have ended. The API server refuses a patch whose UID is not that of
    the pod. Pods of those `options` that have no `do_not_disrupt` get only the first. Raises ProviderError,
    also if the pod was deleted or has ended; OutcomeUnknownError.
    """
    known = identity_of(machine)
    if known is None:
        raise ProviderError(FailureClass.UNKNOWN, "NotFound", f"{machine} is not a pod")
    path = paths.pod(namespace, known.name)

    async def annotate(*names: str) -> Mapping[str, Any]:
        change = {"metadata": {"uid": known.uid, "annotations": dict.fromkeys(names, "true")}}
        pod: Mapping[str, Any] = await api.request("PATCH", path, body=change)
        return pod

    if all(one.do_not_disrupt for one in options):
        pod = await annotate(ownership.ASSIGNED, ownership.DO_NOT_DISRUPT)
    else:
        # Only the answer shows the option of the pod.
        pod = await annotate(ownership.ASSIGNED)
        if _is_protected(pod, options):
            pod = await annotate(ownership.DO_NOT_DISRUPT)
    state = pod_state(pod)
    if state.leaving or state.terminated:
        text = state.finding.text if state.finding is not None else state.state
        raise ProviderError(FailureClass.UNKNOWN, "Leaving", f"pod {known.name}: {text}")


def _is_protected(pod: Mapping[str, Any], options: Collection[PodOption]) -> bool:
    """Return whether the launch option of a pod says so. It may have left the settings."""
    found = metadata_of(pod, "annotations")
    own = (found.get(ownership.SKU), found.get(ownership.SHAPE))
    return all(one.do_not_disrupt for one in options if (one.sku, one.shape) == own)
