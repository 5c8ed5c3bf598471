"""Versions of actions/runner, and which of them a SKU's machines use. Pure."""

import re
from collections.abc import Mapping

from autoscaler.model.identifiers import Instant, Seconds

Version = tuple[int, ...]
"""The numbers of a version, such as (2, 338, 0)."""

IN_USE_FOR: Seconds = 86_400.0
"""A version counts until one is reported over a day later: a canary may be the newest machine for hours."""

_VERSION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){1,5}", re.ASCII)


def parse_version(text: str) -> Version | None:
    """Return the numbers of a version such as `2.338.0`; None if the text is no such version."""
    return tuple(map(int, text.split("."))) if _VERSION.fullmatch(text) else None


def version_text(version: Version) -> str:
    """Return a version as GitHub writes it."""
    return ".".join(map(str, version))


def version_in_use(reported: Mapping[Version, Instant]) -> Version | None:
    """Return the oldest version in use, from when machines last reported each; None if none did.

    The versions of the last day before the newest report are in use.
    """
    since = max(reported.values(), default=0.0) - IN_USE_FOR
    return min((version for version, at in reported.items() if at >= since), default=None)
