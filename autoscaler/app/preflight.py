"""Checks whether this program can serve a fleet.yaml, for `check` and `serve`.

It uses the checks of each kind of provider, and makes no network requests.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from autoscaler import config
from autoscaler.app.installations import installation_problems
from autoscaler.config.checks.certificates import certificate_warnings, tls_problems
from autoscaler.config.checks.contradictions import check_store
from autoscaler.config.configuration import run_checks
from autoscaler.config.credentials import secret_problems
from autoscaler.config.provider_kind import OnlineCheck, ProviderKind
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

    def also(configuration: config.Configuration) -> tuple[config.Problem, ...]:
        return preflight(configuration, kinds, files=files)

    return config.load(path, kinds, files=files, try_store=try_store, also=also, content=content)


def preflight(
    configuration: config.Configuration, kinds: Sequence[ProviderKind], *, files: bool = True
) -> tuple[config.Problem, ...]:
    """Return every error and warning, by line. `files`: also check the files that it names."""
    problems = [*run_checks((check_store,), configuration)]
    for kind in kinds:
        problems += kind.preflight(configuration, files=files)
    problems += run_checks((installation_problems,), configuration, files=files)
    if files:
        problems += secret_problems(configuration)
        problems += tls_problems(configuration)
        problems += certificate_warnings(configuration, datetime.now(UTC))
    return tuple(sorted(problems))


def check_online(configuration: config.Configuration) -> OnlineCheck:
    """Return whether the providers would accept a configuration, for `check --online`. Changes nothing."""

    async def ask() -> list[OnlineCheck]:
        return [await kind.check_online(configuration) for kind in provider_kinds()]

    found = asyncio.run(ask())
    return OnlineCheck(
        tuple(problem for one in found for problem in one.problems),
        tuple(line for one in found for line in one.lines),
    )
