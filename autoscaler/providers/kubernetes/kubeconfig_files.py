"""Checks the certificates and keys that a context of a kubeconfig names."""

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from autoscaler.config.pem import PemError, certificates, private_key, read_pem
from autoscaler.config.problems import show
from autoscaler.providers.kubernetes.kubeconfigs import (
    KubeconfigError,
    by_name,
    context_name,
    read_kubeconfig,
)

_FIX = "correct the kubeconfig"
_CLUSTER: Mapping[str, Callable[[bytes], object]] = {"certificate-authority": certificates}
_USER: Mapping[str, Callable[[bytes], object]] = {
    "client-certificate": certificates,
    "client-key": private_key,
}


def unusable_files(file: Path, wanted: str | None) -> Iterator[KubeconfigError]:
    """Yield what is wrong with the certificates and keys of a context. Raises KubeconfigError.

    As with kubectl, content in the kubeconfig (`...-data`) counts before a file, and the names of files are
    relative to the kubeconfig's folder.
    """
    content = read_kubeconfig(file)
    context = by_name(content, "contexts")[context_name(file.name, content, wanted)]
    for kind, checks in (("cluster", _CLUSTER), ("user", _USER)):
        name = str(context.get(kind))
        entry = by_name(content, f"{kind}s").get(name, {})
        for key, check in checks.items():
            try:
                _check(file.parent, entry, key, check)
            except PemError as error:
                what = f"{key} of {kind} {show(name)} of {show(file.name)} {error.what}"
                yield KubeconfigError(what, error.fix)


def _check(
    folder: Path, entry: Mapping[str, Any], key: str, check: Callable[[bytes], object]
) -> None:
    """Raise PemError if a value of a kubeconfig, or the file that it names, cannot be used."""
    data, name = entry.get(f"{key}-data"), entry.get(key)
    if data:
        try:
            # Lines are usual: kubectl and the library accept them.
            pem = base64.b64decode("".join(str(data).split()), validate=True)
        except binascii.Error:
            raise PemError("is not base64", _FIX) from None
        check(pem)
    elif name:
        try:
            check(read_pem(folder / str(name)))
        except PemError as error:
            raise PemError(f"names {show(name)}, which {error.what}", error.fix) from None
