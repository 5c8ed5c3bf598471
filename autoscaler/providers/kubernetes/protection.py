"""Marks a pod that may run a job."""

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import ProviderMachineId
from autoscaler.providers.kubernetes import ownership, paths
from autoscaler.providers.kubernetes.api_server import ApiServer
from autoscaler.providers.kubernetes.ownership import identity_of
from autoscaler.providers.kubernetes.statuses import pod_state


async def protect_pod(api: ApiServer, namespace: str, machine: ProviderMachineId) -> None:
    """Set the annotations `assigned` and `karpenter.sh/do-not-disrupt` on this pod, and on no later one.

    They stay: Karpenter ignores pods that have ended. The API server refuses a patch whose UID is not that of
    the pod. Raises ProviderError, also if the pod was deleted or has ended; OutcomeUnknownError.
    """
    known = identity_of(machine)
    if known is None:
        raise ProviderError(FailureClass.UNKNOWN, "NotFound", f"{machine} is not a pod")
    annotations = {ownership.ASSIGNED: "true", ownership.DO_NOT_DISRUPT: "true"}
    change = {"metadata": {"uid": known.uid, "annotations": annotations}}
    pod = await api.request("PATCH", paths.pod(namespace, known.name), body=change)
    state = pod_state(pod)
    if state.leaving or state.terminated:
        text = state.finding.text if state.finding is not None else state.state
        raise ProviderError(FailureClass.UNKNOWN, "Leaving", f"pod {known.name}: {text}")
