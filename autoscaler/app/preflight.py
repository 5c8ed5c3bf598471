"""Checks whether this program can serve a fleet.yaml, for `check` and `serve`.

It uses the checks of each kind of provider, and makes no network requests.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from autoscaler import config
from autoscaler.app.examining import examine
from autoscaler.app.installations import installation_problems
from autoscaler.config.checks.certificates import certificate_warnings, tls_problems
from autoscaler.config.checks.contradictions import check_store
from autoscaler.config.configuration import run_checks
from autoscaler.config.credentials import secret_problems
from autoscaler.config.examinations import Check, Outcome
from autoscaler.config.provider_kind import OnlineCheck, ProviderKind
from autoscaler.model.identifiers import Seconds
from autoscaler.observability.redaction import redact_text
from autoscaler.providers.registry import PROVIDERS, provider_kinds

ONLINE_WITHIN: Seconds = 25.0


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


def check_online(
    configuration: config.Configuration, within: Seconds = ONLINE_WITHIN
) -> OnlineCheck:
    """Return whether the providers would accept a configuration, for `check --online`. Changes nothing.

    An examination of a provider may take `within` seconds.
    """

    async def ask() -> list[OnlineCheck]:
        found = []
        for kind in provider_kinds():
            own = await kind.check_online(configuration)
            found.append(own or await _examined(kind, configuration, within))
        return found

    found = asyncio.run(ask())
    return OnlineCheck(
        tuple(problem for one in found for problem in one.problems),
        tuple(line for one in found for line in one.lines),
    )


async def _examined(
    kind: ProviderKind, configuration: config.Configuration, within: Seconds
) -> OnlineCheck:
    """Return what the examinations of a kind find, as `check --online` prints it."""
    found = [
        (group, check)
        async for group, checks in examine(kind.examinations(configuration, within), within)
        for check in checks
    ]
    return OnlineCheck(
        tuple(
            _problem(configuration, group, check)
            for group, check in found
            if check.outcome in (Outcome.WRONG, Outcome.UNKNOWN)
        ),
        tuple(
            f"{group}: {check.name}: {redact_text(check.what)}"
            for group, check in found
            if check.outcome is Outcome.FINE
        ),
    )


def _problem(configuration: config.Configuration, group: str, check: Check) -> config.Problem:
    """Return a check as an error, or as a warning if its question got no answer."""
    return config.Problem(
        str(configuration.path),
        0,
        f"{group}: {check.name}",
        redact_text("; ".join(filter(None, (check.what, check.why)))),
        check.fix or "autoscaler doctor, in a minute",
        warning=check.outcome is Outcome.UNKNOWN,
    )
