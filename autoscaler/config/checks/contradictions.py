"""Checks combinations of values outside `skus`, which `skus` checks."""

from collections.abc import Iterator, Sequence
from urllib.parse import parse_qsl, urlsplit

from autoscaler.config.checks.repeats import repeats
from autoscaler.config.configuration import Configuration, run_checks
from autoscaler.config.problems import KeyPath, Problem, show
from autoscaler.config.settings.fleet import ProviderSettings, ScopeSettings
from autoscaler.model.identifiers import is_loopback

_GITHUB, _API, _DATA_RESIDENCY = "github.com", "api.github.com", ".ghe.com"
_SERVER_PATH = "/api/v3"
_ENCRYPTED = ("require", "verify-ca", "verify-full")
"""The values of `sslmode` with which libpq opens no session without encryption."""


def check_contradictions(configuration: Configuration, kinds: Sequence[str]) -> Iterator[Problem]:
    """Return every contradiction outside `skus`. `kinds` are the keys of the kinds of providers."""
    checks = (
        *(_api_url, _apps, _webhook, _scopes, _open_listener, _tls_and_insecure),
        *(_public_url, _public_path, _webhook_listen),
    )
    yield from run_checks(checks, configuration)
    for name, provider in configuration.providers():
        yield from run_checks((_kind,), configuration, name, provider, kinds)
        yield from run_checks((_repeats,), configuration, name, provider)


def check_store(configuration: Configuration) -> Iterator[Problem]:
    """Warn of a PostgreSQL server on another host, if its sessions may be without encryption.

    libpq's default, `prefer`, goes on without it if the server, or an attacker between, offers none.
    """
    if configuration.sqlite_file() is not None:
        return
    url = urlsplit(configuration.settings.store)
    given = dict(parse_qsl(url.query))
    host = given.get("host", url.hostname or "")
    if host.startswith("/") or is_loopback(host):  # A path is that of a Unix socket.
        return
    if given.get("sslmode") not in _ENCRYPTED:
        what = f"{show(host)} may be reached without encryption"
        fix = "add sslmode=verify-full and sslrootcert=/FILE to the URL"
        yield configuration.warning(("store",), what, fix)


def _api_url(configuration: Configuration) -> Iterator[Problem]:
    """Check that GitHub's REST API is there (docs.github.com, "Getting started with the REST API").

    Another host may be a gateway in front of it, which knows the path: only a warning. Loopback is a test's.
    """
    written, path = configuration.settings.github.api_url, ("github", "api_url")
    url, what = urlsplit(written), f"{show(written)} is not GitHub's REST API"
    host = url.hostname or ""
    if host in (_GITHUB, f"www.{_GITHUB}") or (host == _API and url.path):
        yield configuration.error(path, what, f"write https://{_API}, or remove the key")
    elif host.endswith(_DATA_RESIDENCY):
        if not host.startswith("api."):
            yield configuration.error(path, what, f"write https://api.{host}")
    elif host != _API and not is_loopback(host) and url.path != _SERVER_PATH:
        what += f", which GitHub Enterprise Server has at {_SERVER_PATH}"
        yield configuration.warning(path, what, f"write https://{url.netloc}{_SERVER_PATH}")


def _apps(configuration: Configuration) -> Iterator[Problem]:
    seen: dict[int, KeyPath] = {}
    for index, app in enumerate(configuration.settings.github.apps):
        path = ("github", "apps", index, "id")
        number = getattr(app, "id", None)
        if number in seen:
            what = f"repeats the App on line {configuration.document.line(seen[number])}"
            yield configuration.error(path, what, "remove one of them")
        elif number is not None:
            seen[number] = path


def _webhook(configuration: Configuration) -> Iterator[Problem]:
    github = configuration.settings.github
    written = configuration.document.value(("github",))
    if not any(key.startswith("webhook") for key in written):
        what = "has neither webhook_secret_file nor webhook: none"
        fix = "name the file with the webhook's secret, or write webhook: none if GitHub sends none"
        yield configuration.error(("github",), what, fix)
    elif github.webhook is not None:
        unused = {
            ("github", "webhook_secret_file"): github.webhook_secret_file,
            ("server", "webhook_listen"): configuration.settings.server.webhook_listen,
        }
        for path, value in unused.items():
            if value is not None:
                what = "has no effect with github.webhook: none"
                yield configuration.error(path, what, "remove it, or remove webhook: none")


def _scopes(configuration: Configuration) -> Iterator[Problem]:
    seen: dict[object, int] = {}
    for index, scope in enumerate(configuration.settings.github.scopes):
        yield from run_checks((_scope,), configuration, index, scope, seen)


def _scope(
    configuration: Configuration, index: int, scope: ScopeSettings, seen: dict[object, int]
) -> Iterator[Problem]:
    path = ("github", "scopes", index)
    if scope.org is None and scope.repo is None and _unknown_keys(configuration, path, scope):
        return  # one of them is reported, and probably means org or repo
    if (scope.org is None) == (scope.repo is None):
        what = "has both org and repo" if scope.org else "has neither org nor repo"
        yield configuration.error(path, what, "write either org or repo")
        return
    if scope.repo is not None and "repositories" in scope.model_fields_set:
        what = "cannot be combined with repo"
        yield configuration.error((*path, "repositories"), what, "remove it, or write org")
    name = (scope.org or scope.repo or "").lower()
    covers = (scope.org is not None, name, scope.repositories)
    line = configuration.document.line(path)
    if covers in seen:
        what = f"covers the same repositories as the scope on line {seen[covers]}"
        yield configuration.error(path, what, "remove one of them")
    seen.setdefault(covers, line)


def _unknown_keys(configuration: Configuration, path: KeyPath, scope: ScopeSettings) -> bool:
    return bool(set(configuration.document.value(path)) - set(type(scope).model_fields))


def _open_listener(configuration: Configuration) -> Iterator[Problem]:
    server = configuration.settings.server
    if server.tls is None and not server.insecure and not server.listen.loopback:
        what = f"other hosts can reach {server.listen}, and tls is missing"
        fix = (
            "add tls: {certificate_file, key_file}, or insecure: true behind a proxy that "
            "terminates TLS"
        )
        yield configuration.error(("server", "listen"), what, fix)


def _tls_and_insecure(configuration: Configuration) -> Iterator[Problem]:
    server = configuration.settings.server
    if server.insecure and server.tls is not None:
        what = "cannot be combined with tls"
        yield configuration.error(("server", "insecure"), what, "remove one of them")


def _public_url(configuration: Configuration) -> Iterator[Problem]:
    server = configuration.settings.server
    url = urlsplit(server.public_url)
    path, is_https = ("server", "public_url"), url.scheme == "https"
    if server.tls is not None and not is_https:
        yield configuration.error(path, "is http, but the server uses TLS", "write https://")
    elif server.tls is None and is_https and not server.insecure:
        what = "is https, but the server has no tls"
        yield configuration.error(
            path, what, "add tls, or insecure: true behind a proxy that terminates TLS"
        )
    elif not is_https and not server.insecure and not is_loopback(url.hostname or ""):
        what = "would send secrets without encryption"
        yield configuration.error(path, what, "write https://, or add insecure: true")


def _public_path(configuration: Configuration) -> Iterator[Problem]:
    url = urlsplit(configuration.settings.server.public_url)
    if url.path:
        what = (
            f"has the path {show(url.path)}, and the controller serves machines at /bootstrap only"
        )
        fix = f"write {url.scheme}://{url.netloc}, unless a proxy removes the path"
        yield configuration.warning(("server", "public_url"), what, fix)


def _webhook_listen(configuration: Configuration) -> Iterator[Problem]:
    server = configuration.settings.server
    if server.listen == server.webhook_listen and server.listen.port:
        path = ("server", "webhook_listen")
        yield configuration.error(
            path, "is the same address as listen", "remove it, or use another port"
        )


def _kind(
    configuration: Configuration, name: str, provider: ProviderSettings, known: Sequence[str]
) -> Iterator[Problem]:
    """Check that a provider has one kind."""
    kinds = [key for key in known if getattr(provider, key) is not None]
    if not kinds and configuration.document.value(("providers", name)):
        return  # its unknown keys are reported
    if len(kinds) != 1:
        what = f"has both {' and '.join(kinds)}" if kinds else f"has neither {' nor '.join(known)}"
        fix = f"write exactly one of {' and '.join(known)}"
        yield configuration.error(("providers", name), what, fix)


def _repeats(
    configuration: Configuration, name: str, provider: ProviderSettings
) -> Iterator[Problem]:
    section = provider.section
    for key in type(section).model_fields:
        values = getattr(section, key, ())
        for index in repeats(values if isinstance(values, tuple) else ()):
            path = ("providers", name, provider.kind, key, index)
            yield configuration.error(path, "is repeated", "remove it")
