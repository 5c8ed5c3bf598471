"""Geometry of the inline charts: areas of a step function, stacked, as SVG paths."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.views.overview import Sample

WIDTH, HEIGHT = 720, 120
"""The coordinates of a chart. The page scales it to its width."""

SPAN: Seconds = 6 * 3600.0

BANDS: tuple[tuple[str, Callable[[Sample], int]], ...] = (
    ("working", lambda one: one.working),
    ("ready", lambda one: one.ready),
    ("booting", lambda one: one.booting),
    ("ending", lambda one: one.ending),
)
"""The machines of a chart, the lowest band first."""


@dataclass(frozen=True, slots=True)
class Band:
    """One area: its name, its SVG path, and its value now."""

    name: str
    path: str
    now: int


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of the last hours. `top` is the value at its upper edge, `peak` the largest value in it."""

    bands: tuple[Band, ...]
    top: int
    peak: int
    begin: Instant
    end: Instant


def machines_chart(samples: Sequence[Sample]) -> Chart:
    """Return the machines by state over the last six hours, stacked."""
    return _chart(samples, BANDS)


def waiting_chart(samples: Sequence[Sample]) -> Chart:
    """Return the waiting jobs over the last six hours."""
    return _chart(samples, (("waiting", lambda one: one.waiting),))


def _chart(
    samples: Sequence[Sample], bands: Sequence[tuple[str, Callable[[Sample], int]]]
) -> Chart:
    end = samples[-1].at if samples else 0.0
    begin = end - SPAN
    stacks = [_stacked(one, bands) for one in samples]
    peak = max((stack[-1] for stack in stacks), default=0)
    top = _round_up(peak)
    places = [(max(0.0, one.at - begin) / SPAN) * WIDTH for one in samples]
    made = []
    for index, (name, value) in enumerate(bands):
        lower = [_y(stack[index], top) for stack in stacks]
        upper = [_y(stack[index + 1], top) for stack in stacks]
        made.append(Band(name, _area(places, lower, upper), value(samples[-1]) if samples else 0))
    return Chart(tuple(made), top, peak, begin, end)


def _stacked(one: Sample, bands: Sequence[tuple[str, Callable[[Sample], int]]]) -> list[int]:
    levels = [0]
    for _, value in bands:
        levels.append(levels[-1] + value(one))
    return levels


def _area(places: Sequence[float], lower: Sequence[float], upper: Sequence[float]) -> str:
    """Return the path between two step functions: a value holds until the next sample."""
    if not places:
        return ""
    forward = _steps(places, upper)
    backward = list(reversed(_steps(places, lower)))
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in (*forward, *backward)) + "Z"


def _steps(places: Sequence[float], values: Sequence[float]) -> list[tuple[float, float]]:
    points = [(places[0], values[0])]
    for index in range(1, len(places)):
        if values[index] != values[index - 1]:
            points.append((places[index], values[index - 1]))
            points.append((places[index], values[index]))
    points.append((places[-1], values[-1]))
    return points


def _y(value: int, top: int) -> float:
    return HEIGHT - HEIGHT * value / top


def _round_up(value: int) -> int:
    """Return the smallest of 2, 3, 4, 6, 8, 10, 20, 30, 40, 60, ... that is at least `value`."""
    step = 1
    while step * 10 < value:
        step *= 10
    return next(step * factor for factor in _TOPS if step * factor >= value)


_TOPS = (2, 3, 4, 6, 8, 10)
