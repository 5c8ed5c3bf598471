"""Releases of actions/runner, and until when GitHub gives jobs to a version. Pure.

GitHub's rule: a runner that does not update itself must have each release within 30 days of its publication
(docs.github.com, "Self-hosted runners reference", "Runner software updates"; enforced at github.com since
2026-09-25, github.com/orgs/community/discussions/194762). It does not matter whether a still newer one follows.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autoscaler.model.identifiers import Instant, Seconds

Version = tuple[int, ...]
"""The numbers of a version, such as (2, 338, 0)."""

GRACE: Seconds = 30 * 86_400.0
"""How long after a release GitHub still gives jobs to the versions before it."""

IN_USE_FOR: Seconds = 86_400.0
"""A version counts until one is reported over a day later: a canary may be the newest machine for hours."""

_VERSION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){1,5}", re.ASCII)


@dataclass(frozen=True, slots=True)
class RunnerRelease:
    """A release of actions/runner. `published_at` is in Unix seconds."""

    version: Version
    published_at: Instant


def parse_version(text: str) -> Version | None:
    """Return the numbers of a version such as `2.338.0`; None if the text is no such version."""
    return tuple(map(int, text.split("."))) if _VERSION.fullmatch(text) else None


def version_text(version: Version) -> str:
    """Return a version as GitHub writes it."""
    return ".".join(map(str, version))


def deadline(version: Version, releases: Iterable[RunnerRelease]) -> Instant | None:
    """Return when GitHub stops giving jobs to a runner version; None if no release is newer."""
    newer = [release.published_at for release in releases if release.version > version]
    return min(newer) + GRACE if newer else None


def version_in_use(reported: Mapping[Version, Instant]) -> Version | None:
    """Return the oldest version in use, from when machines last reported each; None if none did.

    The versions of the last day before the newest report are in use.
    """
    since = max(reported.values(), default=0.0) - IN_USE_FOR
    return min((version for version, at in reported.items() if at >= since), default=None)
