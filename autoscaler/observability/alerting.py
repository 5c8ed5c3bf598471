"""An alert, and texts of PromQL."""

from dataclasses import dataclass

from autoscaler.model.identifiers import Seconds

MINUTE: Seconds = 60.0
HOUR: Seconds = 3600.0
DAY: Seconds = 86_400.0


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert: it fires if `expression` has held for `after`."""

    name: str
    expression: str
    after: Seconds
    severity: str
    summary: str
    window: str = ""
    """The long window of a burn rate, which distinguishes the alerts of one objective."""


def quoted(text: str) -> str:
    """Return text as a string of PromQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def label(seconds: Seconds) -> str:
    """Return a window as part of a name, such as `5m`, `6h` or `3d`."""
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "m")):
        if seconds % unit == 0:
            return f"{seconds / unit:g}{name}"
    return f"{seconds:g}s"


def span(seconds: Seconds) -> str:
    """Return a time span as Prometheus reads it."""
    if seconds and seconds % MINUTE == 0:
        return label(seconds)
    return f"{max(0, round(seconds))}s"


def increased(counter: str, by: str, window: str, bound: str) -> str:
    """Return a comparison of a counter's increase.

    A series of a counter begins at its first event, and `increase` does not see the step from nothing to one.
    """
    return (
        f"sum by ({by}) ({counter} unless {counter} offset {window} "
        f"or increase({counter}[{window}])) {bound}"
    )
