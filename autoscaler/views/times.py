"""Moments and time spans as text, the same in commands and on the console."""

from datetime import UTC, datetime

from autoscaler.model.identifiers import Instant, Seconds

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def duration(seconds: Seconds | None) -> str:
    """Return a time span in its two largest units: `45s`, `12m05s`, `3h20m`, `2d04h`. Empty for None."""
    if seconds is None:
        return ""
    whole = max(0, round(seconds))
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m{whole % _MINUTE:02}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02}m"
    return f"{whole // _DAY}d{whole % _DAY // _HOUR:02}h"


def in_words(seconds: int) -> str:
    """Return the time of an objective, such as `5 minutes`."""
    return f"{seconds / 60:g} minutes" if seconds > 60 else f"{seconds} seconds"


def moment(at: Instant | None) -> str:
    """Return a moment (Unix seconds) as `2026-11-24 03:52:00Z`. Empty for None."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}Z" if at is not None else ""
