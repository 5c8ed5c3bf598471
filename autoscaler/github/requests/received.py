"""The base class for data from GitHub, with its validation rules, and GitHub's timestamps."""

from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict

from autoscaler.model.identifiers import Instant

_EARLIEST: Instant = datetime(2000, 1, 1, tzinfo=UTC).timestamp()


class Received(BaseModel):
    """Data in a format that GitHub documents, validated strictly: no value is converted.

    Ignores unknown fields, because GitHub adds fields at any time. Errors contain no values, because
    a value may be a token or a JIT configuration.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", hide_input_in_errors=True)


def instant_of(text: str | None) -> Instant | None:
    """Return the instant of a timestamp (ISO 8601 in UTC); None for an empty text or a time before 2000.

    Services in Go write year 1 if they have no time. Raises ValueError if `text` is not a timestamp.
    """
    if not text:
        return None
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    seconds = moment.timestamp()
    return seconds if seconds >= _EARLIEST else None
