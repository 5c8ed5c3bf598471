"""Checks whether a Kubernetes provider of fleet.yaml can serve: overlays, kubeconfig files, the CA file.

Reads the file as written, so that one error hides no other, and makes no network requests. Only kubeconfig
files that fleet.yaml names must be there: those in the usual places of kubectl belong to the host, which may
not be that of the controller.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autoscaler.config import shapes
from autoscaler.config.certificates import authority
from autoscaler.config.checks import text
from autoscaler.config.document import Document, Node
from autoscaler.config.files import named_file
from autoscaler.config.problems import KeyPath, Problem, show
from autoscaler.config.provider_kind import options_of, sections_of
from autoscaler.config.sku_settings import Accelerator
from autoscaler.config.values import read, valid
from autoscaler.controller.ports.provider import LaunchOrder
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.identifiers import InstallationId, LaunchRequestId, ProviderName, SkuName
from autoscaler.model.installations import Installations
from autoscaler.providers.kubernetes.api.kubeconfigs import (
    Context,
    KubeconfigError,
    own_server,
    read_context,
    usual_files,
)
from autoscaler.providers.kubernetes.checks.contradictions import KEY
from autoscaler.providers.kubernetes.checks.kubeconfig_files import unusable_credentials
from autoscaler.providers.kubernetes.checks.overlay_fields import wrong_fields
from autoscaler.providers.kubernetes.configuration import Pod
from autoscaler.providers.kubernetes.manifest.command import pod_command
from autoscaler.providers.kubernetes.manifest.overlay import OverlayError, overlay_path
from autoscaler.providers.kubernetes.manifest.pod import pod_template
from autoscaler.providers.kubernetes.manifest.shared_memory import FOLDER, too_large
from autoscaler.providers.kubernetes.settings import KubernetesSettings, PodOption
from autoscaler.providers.kubernetes.translation import accelerator_of, container_mode_of

_ANY_SHA256 = "0" * 64
_OF_OVERLAYS = ("accelerator_resource", "container_mode", "overlay")
"""The keys of a pod without which its overlay cannot be checked."""
_NO_COMMAND = ("agent",)


def preflight(document: Document, folder: Path, *, files: bool) -> Iterator[Problem]:
    """Return every problem. `files`: also check the files that fleet.yaml names."""
    yield from _overlays(document)
    if files:
        yield from _kubeconfigs(document, folder)
        yield from _authority(document, folder)


def sample_order(sku: SkuName, option: int) -> LaunchOrder:
    """Return an order for one pod, for checks that create nothing."""
    return LaunchOrder(
        launch_request=LaunchRequestId("check"),
        sku=sku,
        option=option,
        capacity_type=CapacityType.ON_DEMAND,
        offerings=(),
        count=1,
        token="check",  # noqa: S106 - it names the request
    )


def _overlays(document: Document) -> Iterator[Problem]:
    for name, sku, index, option in options_of(document, KEY):
        pod = _readable_pod(option.child("pod"))
        if pod is None:
            continue
        wanted = valid(sku, Accelerator, "accelerator")
        own = PodOption(
            sku=SkuName(name),
            shape=name,
            image=pod.image,
            resources=pod.resources,
            shared_memory=pod.shared_memory,
            accelerator=accelerator_of(wanted, pod),
            node_selector=pod.node_selector,
            container_mode=container_mode_of(pod.container_mode),
            overlay=pod.overlay,
        )
        settings = KubernetesSettings(
            name=ProviderName("check"),
            fleet="check",
            installations=Installations(InstallationId("check")),
            namespace="check",
            options={},
            command=_NO_COMMAND,
        )
        path = ("skus", name, "on", index, "pod", "overlay")
        reported: set[KeyPath] = set()
        try:
            template = pod_template(settings, own, sample_order(SkuName(name), index))
        except OverlayError as error:
            for problem in error.problems:
                place = overlay_path(pod.overlay, problem.partition(": ")[0])
                reported.add(place)
                yield document.problem((*path, *place), problem, "correct the overlay")
        else:
            yield from _shared_memory(document, path[:-1], pod, template)
        for wrong in wrong_fields(pod.overlay) if pod.overlay else ():
            if wrong.misspelled or wrong.path not in reported:
                yield document.problem((*path, *wrong.path), wrong.what, wrong.fix)


def _shared_memory(
    document: Document, path: KeyPath, pod: Pod, template: Mapping[str, Any]
) -> Iterator[Problem]:
    """Check that /dev/shm is no larger than the memory of the containers that use it."""
    for one in too_large(template):
        what = (
            f"{one.size} for {FOLDER} is more than the memory limit of container {one.container}, "
        )
        what += f"{one.memory}: its files count against this limit"
        place = overlay_path(pod.overlay, f"spec.volumes[{one.volume}].emptyDir.sizeLimit")
        # Without a size in the overlay, it is the key's: the default is never too large.
        key = ("overlay", *place) if place[-1:] == ("sizeLimit",) else ("shared_memory",)
        yield document.problem((*path, *key), what, f"write at most {one.memory}, or more memory")


def _readable_pod(node: Node | None) -> Pod | None:
    """Return a pod without its wrong keys, which `check` reports itself, or None if an overlay needs one."""
    keys = node.plain() if node is not None else None
    if not isinstance(keys, dict):
        return None
    kept: dict[str, Any] = {"image": "image"}
    for key, value in keys.items():
        with contextlib.suppress(ValueError):
            read(Pod, {**kept, key: value})
            kept[key] = value
    if any(key in keys and key not in kept for key in _OF_OVERLAYS):
        return None
    pod: Pod = read(Pod, kept)
    return pod


def _kubeconfigs(document: Document, folder: Path) -> Iterator[Problem]:
    """Check that each context exists, and that no two providers have the same namespace of one API server."""
    servers: dict[tuple[str, str], str] = {}
    for name, section in sections_of(document, KEY):
        path = ("providers", name, KEY)
        try:
            context = _context(document, folder, name, section)
            server = context.server() if context is not None else _own_server(section)
        except KubeconfigError as error:
            key = "context" if section.child("context") is not None else "kubeconfig"
            yield document.problem((*path, key), error.what, error.fix)
            continue
        file = named_file(document, folder, *path, "kubeconfig")
        if context is not None and file is not None:
            for one in unusable_credentials(context, file.parent):
                yield document.problem((*path, "kubeconfig"), one.what, one.fix)
        if server is None:
            continue
        place = (server, text(section, "namespace") or "")
        if place in servers and not _written_twice(document, servers[place], name):
            what = f"{show(place[1])} of {server} is already the namespace of provider "
            fix = "write another namespace, or use one provider"
            yield document.problem((*path, "namespace"), what + show(servers[place]), fix)
        servers.setdefault(place, name)


def _context(document: Document, folder: Path, name: str, section: Node) -> Context | None:
    """Return a provider's context, or None if it is not known here. Raises KubeconfigError."""
    wanted, kubeconfig = text(section, "context"), text(section, "kubeconfig")
    if section.child("kubeconfig") is not None:
        file = named_file(document, folder, "providers", name, KEY, "kubeconfig")
        return read_context([file], wanted, show(kubeconfig)) if file is not None else None
    try:
        context = read_context(usual_files(os.environ), wanted) if wanted is not None else None
        return context if context is not None and context.server() else None
    except KubeconfigError:
        return None  # the controller's host may have another one


def _own_server(section: Node) -> str | None:
    """Return the URL of the API server of the pod that this runs in, if the provider has no kubeconfig."""
    named = section.child("context") is not None or section.child("kubeconfig") is not None
    return None if named else own_server(os.environ)


def _written_twice(document: Document, first: str, second: str) -> bool:
    """Return whether both have the same words, which `contradictions` reports."""
    providers = document.root.child("providers")
    found = [providers.get(name, KEY) if providers else None for name in (first, second)]
    keys = ("kubeconfig", "context", "namespace")
    return len({tuple(text(one, key) for key in keys) for one in found}) == 1


def _authority(document: Document, folder: Path) -> Iterator[Problem]:
    """Check that the CA file fits into the command of a container."""
    ca_pem = authority(document, folder)
    url = valid(document.root, shapes.PublicUrl, "server", "public_url")
    names = [name for name, _ in sections_of(document, KEY)]
    if ca_pem is None or url is None or not names:
        return
    try:
        pod_command(url, names[0], _ANY_SHA256, ca_pem)
    except ValueError as error:
        path = ("server", "tls", "ca_file")
        file = valid(document.root, shapes.FilePath, *path)
        what = f"{show(file)} cannot be part of a pod's command: {error}"
        fix = "keep only the CA certificate that signed the server's certificate in it"
        yield document.problem(path, what, fix)
