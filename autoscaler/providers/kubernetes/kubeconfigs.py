"""Finds the API server of a provider, without the official client."""

import os
from collections.abc import Iterable, Mapping
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
    content = read_kubeconfig(file)
    return _server(file.name, content, context_name(file.name, content, wanted))


def usual_server(context: str, environment: Mapping[str, str]) -> str | None:
    """Return the URL of a context's API server in the usual places of kubectl, or None if none has it."""
    content = _merged(usual_files(environment))
    try:
        return _server("KUBECONFIG", content, context)
    except KubeconfigError:
        return None


def usual_files(environment: Mapping[str, str]) -> list[Path]:
    """Return the files of `KUBECONFIG`, or `~/.kube/config`.

    Kubernetes documentation, "Organizing Cluster Access Using kubeconfig Files". A name stays as it is if it
    begins with an unknown user's folder, and `~` if this user has none, as in some containers.
    """
    names = environment.get("KUBECONFIG") or "~/.kube/config"
    # Path.expanduser raises an error instead.
    return [Path(os.path.expanduser(name)) for name in names.split(os.pathsep) if name]  # noqa: PTH111


def plugin_of(files: Iterable[Path], wanted: str | None) -> str | None:
    """Return the command of the credential plugin of a context's user, or None if it has none.

    Without a name, of the current context. Files that cannot be read have none.
    """
    content = _merged(files)
    contexts, users = by_name(content, "contexts"), by_name(content, "users")
    context = contexts.get(
        str(wanted if wanted is not None else content.get("current-context")), {}
    )
    plugin = users.get(str(context.get("user")), {}).get("exec")
    command = plugin.get("command") if isinstance(plugin, dict) else None
    return command if isinstance(command, str) and command else None


def context_name(file: str, content: Mapping[str, Any], wanted: str | None) -> str:
    """Return the name of a context that the kubeconfig has. Raises KubeconfigError."""
    contexts = by_name(content, "contexts")
    name = wanted if wanted is not None else content.get("current-context")
    if not name:
        raise KubeconfigError(f"{show(file)} has no current context", "add the key context")
    if name not in contexts:
        meant = nearest(str(name), contexts)
        fix = f"did you mean {meant}?" if meant else f"write {listed(sorted(contexts))}"
        what = f"{show(name)} is not a context of {show(file)}"
        raise KubeconfigError(what, fix if contexts else "add it to the kubeconfig")
    return str(name)


def _server(file: str, content: Mapping[str, Any], name: str) -> str:
    context = by_name(content, "contexts").get(name, {})
    server = by_name(content, "clusters").get(str(context.get("cluster")), {}).get("server")
    if not isinstance(server, str) or not server:
        what = f"context {show(name)} of {show(file)} has no cluster with a server"
        raise KubeconfigError(what, "correct the kubeconfig, or write another context")
    if not _is_address(server):
        cluster = show(context.get("cluster"))
        what = f"server {show(server)} of cluster {cluster} in {show(file)} is not the URL of an API server"
        raise KubeconfigError(
            what, "write https://HOST:PORT, with a port of 1 to 65535, in the kubeconfig"
        )
    return _normal(server)


def _is_address(server: str) -> bool:
    """Return whether the official client can connect: it needs the scheme, which kubectl may add."""
    try:
        address = urlsplit(server)
        port = address.port
    except ValueError:
        return False
    return address.scheme in ("https", "http") and bool(address.hostname) and port != 0


def _merged(files: Iterable[Path]) -> dict[str, Any]:
    """Return the entries of all files that can be read. As with kubectl, the first one of a name counts."""
    found: dict[str, Any] = {"contexts": [], "clusters": [], "users": []}
    for file in files:
        try:
            content = read_kubeconfig(file)
        except KubeconfigError:
            continue
        found.setdefault("current-context", content.get("current-context"))
        for kind in ("contexts", "clusters", "users"):
            entries = content.get(kind)
            found[kind] += entries if isinstance(entries, list) else []
    return found


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


def read_kubeconfig(file: Path) -> Mapping[str, Any]:
    """Return the content of a kubeconfig. Raises KubeconfigError."""
    try:
        with file.open("rb") as opened:
            content = yaml.safe_load(opened.read(MAX_BYTES))
    except (OSError, yaml.YAMLError, ValueError, RecursionError):
        raise KubeconfigError(f"{show(file.name)} is not YAML", _FIX) from None
    if isinstance(content, dict):
        return content
    raise KubeconfigError(f"{show(file.name)} is not a kubeconfig", _FIX)


def by_name(content: Mapping[str, Any], kind: str) -> dict[str, Mapping[str, Any]]:
    """Return the `contexts`, `clusters` or `users` of a kubeconfig by name, the first one of each name."""
    entries = content.get(kind)
    singular = kind.removesuffix("s")
    found: dict[str, Mapping[str, Any]] = {}
    for one in entries if isinstance(entries, list) else ():
        if isinstance(one, dict) and isinstance(one.get(singular), dict):
            found.setdefault(str(one.get("name")), one[singular])
    return found
