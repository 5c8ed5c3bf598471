"""Finds a context in kubeconfig files, which the official client reads, with its cluster and its user."""

import importlib
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml

from autoscaler.config.files.regular_files import read_regular
from autoscaler.config.problems import listed, nearest, printable, show, unreadable_fix

_LOCK = threading.Lock()


def import_library() -> None:
    """Import what the provider uses of the official client, whose 900 modules take two seconds of CPU.

    Blocks: call it in a thread.

    One thread at a time: the library's packages import one another in circles. If two threads import two of
    them at once, one thread gets a `_DeadlockError` (CPython, `importlib._bootstrap`).
    """
    with _LOCK:
        importlib.import_module("kubernetes.aio.client")
        importlib.import_module("kubernetes.aio.config")


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
    """Return a context of the files; without a name, the current one.

    As with kubectl, absent files are skipped, and the first entry of a name counts. `shown` names the files in
    messages. Blocks for the client's import. Raises KubeconfigError.
    """
    content, absent = _merged(files, shown)
    if content is None:
        raise KubeconfigError(
            f"no kubeconfig was found in {absent or shown}",
            "write the key kubeconfig, or name an existing file in the variable KUBECONFIG",
        )
    contexts = _by_name(content, "context")
    name = wanted if wanted is not None else _current(content, shown)
    if name not in contexts:
        meant = nearest(name, contexts)
        fix = f"did you mean {meant}?" if meant else f"write {listed(sorted(contexts))}"
        what = f"{show(name)} is not a context of {shown}"
        what += f", without {absent}, which does not exist" if absent else ""
        raise KubeconfigError(what, fix if contexts else "add it to the kubeconfig")
    context = contexts[name]
    place = f"context {show(name)} of {shown}"
    user = _entry(content, "user", context, shown) if context.get("user") else None
    return Context(place, _entry(content, "cluster", context, shown), user)


def _merged(files: Sequence[Path], shown: str) -> tuple[Mapping[str, Any] | None, str]:
    """Return what the official client reads in the files, or None without any, and the absent ones."""
    import_library()
    from kubernetes.aio.config.kube_config import KubeConfigMerger

    merger: KubeConfigMerger | None = None
    absent: list[str] = []
    for file in files:
        place = printable(str(file)) if len(files) > 1 else shown
        if os.pathsep in str(file):
            what = f"{place} has a {os.pathsep} in its path, where the client begins another file"
            raise KubeconfigError(what, "rename the file or its folder")
        try:
            read_regular(file)  # The client opens any kind of file, of any size.
            if merger is None:
                merger = KubeConfigMerger(str(file))
            else:
                merger.load_config(str(file))
        except FileNotFoundError:
            absent.append(printable(str(file)))
        except OSError as error:
            what = f"{place} cannot be read: {error.strerror}"
            raise KubeconfigError(what, unreadable_fix(error)) from None
        except (yaml.YAMLError, ValueError, RecursionError):
            raise KubeconfigError(f"{place} is not YAML", _FIX) from None
        except (AttributeError, KeyError, TypeError):
            # The client does not check the form.
            raise KubeconfigError(f"{place} is not a kubeconfig", _FIX) from None
    return None if merger is None else merger.config.value, listed(absent)


def _current(content: Mapping[str, Any], shown: str) -> str:
    name = content.get("current-context")
    if not name and name != 0:
        raise KubeconfigError(f"{shown} has no current context", "add the key context")
    if not isinstance(name, str):
        # Client-go decodes it into a string, and refuses a number.
        what = f"current-context {show(name)} of {shown} is not text"
        raise KubeconfigError(what, "put it in quotes in the kubeconfig, or add the key context")
    return name


def _entry(content: Mapping[str, Any], kind: str, context: Mapping[str, Any], shown: str) -> Entry:
    name = context.get(kind)
    values = _by_name(content, kind).get(name, {}) if isinstance(name, str) else {}
    return Entry(f"{kind} {show(name)} of {shown}", values)


def _by_name(content: Mapping[str, Any], kind: str) -> dict[str, Mapping[str, Any]]:
    """Return the contexts, clusters or users whose name is a text, as the client's own is, by name."""
    entries = [one.value for one in content[f"{kind}s"]]
    return {
        one["name"]: one[kind]
        for one in entries
        # The client does not check the form of a list's first entry.
        if isinstance(one, dict)
        and isinstance(one.get("name"), str)
        and isinstance(one.get(kind), dict)
    }


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
