"""What a dashboard shows: rows of panels with queries in PromQL, as values."""

from dataclasses import dataclass
from enum import StrEnum


class Unit(StrEnum):
    """How Grafana formats a value. The values are Grafana's IDs of units."""

    COUNT = "short"
    SECONDS = "s"
    SHARE = "percentunit"
    DOLLARS = "currencyUSD"
    BYTES = "bytes"
    EACH_SECOND = "reqps"


class Style(StrEnum):
    """How Grafana draws the series of a panel."""

    LINES = "lines"
    STACKED = "stacked"
    """Areas above each other: the parts of a whole."""
    NUMBER = "number"
    """The present value, large."""
    TABLE = "table"
    """The present values, one row for each series, the largest first."""


@dataclass(frozen=True, slots=True)
class Query:
    """One expression in PromQL. `legend` names its series, with labels as `{{sku}}`."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel. `description` says what a reader learns from it. `width` is in 24ths of the page.

    `red_from` is the value from which a number is red.
    """

    title: str
    description: str
    queries: tuple[Query, ...]
    unit: Unit = Unit.COUNT
    style: Style = Style.LINES
    width: int = 12
    red_from: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Panels below one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard. `by_sku` gives it a list from which a reader chooses SKUs: `$sku` in its queries."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    by_sku: bool = False


def number(
    title: str, description: str, expression: str, unit: Unit = Unit.COUNT, red_from: float = 0.0
) -> Panel:
    """Return a panel with one large number: red from `red_from` on, never if that is 0."""
    return Panel(title, description, (Query(expression),), unit, Style.NUMBER, 4, red_from or None)


def quantiles(metric: str, selector: str, *by: str) -> tuple[Query, ...]:
    """Return queries for the median, the 90th and the 99th percentile of a histogram, by labels."""
    labels = ", ".join(("le", *by))
    names = " ".join(f"{{{{{label}}}}}" for label in by)
    rate = f"sum by ({labels}) (rate({metric}_bucket{selector}[$__rate_interval]))"
    return tuple(
        Query(f"histogram_quantile({share}, {rate})", f"{names} p{share * 100:g}".strip())
        for share in (0.5, 0.9, 0.99)
    )


def rates(metric: str, selector: str, *by: str) -> tuple[Query, ...]:
    """Return a query for the rise of a counter each second, by labels."""
    labels = ", ".join(by)
    names = " ".join(f"{{{{{label}}}}}" for label in by)
    return (Query(f"sum by ({labels}) (rate({metric}{selector}[$__rate_interval]))", names),)


def rises(metric: str, selector: str, *by: str) -> tuple[Query, ...]:
    """Return a query for the rise of a counter in the dashboard's time range, by labels."""
    labels = ", ".join(by)
    names = " ".join(f"{{{{{label}}}}}" for label in by)
    return (Query(f"sum by ({labels}) (increase({metric}{selector}[$__range])) > 0", names),)
