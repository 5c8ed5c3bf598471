"""Converts GitHub's timestamps (ISO 8601 in UTC) into instants, in Unix seconds."""

from datetime import UTC, datetime

from autoscaler.model.identifiers import Instant

_EARLIEST: Instant = datetime(2000, 1, 1, tzinfo=UTC).timestamp()


def instant_of(text: str | None) -> Instant | None:
    """Return the instant of a timestamp; None for an empty text or a time before 2000.

    Services in Go write year 1 if they have no time. Raises ValueError if `text` is not a timestamp.
    """
    if not text:
        return None
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    seconds = moment.timestamp()
    return seconds if seconds >= _EARLIEST else None
