"""Lists a fleet's pods completely, in pages, and reads one of them."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.identifiers import ProviderMachineId
from autoscaler.providers.kubernetes.api import paths
from autoscaler.providers.kubernetes.api.server import ApiServer
from autoscaler.providers.kubernetes.identity.ownership import identity_of, selector
from autoscaler.providers.kubernetes.settings import KubernetesSettings

PAGE = 100
"""Objects in a page. The event loop parses a page, of some 10 KB a pod, in one step."""

_TRIES = 3
_EXPIRED = frozenset({"Expired", "Gone"})


class PodList(NamedTuple):
    """A complete list of a fleet's pods, and the version to watch from."""

    pods: list[dict[str, Any]]
    version: str


async def list_pods(api: ApiServer, settings: KubernetesSettings, page: int = PAGE) -> PodList:
    """Return all pods of the fleet, of any installation, as of one moment.

    All pages are of the version of the first one. The API server forgets a version after about five minutes
    and answers 410 (Kubernetes documentation, "API Concepts": large result sets): the list begins anew.
    Raises ProviderError, OutcomeUnknownError.
    """
    for left in reversed(range(_TRIES)):
        try:
            return await _all_pages(api, settings, page)
        except ProviderError as error:
            if error.code not in _EXPIRED or not left:
                raise
    raise AssertionError("unreachable")


async def _all_pages(api: ApiServer, settings: KubernetesSettings, page: int) -> PodList:
    pods: list[dict[str, Any]] = []
    version = ""
    async for one in pages(api, paths.pods(settings.namespace), selector(settings.fleet), page):
        for pod in one.pods:
            # A quarter of the object: which client set which field.
            pod["metadata"].pop("managedFields", None)
        pods += one.pods
        version = one.version
    return PodList(pods, version)


async def pages(
    api: ApiServer, path: str, labels: str = "", page: int = PAGE
) -> AsyncIterator[PodList]:
    """Yield the pages of a list; at least one. Raises ProviderError, OutcomeUnknownError."""
    query = {"limit": str(page)} | ({"labelSelector": labels} if labels else {})
    following = ""
    while True:
        answer = await api.request(
            "GET", path, query | ({"continue": following} if following else {})
        )
        metadata = answer.get("metadata") or {}
        yield PodList(answer.get("items") or [], metadata.get("resourceVersion", ""))
        following = metadata.get("continue") or ""
        if not following:
            return


async def read_pod(
    api: ApiServer, namespace: str, machine: ProviderMachineId
) -> Mapping[str, Any] | None:
    """Return a pod, or None if it does not exist. Raises ProviderError, OutcomeUnknownError."""
    known = identity_of(machine)
    if known is None:
        return None
    try:
        pod: Mapping[str, Any] = await api.request("GET", paths.pod(namespace, known.name))
    except ProviderError as error:
        if error.code == "NotFound":
            return None
        raise
    return pod if pod["metadata"]["uid"] == known.uid else None
