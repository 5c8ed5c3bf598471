"""Checks whether this program can serve a valid fleet.yaml, for `check` and `serve`.

It uses the checks of each kind of provider. It reads the file as written, so that one error hides no other,
and makes no network requests.
"""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from autoscaler import config
from autoscaler.app.drivers import driver_problems
from autoscaler.config import shapes
from autoscaler.config.certificate_warnings import certificate_warnings
from autoscaler.config.certificates import tls_problems
from autoscaler.config.credentials import secret_problems, short_webhook_secrets
from autoscaler.config.document import Document
from autoscaler.config.files import SQLITE
from autoscaler.config.provider_kind import OnlineCheck, ProviderKind
from autoscaler.config.values import valid
from autoscaler.providers.registry import PROVIDERS, provider_kinds


def load_for_service(
    path: Path,
    *,
    files: bool = True,
    try_store: bool = True,
    providers: tuple[str, ...] = PROVIDERS,
    content: bytes | None = None,
) -> config.Configuration:
    """Load a configuration that can be served. Raises ConfigurationError with all errors.

    `try_store`: also test that the store can be written, for callers that do not open it. `providers` are
    lines of the registry. `content` is the text to check instead of the file's.
    """
    kinds = provider_kinds(providers)

    def also(document: Document) -> tuple[config.Problem, ...]:
        return preflight(document, path.parent, kinds, files=files)

    return config.load(path, kinds, files=files, try_store=try_store, also=also, content=content)


def preflight(
    document: Document, folder: Path, kinds: Sequence[ProviderKind], *, files: bool = True
) -> tuple[config.Problem, ...]:
    """Return every error and warning, by line. `files`: also check the files that it names.

    File names are relative to `folder`. Values of a wrong type are ignored; `load` reports them.
    """
    problems = [*_store(document)]
    for kind in kinds:
        problems += kind.preflight(document, folder, files=files)
    problems += driver_problems(document, folder, files=files)
    if files:
        problems += secret_problems(document, folder)
        problems += short_webhook_secrets(document, folder)
        problems += tls_problems(document, folder)
        problems += certificate_warnings(document, folder, datetime.now(UTC))
    return tuple(sorted(problems))


def _store(document: Document) -> Iterator[config.Problem]:
    store = valid(document.root, shapes.StoreUrl, "store")
    if store is not None and not store.startswith(SQLITE):
        yield document.problem(
            ("store",), "PostgreSQL is not implemented yet", "write sqlite:///FILE"
        )


def check_online(configuration: config.Configuration) -> OnlineCheck:
    """Return whether the providers would accept a configuration, for `check --online`. Changes nothing."""

    async def ask() -> list[OnlineCheck]:
        document, folder = configuration.document, configuration.path.parent
        settings = configuration.settings
        return [await kind.check_online(document, settings, folder) for kind in provider_kinds()]

    found = asyncio.run(ask())
    return OnlineCheck(
        tuple(problem for one in found for problem in one.problems),
        tuple(line for one in found for line in one.lines),
    )
