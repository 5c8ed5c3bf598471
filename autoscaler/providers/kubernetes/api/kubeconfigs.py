"""Reads a context of kubeconfig files, with its cluster and its user, without the official client."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml

from autoscaler.config.document import MAX_BYTES
from autoscaler.config.problems import listed, nearest, printable, show, unreadable_fix
from autoscaler.config.regular_files import open_regular

_FIX = "name a kubeconfig, such as kubectl config view --raw prints"
_CREDENTIALS = (
    *("token", "tokenFile", "exec", "auth-provider", "username"),
    *("client-certificate", "client-certificate-data"),
)
"""The keys of a user with which the official client authenticates."""


class KubeconfigError(ValueError):
    """A kubeconfig cannot be used: what is wrong, and what to do."""

    def __init__(self, what: str, fix: str) -> None:
        self.what, self.fix = what, fix
        super().__init__(f"{what}: {fix}")


class Entry(NamedTuple):
    """The entry of a cluster or user. `place` names it in messages: `user "u" of "k"`."""

    place: str
    values: Mapping[str, Any]


class Context(NamedTuple):
    """A context. `place` names it in messages."""

    place: str
    cluster: Entry
    user: Entry | None
    """None if the context names no user."""

    def server(self) -> str:
        """Return the URL of the API server. Raises KubeconfigError."""
        server = self.cluster.values.get("server")
        if not isinstance(server, str) or not server:
            what = f"{self.place} has no cluster with a server"
            raise KubeconfigError(what, "correct the kubeconfig, or write another context")
        if not _is_address(server):
            what = f"server {show(server)} of {self.cluster.place} is not the URL of an API server"
            fix = "write https://HOST:PORT, with a port of 1 to 65535, in the kubeconfig"
            raise KubeconfigError(what, fix)
        return _normal(server)

    def credentials(self) -> Entry:
        """Return the user. Raises KubeconfigError if there is none, or none with credentials."""
        if self.user is None:
            raise KubeconfigError(f"{self.place} has no user", "add the key user to the context")
        if not any(self.user.values.get(key) for key in _CREDENTIALS):
            what = f"{self.user.place} has no credentials"
            fix = "add token, tokenFile, exec or client-certificate to this user in the kubeconfig"
            raise KubeconfigError(what, fix)
        return self.user


def usual_files(environment: Mapping[str, str]) -> list[Path]:
    """Return the files of `KUBECONFIG`, or `~/.kube/config`.

    Kubernetes documentation, "Organizing Cluster Access Using kubeconfig Files". A name stays as it is if it
    begins with an unknown user's folder, and `~` if this user has none, as in some containers.
    """
    names = environment.get("KUBECONFIG") or "~/.kube/config"
    # Path.expanduser raises an error instead.
    return [Path(os.path.expanduser(name)) for name in names.split(os.pathsep) if name]  # noqa: PTH111


def read_context(files: Sequence[Path], wanted: str | None, shown: str = "KUBECONFIG") -> Context:
    """Return a context of the files; without a name, the current one of the first file.

    As with kubectl, absent files are skipped, and the first entry of a name counts. `shown` names the files in
    messages. Raises KubeconfigError.
    """
    read = {file: _read(file, printable(str(file)) if len(files) > 1 else shown) for file in files}
    contents = [content for content in read.values() if content is not None]
    absent = listed([printable(str(file)) for file, content in read.items() if content is None])
    if not contents:
        raise KubeconfigError(
            f"no kubeconfig was found in {absent or shown}",
            "write the key kubeconfig, or name an existing file in the variable KUBECONFIG",
        )
    contexts = _by_name(contents, "context")
    name = wanted if wanted is not None else _current(contents[0], shown)
    if name not in contexts:
        meant = nearest(name, contexts)
        fix = f"did you mean {meant}?" if meant else f"write {listed(sorted(contexts))}"
        what = f"{show(name)} is not a context of {shown}"
        what += f", without {absent}, which does not exist" if absent else ""
        raise KubeconfigError(what, fix if contexts else "add it to the kubeconfig")
    context = contexts[name]
    place = f"context {show(name)} of {shown}"
    user = _entry(contents, "user", context, shown) if context.get("user") else None
    return Context(place, _entry(contents, "cluster", context, shown), user)


def _current(content: Mapping[str, Any], shown: str) -> str:
    name = content.get("current-context")
    if not name and name != 0:
        raise KubeconfigError(f"{shown} has no current context", "add the key context")
    if not isinstance(name, str):
        # Client-go decodes it into a string, and refuses a number.
        what = f"current-context {show(name)} of {shown} is not text"
        raise KubeconfigError(what, "put it in quotes in the kubeconfig, or add the key context")
    return name


def _entry(
    contents: Iterable[Mapping[str, Any]], kind: str, context: Mapping[str, Any], shown: str
) -> Entry:
    name = context.get(kind)
    place = f"{kind} {show(name)} of {shown}"
    return Entry(place, _by_name(contents, kind).get(name, {}) if isinstance(name, str) else {})


def _by_name(contents: Iterable[Mapping[str, Any]], kind: str) -> dict[str, Mapping[str, Any]]:
    """Return the contexts, clusters or users by name, the first one of each name."""
    found: dict[str, Mapping[str, Any]] = {}
    for content in contents:
        entries = content.get(f"{kind}s")
        for one in entries if isinstance(entries, list) else ():
            # The official client compares names as they are: the number 1 is not the text "1".
            if (
                isinstance(one, dict)
                and isinstance(one.get(kind), dict)
                and isinstance(name := one.get("name"), str)
            ):
                found.setdefault(name, one[kind])
    return found


def _read(file: Path, shown: str) -> Mapping[str, Any] | None:
    """Return the content of a kubeconfig, or None if there is no such file. Raises KubeconfigError."""
    try:
        with open_regular(file) as opened:
            content = yaml.safe_load(opened.read(MAX_BYTES))
    except FileNotFoundError:
        return None
    except OSError as error:
        what = f"{shown} cannot be read: {error.strerror}"
        raise KubeconfigError(what, unreadable_fix(error)) from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise KubeconfigError(f"{shown} is not YAML", _FIX) from None
    if isinstance(content, dict):
        return content
    raise KubeconfigError(f"{shown} is not a kubeconfig", _FIX)


def own_server(environment: Mapping[str, str]) -> str | None:
    """Return the URL of the API server of the pod that this process runs in, or None outside a cluster."""
    host, port = (environment.get(f"KUBERNETES_SERVICE_{part}") for part in ("HOST", "PORT"))
    if not host or not port:
        return None
    return _normal(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}")


def _is_address(server: str) -> bool:
    """Return whether the official client can connect: it needs the scheme, which kubectl may add."""
    try:
        address = urlsplit(server)
        port = address.port
    except ValueError:
        return False
    return address.scheme in ("https", "http") and bool(address.hostname) and port != 0


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
