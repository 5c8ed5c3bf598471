"""Checks whether a Kubernetes provider of fleet.yaml can serve: overlays, kubeconfig files, the CA file.

Makes no network requests. Only kubeconfig files that fleet.yaml names must be there: those in the usual places
of kubectl belong to the host, which may not be that of the controller.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from autoscaler.config.checks.certificates import authority
from autoscaler.config.configuration import Configuration, run_checks
from autoscaler.config.problems import KeyPath, Problem, show
from autoscaler.config.provider_kind import sections_of
from autoscaler.controller.ports.provider import LaunchOrder
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    LaunchRequestId,
    ProviderName,
    SkuName,
)
from autoscaler.providers.kubernetes.api.kubeconfigs import (
    Context,
    KubeconfigError,
    own_server,
    read_context,
    usual_files,
)
from autoscaler.providers.kubernetes.checks.contradictions import PodOf, pods_of
from autoscaler.providers.kubernetes.checks.kubeconfig_files import unusable_credentials
from autoscaler.providers.kubernetes.checks.overlay_fields import wrong_fields
from autoscaler.providers.kubernetes.configuration import KEY, KubernetesSection, Pod
from autoscaler.providers.kubernetes.manifest.command import pod_command
from autoscaler.providers.kubernetes.manifest.overlay import OverlayError, overlay_path
from autoscaler.providers.kubernetes.manifest.pod import pod_template
from autoscaler.providers.kubernetes.manifest.shared_memory import FOLDER, too_large
from autoscaler.providers.kubernetes.settings import KubernetesSettings, PodOption
from autoscaler.providers.kubernetes.translation import accelerator_of, container_mode_of

_ANY_SHA256 = "0" * 64
_NO_COMMAND = ("agent",)


def preflight(configuration: Configuration, *, files: bool) -> Iterator[Problem]:
    """Return every problem. `files`: also check the files that fleet.yaml names."""
    for one in pods_of(configuration):
        yield from run_checks((_overlay,), configuration, one)
    if files:
        servers: dict[tuple[str, str], str] = {}
        for name, section in sections_of(configuration, KubernetesSection):
            yield from run_checks((_kubeconfig,), configuration, name, section, servers)
        yield from run_checks((_authority,), configuration)


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


def _overlay(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    pod = one.option.pod
    if pod is None:
        return
    accelerator = one.sku.accelerator if "accelerator" in one.sku.model_fields_set else None
    own = PodOption(
        sku=SkuName(one.name),
        shape=one.name,
        image=getattr(pod, "image", "image"),
        resources=getattr(pod, "resources", {}),
        shared_memory=getattr(pod, "shared_memory", None),
        accelerator=accelerator_of(accelerator, pod),
        node_selector=getattr(pod, "node_selector", {}),
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
    path = (*one.path, "pod", "overlay")
    reported: set[KeyPath] = set()
    try:
        template = pod_template(settings, own, sample_order(SkuName(one.name), one.index))
    except OverlayError as error:
        for problem in error.problems:
            place = overlay_path(pod.overlay, problem.partition(": ")[0])
            reported.add(place)
            yield configuration.error((*path, *place), problem, "correct the overlay")
    else:
        yield from _shared_memory(configuration, path[:-1], pod, template)
    for wrong in wrong_fields(pod.overlay) if pod.overlay else ():
        if wrong.misspelled or wrong.path not in reported:
            yield configuration.error((*path, *wrong.path), wrong.what, wrong.fix)


def _shared_memory(
    configuration: Configuration, path: KeyPath, pod: Pod, template: Mapping[str, Any]
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
        yield configuration.error(
            (*path, *key), what, f"write at most {one.memory}, or more memory"
        )


def _kubeconfig(
    configuration: Configuration,
    name: str,
    section: KubernetesSection,
    servers: dict[tuple[str, str], str],
) -> Iterator[Problem]:
    """Check that a context exists, and that no two providers have the same namespace of one API server."""
    path = ("providers", name, KEY)
    try:
        context = _context(configuration, section)
        server = context.server() if context is not None else _own_server(section)
    except KubeconfigError as error:
        key = "context" if section.context is not None else "kubeconfig"
        yield configuration.error((*path, key), error.what, error.fix)
        return
    file = configuration.readable_file(section.kubeconfig)
    if context is not None and file is not None:
        for one in unusable_credentials(context, file.parent):
            yield configuration.error((*path, "kubeconfig"), one.what, one.fix)
    if server is None:
        return
    first = servers.setdefault((server, section.namespace), name)
    if first != name and not _written_twice(configuration, first, section):
        what = f"{show(section.namespace)} of {server} is already the namespace of provider {show(first)}"
        fix = "write another namespace, or use one provider"
        yield configuration.error((*path, "namespace"), what, fix)


def _context(configuration: Configuration, section: KubernetesSection) -> Context | None:
    """Return a provider's context, or None if it is not known here. Raises KubeconfigError."""
    wanted, kubeconfig = section.context, section.kubeconfig
    if kubeconfig is not None:
        file = configuration.readable_file(kubeconfig)
        return read_context([file], wanted, show(kubeconfig)) if file is not None else None
    try:
        context = read_context(usual_files(os.environ), wanted) if wanted is not None else None
        return context if context is not None and context.server() else None
    except KubeconfigError:
        return None  # the controller's host may have another one


def _own_server(section: KubernetesSection) -> str | None:
    """Return the URL of the API server of the pod that this runs in, if the provider has no kubeconfig."""
    named = section.context is not None or section.kubeconfig is not None
    return None if named else own_server(os.environ)


def _written_twice(configuration: Configuration, first: str, section: KubernetesSection) -> bool:
    """Return whether another provider has the same words, which `file_checks` reports."""
    other = dict(sections_of(configuration, KubernetesSection))[first]
    return (other.kubeconfig, other.context, other.namespace) == (
        section.kubeconfig,
        section.context,
        section.namespace,
    )


def _authority(configuration: Configuration) -> Iterator[Problem]:
    """Check that the CA file fits into the command of a container."""
    ca_pem, server = authority(configuration), configuration.settings.server
    names = [name for name, _ in sections_of(configuration, KubernetesSection)]
    if ca_pem is None or not names:
        return
    try:
        pod_command(server.public_url, names[0], _ANY_SHA256, ca_pem)
    except ValueError as error:
        file = server.tls.ca_file if server.tls is not None else None
        what = f"{show(file)} cannot be part of a pod's command: {error}"
        fix = "keep only the CA certificate that signed the server's certificate in it"
        yield configuration.error(("server", "tls", "ca_file"), what, fix)
