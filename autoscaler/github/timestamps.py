"""GitHub's timestamps (ISO 8601 in UTC) as instants, in Unix seconds. Reads no clock."""

from datetime import UTC, datetime

from autoscaler.model.identifiers import Instant

_EARLIEST: Instant = datetime(2000, 1, 1, tzinfo=UTC).timestamp()


def instant_of(text: str | None) -> Instant | None:
    """The moment that `text` names; None for none.

    A moment before 2000 is none: services in Go write year 1 where they mean no time.
    Raises ValueError on anything that is no timestamp.
    """
    if not text:
        return None
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    seconds = moment.timestamp()
    return seconds if seconds >= _EARLIEST else None
