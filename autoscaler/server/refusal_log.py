"""Logs refused requests, with a maximum number of lines per minute: many refusals must not fill the disk.

Further refusals are counted, and the count is logged at the end of the minute. Metrics count every refusal.
"""

import asyncio
from collections import Counter
from typing import Any

import structlog

from autoscaler.model.identifiers import Seconds

LINES = 20
"""Maximum number of lines for one kind of refusal in a window."""

WINDOW: Seconds = 60.0

_log = structlog.get_logger(__name__)


class RefusalLog:
    """Logs the first `lines` refusals of each kind, and after `window` seconds the number of the others.

    The first refusal of a kind begins its window, by the event loop's clock. The code fixes the kinds, so
    there are few.
    """

    def __init__(self, lines: int = LINES, window: Seconds = WINDOW) -> None:
        self._lines = lines
        self._window = window
        self._seen: Counter[tuple[str, ...]] = Counter()

    def note(self, event: str, *kind: str, **fields: Any) -> None:
        """Log or count a refusal. Refusals with the same `event` and `kind` are counted together."""
        key = (event, *kind)
        if not self._seen[key]:
            asyncio.get_running_loop().call_later(self._window, self._close_window, key)
        self._seen[key] += 1
        if self._seen[key] <= self._lines:
            _log.warning(event, **fields)

    def _close_window(self, key: tuple[str, ...]) -> None:
        more = self._seen.pop(key) - self._lines
        if more > 0:
            event, *kind = key
            _log.warning(event, kind=kind, suppressed=more, within_s=self._window)
