"""Checks combinations of values in fleet.yaml, except the SKUs, which `launch_options` checks.

Reads the file as written, so that one error hides no other. Ignores values of a wrong type, which
`settings` reports.
"""

from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from pydantic_core import PydanticCustomError

from autoscaler.config.problems import Problem
from autoscaler.config.reading.document import Document, Node
from autoscaler.config.settings.scalars import Address, is_loopback, parse_address, parse_url


def check(document: Document, kinds: Sequence[str]) -> Iterator[Problem]:
    """Return every contradiction outside `skus`. `kinds` are the keys of the kinds of providers."""
    yield from _apps(document)
    yield from _scopes(document)
    yield from _transport(document)
    yield from _public_url(document)
    yield from _webhook_listen(document)
    yield from _providers(document, kinds)


def text(node: Node | None, *path: str | int) -> str | None:
    """Return the text at a path, or None if there is none."""
    found = node.get(*path) if node else None
    return found.value if found and isinstance(found.value, str) else None


def kind_of(provider: Node | None, kinds: Sequence[str]) -> str | None:
    """Return the kind of a provider if it has exactly one of them."""
    found = [kind for kind in kinds if provider and provider.child(kind)]
    return found[0] if len(found) == 1 else None


def _apps(document: Document) -> Iterator[Problem]:
    seen: dict[object, int] = {}
    apps = document.root.get("github", "apps")
    for index, app in apps.items() if apps else ():
        node = app.child("id")
        if node is None or not isinstance(node.value, int):
            continue
        if node.value in seen:
            what = f"repeats the App on line {seen[node.value]}"
            yield document.problem(("github", "apps", index, "id"), what, "remove one of them")
        seen.setdefault(node.value, node.line)


def _scopes(document: Document) -> Iterator[Problem]:
    seen: dict[object, int] = {}
    scopes = document.root.get("github", "scopes")
    for index, scope in scopes.items() if scopes else ():
        if not isinstance(scope.value, dict):
            continue
        path = ("github", "scopes", index)
        org, repo, globs = scope.child("org"), scope.child("repo"), scope.child("repositories")
        if (org is None) == (repo is None):
            what = "has both org and repo" if org else "has neither org nor repo"
            yield document.problem(path, what, "write either org or repo")
            continue
        if repo is not None and globs is not None:
            what = "cannot be combined with repo"
            yield document.problem((*path, "repositories"), what, "remove it, or write org")
        name = (text(org or repo) or "").lower()
        covers = (org is not None, name, str(globs.plain()) if globs else "")
        if name and covers in seen:
            what = f"covers the same repositories as the scope on line {seen[covers]}"
            yield document.problem(path, what, "remove one of them")
        seen.setdefault(covers, scope.line)


def _transport(document: Document) -> Iterator[Problem]:
    server = document.root.child("server")
    listen = _address(text(server, "listen"))
    if server is None or listen is None:
        return
    tls, insecure = server.child("tls"), server.child("insecure")
    plain = insecure is not None and insecure.value is True
    if tls is None and not plain and not listen.loopback:
        what = f"other hosts can reach {listen}, and tls is missing"
        fix = (
            "add tls: {certificate_file, key_file}, or insecure: true behind a proxy that "
            "terminates TLS"
        )
        yield document.problem(("server", "listen"), what, fix)
    if tls is not None and plain:
        what = "cannot be combined with tls"
        yield document.problem(("server", "insecure"), what, "remove one of them")


def _public_url(document: Document) -> Iterator[Problem]:
    server = document.root.child("server")
    url = text(server, "public_url")
    if server is None or url is None or not _is_url(url):
        return
    secure, host = urlsplit(url).scheme == "https", urlsplit(url).hostname or ""
    insecure = server.get("insecure")
    plain = insecure is not None and insecure.value is True
    path = ("server", "public_url")
    if server.child("tls") is not None and not secure:
        yield document.problem(path, "is http, but the server uses TLS", "write https://")
    elif server.child("tls") is None and secure and not plain:
        what = "is https, but the server has no tls"
        yield document.problem(
            path, what, "add tls, or insecure: true behind a proxy that terminates TLS"
        )
    elif not secure and not plain and not is_loopback(host):
        what = "would send secrets without encryption"
        yield document.problem(path, what, "write https://, or add insecure: true")


def _webhook_listen(document: Document) -> Iterator[Problem]:
    server = document.root.child("server")
    listen, webhook = (_address(text(server, key)) for key in ("listen", "webhook_listen"))
    if listen is not None and listen == webhook and listen.port:
        path = ("server", "webhook_listen")
        yield document.problem(
            path, "is the same address as listen", "remove it, or use another port"
        )


def _providers(document: Document, known: Sequence[str]) -> Iterator[Problem]:
    """Check that each provider has one kind."""
    providers = document.root.child("providers")
    for name, provider in providers.entries() if providers else ():
        if not isinstance(provider.value, dict):
            continue
        kinds = [kind for kind in known if provider.child(kind)]
        if not kinds and provider.value:
            continue  # `settings` reports its unknown keys.
        if len(kinds) != 1:
            what = (
                f"has both {' and '.join(kinds)}" if kinds else f"has neither {' nor '.join(known)}"
            )
            fix = f"write exactly one of {' and '.join(known)}"
            yield document.problem(("providers", name), what, fix)


def _address(value: str | None) -> Address | None:
    try:
        return parse_address(value) if value is not None else None
    except PydanticCustomError:
        return None


def _is_url(value: str) -> bool:
    try:
        parse_url(value)
    except PydanticCustomError:
        return False
    return True
