"""How a count, a time and a sentence are written in a message for people: on the console and in commands."""

from datetime import UTC, datetime

from autoscaler.model.identifiers import Instant, Seconds

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def counted(count: int, noun: str) -> str:
    """Return `1 machine`, `2 machines` or `0 retries`. The noun is in the singular."""
    if count == 1:
        return f"1 {noun}"
    ends_in_ies = noun.endswith("y") and noun[-2] not in "aeiou"
    return f"{count} {noun[:-1]}ies" if ends_in_ies else f"{count} {noun}s"


def sentence(text: str) -> str:
    """Return a text with one full stop. A provider's words may end with one, and ours do not."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


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


def data_size(count: float) -> str:
    """Return a number of bytes such as `0.9 GiB` or `312 MiB`."""
    return f"{count / 2**30:,.1f} GiB" if count >= 2**29 else f"{count / 2**20:,.0f} MiB"


def in_words(seconds: int) -> str:
    """Return the time of an objective, such as `5 minutes`."""
    return f"{seconds / 60:g} minutes" if seconds > 60 else f"{seconds} seconds"


def moment(at: Instant | None) -> str:
    """Return a moment (Unix seconds) as `2026-11-24 03:52:00Z`. Empty for None."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}Z" if at is not None else ""
