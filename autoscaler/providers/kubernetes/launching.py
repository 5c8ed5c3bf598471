"""Writes launch requests as text, which is stored, and creates their pods.

A pod's name is that of its launch request and slot. If a request is repeated, the API server answers 409 for
the pods that exist, and they are adopted. So a repeat creates only what is missing.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from autoscaler.controller.ports.provider import (
    LaunchAnswer,
    LaunchOrder,
    OutcomeUnknownError,
    ProviderError,
)
from autoscaler.model.events import LaunchedMachine, LaunchFailure
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.kubernetes.api import paths
from autoscaler.providers.kubernetes.api.errors import FORBIDDEN, NOT_READY
from autoscaler.providers.kubernetes.api.server import ApiServer
from autoscaler.providers.kubernetes.identity import ownership
from autoscaler.providers.kubernetes.identity.ownership import metadata_of, pod_names
from autoscaler.providers.kubernetes.listing.machines import launched_machine
from autoscaler.providers.kubernetes.listing.pods import pages
from autoscaler.providers.kubernetes.manifest.avoided_nodes import avoiding
from autoscaler.providers.kubernetes.manifest.overlay import OverlayError
from autoscaler.providers.kubernetes.manifest.pod import named_pod, pod_template
from autoscaler.providers.kubernetes.settings import KubernetesSettings, PodOption

AT_ONCE = 50
"""Pods that are created or deleted at once, for each launch request."""

_STRICT = {"fieldValidation": "Strict"}
"""The API server refuses a pod with an unknown field. Its default is a warning in the answer."""


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


async def launch_pods(api: ApiServer, text: str) -> LaunchAnswer:
    """Create the pods of a stored request, or adopt those that exist.

    After a refusal, no more pods of the request are created: they would be refused for the same reason.
    A refused pod may exist, because rate limits and quotas are checked before the name (`create` in the API
    server's registry/generic/registry/store.go). So the pods that exist are listed and adopted.
    Raises ProviderError if nothing was launched, OutcomeUnknownError if that is not known of a pod.
    """
    request = json.loads(text)
    pods = [named_pod(request["pod"], name, slot) for slot, name in enumerate(request["names"])]
    launched: list[LaunchedMachine] = []
    refused: list[ProviderError] = []
    unknown: list[OutcomeUnknownError] = []
    for start in range(0, len(pods), AT_ONCE):
        batch = pods[start : start + AT_ONCE]
        found = await asyncio.gather(*(_create(api, pod) for pod in batch))
        launched += [one for one in found if isinstance(one, LaunchedMachine)]
        refused += [one for one in found if isinstance(one, ProviderError)]
        unknown += [one for one in found if isinstance(one, OutcomeUnknownError)]
        if refused or unknown:
            break
    refused = await _of_a_ready_server(api, refused)
    errors: tuple[ProviderError | OutcomeUnknownError, ...] = (*unknown, *refused)
    retry_after = max((one.retry_after or 0.0 for one in errors), default=0.0) or None
    if unknown:
        # A repeat adopts what was created, and creates the others.
        raise OutcomeUnknownError(str(unknown[0]), retry_after) from unknown[0]
    if refused and not launched:
        refused[0].retry_after = retry_after
        raise refused[0]
    if refused:
        launched += await _created_before(api, pods, launched)
    return LaunchAnswer(tuple(launched), _failures(refused), retry_after)


async def _of_a_ready_server(
    api: ApiServer, refused: Sequence[ProviderError]
) -> list[ProviderError]:
    """Return the refusals. Those of an API server that is not ready say so, and are no errors of an operator.

    It serves requests from its first moment, and denies all that it has not read a role for yet. The answer
    has no reason, or names a role as not found, as it does for a real denial (`Authorize` in
    plugin/pkg/auth/authorizer/rbac/rbac.go). Only `/readyz` waits until the roles were read (check
    `informer-sync`), and is denied itself before.
    """
    if all(one.code != FORBIDDEN for one in refused) or await _is_ready(api):
        return list(refused)
    failure, text = (
        FailureClass.THROTTLED,
        "the API server is not ready, and denies what it may allow",
    )
    return [
        ProviderError(failure, NOT_READY, f"{text}: {one.message}", one.retry_after)
        if one.code == FORBIDDEN
        else one
        for one in refused
    ]


async def _is_ready(api: ApiServer) -> bool:
    """Return False if the API server says that it is not ready, or denies this question, too."""
    try:
        await api.text(paths.READINESS)
    except ProviderError as error:
        return error.code != FORBIDDEN
    except OutcomeUnknownError:
        return False
    return True


async def _created_before(
    api: ApiServer, pods: Sequence[Mapping[str, Any]], launched: Sequence[LaunchedMachine]
) -> list[LaunchedMachine]:
    """Return the other pods of the request, which an earlier attempt created. Raises OutcomeUnknownError."""
    metadata = pods[0]["metadata"]
    selector = f"{ownership.LAUNCH_REQUEST}={metadata['labels'][ownership.LAUNCH_REQUEST]}"
    names = {pod["metadata"]["name"] for pod in pods}
    known = {one.provider_id for one in launched}
    try:
        listed = [
            launched_machine(pod)
            async for page in pages(api, paths.pods(metadata["namespace"]), selector)
            for pod in page.pods
            if pod["metadata"]["name"] in names
        ]
    except ProviderError as error:
        text = f"some pods were refused, and a list of those that exist failed: {error}"
        raise OutcomeUnknownError(text, error.retry_after) from error
    return [one for one in listed if one.provider_id not in known]


def _failures(refused: Sequence[ProviderError]) -> tuple[LaunchFailure, ...]:
    first = {one.code: one for one in reversed(refused)}
    return tuple(
        LaunchFailure(one.failure, one.code, one.message, None, one.scope) for one in first.values()
    )


async def _create(
    api: ApiServer, pod: Mapping[str, Any]
) -> LaunchedMachine | ProviderError | OutcomeUnknownError:
    """Return the created or adopted machine, or the error."""
    try:
        return await _create_or_adopt(api, pod)
    except (ProviderError, OutcomeUnknownError) as error:
        return error


async def _create_or_adopt(api: ApiServer, pod: Mapping[str, Any]) -> LaunchedMachine:
    """Return the created pod, or the one that an earlier request created, as a machine.

    Raises ProviderError, OutcomeUnknownError.
    """
    metadata = pod["metadata"]
    namespace = metadata["namespace"]
    try:
        created = await api.request("POST", paths.pods(namespace), _STRICT, pod)
    except ProviderError as error:
        if error.code != "AlreadyExists":
            raise
    else:
        # The answer has only the metadata.
        machine = launched_machine({**pod, "metadata": created["metadata"]})
        return replace(machine, created=True)
    found = await _existing(api, namespace, metadata["name"])
    ours = metadata_of(found, "labels")
    if any(ours.get(key) != value for key, value in metadata["labels"].items()):
        text = f"pod {metadata['name']} exists and is not of launch request "
        text += metadata["labels"][ownership.LAUNCH_REQUEST]
        raise ProviderError(FailureClass.CONFIGURATION, "AlreadyExists", text)
    return launched_machine(found)


async def _existing(api: ApiServer, namespace: str, name: str) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = await api.request("GET", paths.pod(namespace, name))
    except ProviderError as error:
        if error.code != "NotFound":
            raise
        # Deleted a moment ago: only a repeat shows whether the name is free.
        raise OutcomeUnknownError(f"pod {name} existed and was deleted meanwhile") from error
    return found


async def dry_run(api: ApiServer, pod: Mapping[str, Any]) -> None:
    """Have the API server check a pod without creating it: fields, quotas, and Pod Security.

    Raises ProviderError with what it refuses, OutcomeUnknownError.
    """
    namespace = pod["metadata"]["namespace"]
    await api.request("POST", paths.pods(namespace), {**_STRICT, "dryRun": "All"}, pod)
