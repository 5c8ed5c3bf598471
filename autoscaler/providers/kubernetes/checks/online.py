"""Asks clusters whether they would accept the pods of fleet.yaml, for `autoscaler check --online`.

Creates nothing: it asks for the rights of the credentials (SelfSubjectAccessReview), sends the pod of each
launch option as a dry run, and reads the free capacity where no provisioner adds nodes.
"""

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from autoscaler.config.configuration import Configuration
from autoscaler.config.problems import KeyPath, Problem, show
from autoscaler.config.provider_kind import OnlineCheck
from autoscaler.config.reading.document import Document
from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.controller.system import SystemClock
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    ProviderName,
    SkuName,
)
from autoscaler.providers.kubernetes.api import paths
from autoscaler.providers.kubernetes.api.client import KubernetesApi
from autoscaler.providers.kubernetes.api.errors import (
    ADMISSION_DENIED,
    EXCEEDED_QUOTA,
    HINTS,
    POD_SECURITY,
    WEBHOOK_FAILED,
)
from autoscaler.providers.kubernetes.api.server import ApiServer
from autoscaler.providers.kubernetes.capacity.accelerators import fitting_nodes, read_capacity
from autoscaler.providers.kubernetes.checks.overlays import sample_order
from autoscaler.providers.kubernetes.configuration import KEY
from autoscaler.providers.kubernetes.launching import dry_run, launch_text
from autoscaler.providers.kubernetes.manifest.avoided_nodes import LEAST_KARPENTER
from autoscaler.providers.kubernetes.manifest.pod import named_pod
from autoscaler.providers.kubernetes.settings import KubernetesSettings, kubernetes_settings

_ANY_SHA256 = "0" * 64


class Right(NamedTuple):
    """A verb for a resource, such as `pods/log`, in the provider's namespace or in the whole cluster."""

    verb: str
    group: str
    resource: str
    cluster_wide: bool = False

    def __str__(self) -> str:
        """Return such as `list nodes`."""
        return f"{self.verb} {self.resource}" + (" in all namespaces" * self.cluster_wide)


_PODS = tuple(
    Right(verb, "", "pods") for verb in ("create", "delete", "get", "list", "patch", "watch")
)
_RIGHTS = (
    *_PODS,
    Right("get", "", "pods/log"),
    Right("create", "authentication.k8s.io", "tokenreviews", cluster_wide=True),
)
_CAPACITY = tuple(Right("list", "", resource, cluster_wide=True) for resource in ("nodes", "pods"))


def rights_of(settings: KubernetesSettings) -> tuple[Right, ...]:
    """Return every right that the provider uses: those of deploy/kubernetes/rbac."""
    return _RIGHTS if settings.provisioner else (*_RIGHTS, *_CAPACITY)


async def check_online(configuration: Configuration) -> OnlineCheck:
    """Return what the cluster of each provider answered."""
    settings, folder = configuration.settings, configuration.path.parent
    problems: list[Problem] = []
    lines: list[str] = []
    places: dict[tuple[str, str], str] = {}
    for name, provider in settings.providers.items():
        if provider.kind != KEY:
            continue
        installations = Installations(InstallationId("check"))
        found = kubernetes_settings(
            ProviderName(name), settings, folder, installations, _ANY_SHA256
        )
        api = KubernetesApi(found, Telemetry(), SystemClock())
        cluster = _Cluster(configuration.document, found, api)
        try:
            one = await cluster.check()
            keys = await cluster.signing_keys()
        except (ProviderError, OutcomeUnknownError) as error:
            problems.append(cluster.failed(error))
            continue
        finally:
            await api.close()
        if keys is not None:
            first = places.setdefault((keys, found.namespace), name)
            problems += [cluster.same_namespace(first)] if first != name else []
        problems += one.problems
        lines += one.lines
    return OnlineCheck(tuple(problems), tuple(lines))


class _Cluster:
    """The checks of one provider."""

    def __init__(self, document: Document, settings: KubernetesSettings, api: ApiServer) -> None:
        self._document, self._settings, self._api = document, settings, api
        self._path: KeyPath = ("providers", settings.name, KEY)

    async def check(self) -> OnlineCheck:
        """Return the problems, by their order in the file, and the free capacity.

        Raises ProviderError or OutcomeUnknownError if the cluster cannot be asked.
        """
        # One after the other: parallel requests would each run a credential plugin that fails.
        missing = [one for one in rights_of(self._settings) if not await self._is_allowed(one)]
        if missing:
            return OnlineCheck(problems=(self._without_rights(missing),))
        problems = [one async for one in self._refused_pods()]
        unjudged = [one async for one in self._unjudged_overlays()]
        lines, empty = await self._capacity()
        count = len(self._settings.options)
        accepted = f"{count} launch option" + "s" * (count != 1)
        first = f"{self._settings.name}: the API server accepts the pods of {accepted}"
        return OnlineCheck((*problems, *unjudged, *empty), (*([] if problems else [first]), *lines))

    async def signing_keys(self) -> str | None:
        """Return the public keys with which the cluster signs tokens, or None if they cannot be read.

        No two clusters have the same ones, whatever the names of their API servers are.
        """
        try:
            answer = await self._api.request("GET", paths.SIGNING_KEYS)
        except (ProviderError, OutcomeUnknownError):
            # Service accounts may read them. An administrator can take this right away.
            return None
        keys = answer.get("keys") if isinstance(answer, dict) else None
        return json.dumps(keys, sort_keys=True) if keys else None

    def same_namespace(self, first: str) -> Problem:
        """Return that another provider has the same namespace of the same cluster."""
        what = (
            f"{show(self._settings.namespace)} is already the namespace of provider {show(first)}: "
        )
        what += "both API servers sign tokens with the same keys"
        fix = "write another namespace, or use one provider"
        return self._document.problem((*self._path, "namespace"), what, fix)

    async def _is_allowed(self, right: Right) -> bool:
        resource, _, subresource = right.resource.partition("/")
        attributes = {
            "verb": right.verb,
            "group": right.group,
            "resource": resource,
            "subresource": subresource,
            "namespace": "" if right.cluster_wide else self._settings.namespace,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        answer = await self._api.request("POST", paths.ACCESS_REVIEWS, body=review)
        return bool((answer.get("status") or {}).get("allowed"))

    def _without_rights(self, missing: list[Right]) -> Problem:
        what = f"the credentials lack rights in {show(self._settings.namespace)}: "
        what += ", ".join(map(str, missing))
        files = "deploy/kubernetes/rbac"
        if any(one in _CAPACITY for one in missing):
            files += " with capacity.yaml"
        fix = f"apply {files}, after the namespace exists"
        return self._document.problem((*self._path, "namespace"), what, fix)

    async def _refused_pods(self) -> AsyncIterator[Problem]:
        """Yield a problem for each launch option whose pod the API server refuses."""
        for sku, index in self._settings.options:
            try:
                await dry_run(self._api, self._pod(sku, index))
            except ProviderError as error:
                if _is_no_namespace(error):
                    what = f"there is no namespace {show(self._settings.namespace)}"
                    fix = "create the namespace, or correct the name"
                    yield self._document.problem((*self._path, "namespace"), what, fix)
                    return
                yield self._refusal(sku, index, error)

    def _pod(self, sku: SkuName, index: int) -> dict[str, Any]:
        request = json.loads(launch_text(self._settings, sample_order(sku, index)))
        return named_pod(request["pod"], request["names"][0], 0)

    async def _unjudged_overlays(self) -> AsyncIterator[Problem]:
        """Yield a warning if the namespace admits privileged pods, so that nothing judges what overlays add.

        The privileged Docker daemon needs such a namespace. Then the checks of container modes warn.
        """
        options = self._settings.options
        with_overlay = [key for key, one in options.items() if one.overlay.get("spec")]
        if not with_overlay or any(one.dind for one in options.values()):
            return
        try:
            pod = self._pod(*with_overlay[0])
            pod["spec"]["containers"][0]["securityContext"] = {"privileged": True}
            await dry_run(self._api, pod)
        except ProviderError:
            return
        what = f"namespace {show(self._settings.namespace)} admits privileged pods: jobs get whatever the "
        what += "overlays of their pods add"
        fix = "label the namespace pod-security.kubernetes.io/enforce=restricted"
        yield self._document.problem((*self._path, "namespace"), what, fix, warning=True)

    def _refusal(self, sku: SkuName, index: int, error: ProviderError) -> Problem:
        option = ("skus", sku, "on", index, "pod")
        what = f"the API server refuses the pod: {error.message}"
        keys: tuple[str, ...] = ()
        fix = HINTS.get(error.code, "correct the pod")
        message = error.message.lower()
        if error.code == EXCEEDED_QUOTA:
            what = f"the namespace has no quota left for it now: {error.message}"
            fix = "raise the ResourceQuota, or let the jobs wait"
            return self._document.problem(option, what, fix, warning=True)
        found = self._settings.options[sku, index]
        if error.code in (WEBHOOK_FAILED, ADMISSION_DENIED):
            return self._document.problem(option, what, fix)
        if error.code == POD_SECURITY:
            # Without an overlay, only the Docker daemon does not pass `restricted`.
            keys = ("overlay",) if found.overlay and not found.dind else ()
            return self._document.problem((*option, *keys), what, fix)
        if "serviceaccount" in message:
            fix = "create the service account, or correct its name"
            key = "service_account"
            if found.hooks:
                path: KeyPath = (*option, "container_mode", "kubernetes", key)
            else:
                path = (*self._path, key)
            return self._document.problem(path, what, fix)
        if "runtimeclass" in message:
            keys, fix = ("runtime_class",), "write one of kubectl get runtimeclasses, or remove it"
        elif found.overlay:
            keys, fix = ("overlay",), "correct the overlay: kubectl explain pod has the fields"
        elif error.code == "Forbidden":
            # No right is missing: they were checked before.
            fix = "correct the pod, or the LimitRange or ResourceQuota that refuses it"
        elif error.code in ("Invalid", "BadRequest"):
            fix = "correct its keys"
        return self._document.problem((*option, *keys), what, fix)

    async def _capacity(self) -> tuple[list[str], list[Problem]]:
        """Return the free capacity, and a warning for each launch option that fits no node.

        With a provisioner: the version of Karpenter that it must have.
        """
        if self._settings.provisioner:
            note = f"provisioner: true needs Karpenter {LEAST_KARPENTER} or later, if Karpenter adds nodes"
            return [
                f"{self._settings.name}: {note} (earlier ones ignore pods that avoid a faulty node)"
            ], []
        nodes, free = await read_capacity(self._api, self._settings)
        return [
            f"{key}: {units} free, or used by this fleet" for key, units in sorted(free.items())
        ], [*self._without_nodes(nodes)]

    def _without_nodes(self, nodes: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
        for (sku, index), option in self._settings.options.items():
            if not fitting_nodes(option, nodes):
                what = (
                    "no ready node has these labels, this architecture, and only tolerated taints"
                )
                fix = "correct node_selector, tolerations or arch, or add nodes"
                if (option.overlay.get("spec") or {}).get("affinity"):
                    what += ", and matches the overlay's nodeAffinity"
                    fix = "correct node_selector, tolerations, arch or the overlay, or add nodes"
                path = ("skus", sku, "on", index, "pod", "node_selector")
                yield self._document.problem(path, what, fix, warning=True)

    def failed(self, error: ProviderError | OutcomeUnknownError) -> Problem:
        """Return the problem of a cluster that cannot be asked."""
        code = error.code if isinstance(error, ProviderError) else ""
        message = error.message if isinstance(error, ProviderError) else str(error)
        fix = HINTS.get(code, "check the server of the context, and the network")
        what = f"the cluster cannot be asked: {message}"
        if self._settings.context is not None:
            return self._document.problem((*self._path, "context"), what, fix)
        key = ("kubeconfig",) if self._settings.kubeconfig is not None else ()
        return self._document.problem((*self._path, *key), what, fix)


def _is_no_namespace(error: ProviderError) -> bool:
    return error.code == "NotFound" and error.message.startswith("namespaces ")
