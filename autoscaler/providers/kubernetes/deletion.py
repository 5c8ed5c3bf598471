"""Deletes pods: those of machines, and those that GitHub's container hooks can no longer delete.

The hooks delete a job's pod after the job. If the runner's pod is lost before, the job's pod stays, with its
requests of CPU and memory. GitHub's ARC also finds it by its label (`EphemeralRunnerReconciler`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.model.identifiers import ProviderMachineId
from autoscaler.providers.kubernetes.api import paths
from autoscaler.providers.kubernetes.api.server import ApiServer
from autoscaler.providers.kubernetes.identity.ownership import (
    RUNNER_POD,
    PodIdentity,
    identity_of,
    own_runner_pod,
)
from autoscaler.providers.kubernetes.launching import AT_ONCE
from autoscaler.providers.kubernetes.listing.machines import identity
from autoscaler.providers.kubernetes.listing.pods import list_pods, pages
from autoscaler.providers.kubernetes.settings import KubernetesSettings


async def delete_pods(
    api: ApiServer, namespace: str, machines: Sequence[ProviderMachineId]
) -> dict[ProviderMachineId, str]:
    """Delete these pods, and no others of the same names. Return why the API server refused some.

    Raises the error if it accepts none of the first ones.
    """
    refused: dict[ProviderMachineId, str] = {}
    wanted = list(dict.fromkeys(machines))
    for start in range(0, len(wanted), AT_ONCE):
        batch = wanted[start : start + AT_ONCE]
        answers = await asyncio.gather(*(_refusal(api, namespace, one) for one in batch))
        errors = [one for one in answers if not isinstance(one, str)]
        if errors and len(errors) == len(batch) and not start:
            raise errors[0]
        for machine, why in zip(batch, answers, strict=True):
            if why != "":
                refused[machine] = str(why) or type(why).__name__
    return refused


async def delete_left_pods(api: ApiServer, settings: KubernetesSettings) -> None:
    """Delete the pods of the hooks whose runner's pod is gone, if a launch option uses the hooks.

    Raises ProviderError, OutcomeUnknownError.
    """
    if not any(one.hooks for one in settings.options.values()):
        return
    # In this order: a runner's pod exists before those of its hooks.
    found = [
        pod
        async for page in pages(api, paths.pods(settings.namespace), RUNNER_POD)
        for pod in page.pods
    ]
    if not found:
        return
    present = {pod["metadata"]["name"] for pod in (await list_pods(api, settings)).pods}
    left = [
        pod
        for pod in found
        if own_runner_pod(settings.fleet, pod["metadata"]["labels"][RUNNER_POD])
        and pod["metadata"]["labels"][RUNNER_POD] not in present
    ]
    for start in range(0, len(left), AT_ONCE):
        batch = left[start : start + AT_ONCE]
        await asyncio.gather(*(_delete_if_left(api, settings.namespace, pod) for pod in batch))


async def _refusal(
    api: ApiServer, namespace: str, machine: ProviderMachineId
) -> str | ProviderError | OutcomeUnknownError:
    """Delete one pod. Return why it was refused, an error, or an empty text."""
    found = identity_of(machine)
    if found is None:
        return f"{machine} is not a pod's name and UID"
    try:
        await _delete(api, namespace, found)
    except (ProviderError, OutcomeUnknownError) as error:
        return error
    return ""


async def _delete_if_left(api: ApiServer, namespace: str, pod: Mapping[str, Any]) -> None:
    """Delete a job's pod once a GET has shown that its runner's pod is gone: perhaps only its labels are."""
    if not await _exists(api, paths.pod(namespace, pod["metadata"]["labels"][RUNNER_POD])):
        await _delete(api, namespace, identity(pod))


async def _delete(api: ApiServer, namespace: str, pod: PodIdentity) -> None:
    body = {"preconditions": {"uid": pod.uid}}
    try:
        await api.request("DELETE", paths.pod(namespace, pod.name), body=body)
    except ProviderError as error:
        # Conflict: a pod of this name exists with another UID, so this one does not.
        if error.code not in ("NotFound", "Conflict"):
            raise


async def _exists(api: ApiServer, path: str) -> bool:
    try:
        await api.request("GET", path)
    except ProviderError as error:
        if error.code != "NotFound":
            raise
        return False
    return True
