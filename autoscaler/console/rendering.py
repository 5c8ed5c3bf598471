"""Fills the templates. Every value is escaped, and a name that a template does not know is an error."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from autoscaler.console.links import GitHubPages
from autoscaler.model.identifiers import Instant
from autoscaler.model.reasons.waiting import in_short
from autoscaler.model.wording import duration, moment, sentence
from autoscaler.views.status import SkuView


@dataclass(frozen=True, slots=True)
class Frame:
    """What every page shows around its content.

    `fleet` is the fleet's name, `viewer` the name of the token with which its reader signed in, `at` the moment
    of its data (Unix seconds).
    """

    fleet: str
    viewer: str
    at: Instant


class Templates:
    """The templates in `console/templates`, compiled once. `assets`: addresses of the static files by name."""

    def __init__(self, github: GitHubPages, assets: Mapping[str, str]) -> None:
        self._environment = Environment(
            loader=PackageLoader("autoscaler.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            duration=duration,
            moment=moment,
            clock=_clock,
            iso=_iso,
            dollars=_dollars,
            share=_share,
            number=_number,
            path=_path,
            words=_words,
            in_short=in_short,
            sentence=sentence,
            sort_by_age=_sort_by_age,
        )
        self._environment.globals.update(github=github, assets=assets, time=_time, due=_due)

    def render(self, name: str, frame: Frame | None = None, **values: Any) -> str:
        """Return the HTML of a page. `frame` is None before the sign-in."""
        return self._environment.get_template(f"{name}.html").render(frame=frame, **values)


def _sort_by_age(skus: Sequence[SkuView]) -> list[SkuView]:
    """Return SKUs by the age of their oldest job, the oldest first. A missing age comes last."""
    return sorted(skus, key=lambda one: one.oldest or 0.0, reverse=True)


def _clock(at: Instant | None) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S}" if at is not None else ""


def _iso(at: Instant | None) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}" if at is not None else ""


def _time(at: Instant | None, now: Instant) -> Markup:
    """Return a `time` element that shows how long ago a moment was, or in how long it comes."""
    if at is None:
        return Markup("")
    text = f"{duration(now - at)} ago" if at <= now else f"in {duration(at - now)}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(_iso(at), moment(at), text)


def _due(at: Instant, now: Instant) -> Markup:
    """Return a `time` element that shows in how long a moment comes: `now` if it has come."""
    text = f"in {duration(at - now)}" if at > now else "now"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(_iso(at), moment(at), text)


def _dollars(amount: float) -> str:
    return f"${amount:,.2f}"


def _share(share: float | None) -> str:
    """Return a share as a percentage that is never rounded up to 100."""
    if share is None:
        return ""
    return "100 %" if share >= 1.0 else f"{int(share * 10_000) / 100:.2f} %"


def _number(value: int) -> str:
    return f"{value:,}"


def _path(name: object) -> str:
    """Return a name as one segment of a path."""
    return quote(str(name), safe="")


def _words(code: str) -> str:
    return code.replace("_", " ")
