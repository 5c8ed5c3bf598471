"""Checks the kubeconfigs that fleet.yaml names: contexts, servers, credentials; and the CA file of pods.

Makes no network requests. Only kubeconfig files that fleet.yaml names must be there: those in the usual places
of kubectl belong to the host, which may not be that of the controller.
"""

import base64
import binascii
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from autoscaler.config.checks.certificates import authority
from autoscaler.config.configuration import Configuration, run_checks
from autoscaler.config.files.pem import PemError, certificates, fits, private_key, read_pem
from autoscaler.config.problems import Problem, show
from autoscaler.config.provider_kind import sections_of
from autoscaler.providers.kubernetes.api.kubeconfigs import (
    Context,
    Entry,
    KubeconfigError,
    own_server,
    read_context,
    usual_files,
)
from autoscaler.providers.kubernetes.command import pod_command
from autoscaler.providers.kubernetes.configuration import KEY, KubernetesSection

_ANY_SHA256 = "0" * 64
_FIX = "correct the kubeconfig"
_HOST = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*|[0-9A-Fa-f]*:[0-9A-Fa-f:.]+")
"""A DNS name or an IP address."""


def file_problems(configuration: Configuration) -> Iterator[Problem]:
    """Yield what is wrong with the files of Kubernetes providers."""
    servers: dict[tuple[str, str], str] = {}
    for name, section in sections_of(configuration, KubernetesSection):
        yield from run_checks((_kubeconfig,), configuration, name, section, servers)
    yield from run_checks((_authority,), configuration)


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
        for one in _unusable_credentials(context, file.parent):
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
    """Return whether another provider has the same words, which `contradictions` reports."""
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


def _unusable_credentials(context: Context, folder: Path) -> Iterator[KubeconfigError]:
    """Yield what is wrong with the user of a context, and with the certificates of its cluster and user.

    As with kubectl, content in the kubeconfig (`...-data`) counts before a file. The names of files are
    relative to `folder`, that of the kubeconfig.
    """
    yield from _server_name(context.cluster)
    yield from _unusable(folder, context.cluster, "certificate-authority", certificates)
    try:
        context.credentials()
    except KubeconfigError as error:
        yield error
    if context.user is not None:
        yield from _client_certificate(folder, context.user)


def _server_name(cluster: Entry) -> Iterator[KubeconfigError]:
    """Check the name that the API server's certificate must have instead of the host in `server`."""
    name = cluster.values.get("tls-server-name")
    if name and not (isinstance(name, str) and _HOST.fullmatch(name)):
        what = f"tls-server-name {show(name)} of {cluster.place} is not the name of a host"
        fix = "write a name in the API server's certificate, without https:// and without a port"
        yield KubeconfigError(what, fix)


def _client_certificate(folder: Path, user: Entry) -> Iterator[KubeconfigError]:
    """Check the certificate and the key of a user.

    Client-go refuses a certificate without a key, too (`tools/clientcmd/validation.go`).
    """
    errors = [
        *_unusable(folder, user, "client-certificate", certificates),
        *_unusable(folder, user, "client-key", private_key),
    ]
    yield from errors
    if errors:
        return
    certificate, key = (_content(folder, user, f"client-{one}") for one in ("certificate", "key"))
    if certificate is not None and key is None:
        what = f"{user.place} has a client-certificate and no client-key"
        yield KubeconfigError(what, "add client-key to the kubeconfig: the key of this certificate")
    elif certificate is not None and key is not None and not fits(certificate, key):
        what = f"client-key of {user.place} is not the key of its client-certificate"
        yield KubeconfigError(what, "write the key of this certificate in the kubeconfig")


def _unusable(
    folder: Path, entry: Entry, key: str, check: Callable[[bytes], object]
) -> Iterator[KubeconfigError]:
    """Yield why a value of a kubeconfig, or the file that it names, cannot be used."""
    data, name = entry.values.get(f"{key}-data"), entry.values.get(key)
    try:
        pem = _content(folder, entry, key)
        if pem is not None:
            check(pem)
    except PemError as error:
        named = f"names {show(name)}, which " if name and not data else ""
        yield KubeconfigError(f"{key} of {entry.place} {named}{error.what}", error.fix)


def _content(folder: Path, entry: Entry, key: str) -> bytes | None:
    """Return the PEM of a key, or None if the kubeconfig has none. Raises PemError."""
    data, name = entry.values.get(f"{key}-data"), entry.values.get(key)
    if data:
        try:
            # Lines are usual: kubectl and the library accept them.
            return base64.b64decode("".join(str(data).split()), validate=True)
        except binascii.Error:
            raise PemError("is not base64", _FIX) from None
    return read_pem(folder / str(name)) if name else None
