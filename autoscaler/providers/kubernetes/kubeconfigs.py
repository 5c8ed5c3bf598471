"""Finds the API server of a provider, without the official client."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from autoscaler.config.document import MAX_BYTES
from autoscaler.config.problems import listed, nearest, show

_FIX = "name a kubeconfig, such as kubectl config view --raw prints"


class KubeconfigError(Exception):
    """A kubeconfig cannot be used: what is wrong, and what to do."""

    def __init__(self, what: str, fix: str) -> None:
        self.what, self.fix = what, fix
        super().__init__(what)


def server_of(file: Path, wanted: str | None) -> str:
    """Return the URL of a context's API server; without a name, of the current context.

    Raises KubeconfigError.
    """
    content = _content(file)
    contexts, clusters = _by_name(content, "contexts"), _by_name(content, "clusters")
    name = wanted if wanted is not None else content.get("current-context")
    if not name:
        raise KubeconfigError(f"{show(file.name)} has no current context", "add the key context")
    if name not in contexts:
        meant = nearest(str(name), contexts)
        fix = f"did you mean {meant}?" if meant else f"write {listed(sorted(contexts))}"
        what = f"{show(name)} is not a context of {show(file.name)}"
        raise KubeconfigError(what, fix if contexts else "add it to the kubeconfig")
    server = clusters.get(str(contexts[name].get("cluster")), {}).get("server")
    if not isinstance(server, str) or not server:
        what = f"context {show(name)} of {show(file.name)} has no cluster with a server"
        raise KubeconfigError(what, "correct the kubeconfig, or write another context")
    return _normal(server)


def usual_server(context: str, environment: Mapping[str, str]) -> str | None:
    """Return the URL of a context's API server in the usual places of kubectl, or None if none has it.

    They are the files of `KUBECONFIG`, or `~/.kube/config` (Kubernetes documentation, "Organizing Cluster
    Access Using kubeconfig Files").
    """
    names = environment.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    for name in filter(None, names.split(os.pathsep)):
        try:
            return server_of(Path(name), context)
        except KubeconfigError:
            continue
    return None


def own_server(environment: Mapping[str, str]) -> str | None:
    """Return the URL of the API server of the pod that this process runs in, or None outside a cluster."""
    host, port = (environment.get(f"KUBERNETES_SERVICE_{part}") for part in ("HOST", "PORT"))
    if not host or not port:
        return None
    return _normal(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}")


def _normal(url: str) -> str:
    """Return a URL as others of the same server are written."""
    address = urlsplit(url)
    try:
        port = address.port
    except ValueError:
        return url
    usual = {"https": 443, "http": 80}.get(address.scheme)
    host = address.hostname or ""
    place = f"[{host}]" if ":" in host else host
    if port is not None and port != usual:
        place += f":{port}"
    return f"{address.scheme}://{place}{address.path.rstrip('/')}"


def _content(file: Path) -> Mapping[str, Any]:
    try:
        with file.open("rb") as opened:
            content = yaml.safe_load(opened.read(MAX_BYTES))
    except (OSError, yaml.YAMLError, ValueError, RecursionError):
        raise KubeconfigError(f"{show(file.name)} is not YAML", _FIX) from None
    if isinstance(content, dict):
        return content
    raise KubeconfigError(f"{show(file.name)} is not a kubeconfig", _FIX)


def _by_name(content: Mapping[str, Any], kind: str) -> dict[str, Mapping[str, Any]]:
    """Return the `contexts` or `clusters` of a kubeconfig by name."""
    found = content.get(kind)
    singular = kind.removesuffix("s")
    return {
        str(one.get("name")): one[singular]
        for one in (found if isinstance(found, list) else ())
        if isinstance(one, dict) and isinstance(one.get(singular), dict)
    }
