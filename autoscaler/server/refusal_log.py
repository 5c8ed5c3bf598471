"""Log lines about refused requests, so many a minute and no more: a flood must not fill the disk.

What is not written is counted, and the count is written. Metrics count every refusal besides;
which ones are worth a line is for the endpoints.
"""

import asyncio
from collections import Counter
from typing import Any

import structlog

from autoscaler.model.identifiers import Seconds

LINES = 20
"""Written of one kind of refusal within a window; then only how many more there were."""

WINDOW: Seconds = 60.0

_log = structlog.get_logger(__name__)


class RefusalLog:
    """One window for each kind, by the loop's time. Kinds are our own words, hence few."""

    def __init__(self, lines: int = LINES, window: Seconds = WINDOW) -> None:
        self._lines = lines
        self._window = window
        self._seen: Counter[tuple[str, ...]] = Counter()

    def note(self, event: str, *kind: str, **told: Any) -> None:
        """Write a line, or count it. `event` and the words of `kind` make what is counted."""
        key = (event, *kind)
        if not self._seen[key]:
            asyncio.get_running_loop().call_later(self._window, self._begin_anew, key)
        self._seen[key] += 1
        if self._seen[key] <= self._lines:
            _log.warning(event, **told)

    def _begin_anew(self, key: tuple[str, ...]) -> None:
        more = self._seen.pop(key) - self._lines
        if more > 0:
            event, *kind = key
            _log.warning(event, kind=kind, suppressed=more, within_s=self._window)
