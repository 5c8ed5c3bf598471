"""Deletes pods that GitHub's container hooks created and can no longer delete.

The hooks delete a job's pod after the job. If the runner's pod is lost before, the job's pod stays, with its
requests of CPU and memory. GitHub's ARC also finds it by its label (`EphemeralRunnerReconciler`).
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.providers.kubernetes.api import paths
from autoscaler.providers.kubernetes.api.server import ApiServer
from autoscaler.providers.kubernetes.identity.ownership import RUNNER_POD, own_runner_pod
from autoscaler.providers.kubernetes.launching import AT_ONCE
from autoscaler.providers.kubernetes.listing.pods import list_pods, pages
from autoscaler.providers.kubernetes.settings import ContainerHooks, KubernetesSettings


async def delete_left_pods(api: ApiServer, settings: KubernetesSettings) -> None:
    """Delete the pods of the hooks whose runner's pod is gone, if a launch option uses the hooks.

    Raises ProviderError, OutcomeUnknownError.
    """
    modes = (one.container_mode for one in settings.options.values())
    if not any(isinstance(one, ContainerHooks) for one in modes):
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
        await asyncio.gather(*(_delete(api, settings, pod) for pod in batch))


async def _delete(api: ApiServer, settings: KubernetesSettings, pod: Mapping[str, Any]) -> None:
    """Delete a job's pod once a GET has shown that its runner's pod is gone."""
    metadata = pod["metadata"]
    path = paths.pod(settings.namespace, metadata["name"])
    if await _exists(api, paths.pod(settings.namespace, metadata["labels"][RUNNER_POD])):
        return  # only its labels are missing
    try:
        await api.request("DELETE", path, body={"preconditions": {"uid": metadata["uid"]}})
    except ProviderError as error:
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
