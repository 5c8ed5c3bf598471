"""Checks the credentials of a context of a kubeconfig, and the certificates and keys that it names."""

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from autoscaler.config.pem import PemError, certificates, fits, private_key, read_pem
from autoscaler.config.problems import show
from autoscaler.providers.kubernetes.api.kubeconfigs import Context, Entry, KubeconfigError

_FIX = "correct the kubeconfig"
_HOST = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*|[0-9A-Fa-f]*:[0-9A-Fa-f:.]+")
"""A DNS name or an IP address."""


def unusable_credentials(context: Context, folder: Path) -> Iterator[KubeconfigError]:
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
