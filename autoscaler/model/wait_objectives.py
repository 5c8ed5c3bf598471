"""How soon jobs are to start: the objectives that alerts and the console measure the fleet against. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from autoscaler.model.identifiers import Instant, Seconds

WAIT_BUCKETS = (5, 10, 20, 30, 60, 90, 120, 300, 600, 1800, 3600, 7200, 21600)
"""Seconds. A job starts on a ready machine in seconds, on a new one in minutes, without capacity in hours."""

OBJECTIVE_FORM = "NAME=SKUS:SECONDS:TARGET"


class UnusableObjectiveError(ValueError):
    """An objective cannot be used. The text says which values can."""


MAX_PATTERN_LENGTH = 200
"""Maximum number of characters of a pattern for names of SKUs."""

MAX_CHOICES = 3
"""Maximum number of groups and `* + ? {}` in one alternative. With each, a failed match takes ten times as
long: 0.3 ms for three and a name of 128 characters."""

MAX_COST = 2 * 10**MAX_CHOICES
"""Maximum cost of a whole pattern: ten to the power of its choices for each alternative."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

_PARTS = re.compile(
    r"(?P<flag>^\(\?i\))"
    r"|(?P<open>\((?:\?:)?(?!\?))"
    r"|(?P<group>\)\??)"
    r"|(?P<or>\|)"
    r"|(?P<repeated>(?:\[\^?(?:[A-Za-z0-9_.-]|\\[dDwWsS._-])+\]|\\[dDwWsS._-]|[A-Za-z0-9_.-])"
    r"(?P<repeat>(?:[*+?]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\})\??)?)"
)
"""What a pattern may consist of: what RE2 (Prometheus) and Python's `re` read alike, and what names contain.

github.com/google/re2/wiki/Syntax. A repeated group is not among it: it can make `re` try for hours.
"""


@dataclass(frozen=True, slots=True)
class WaitObjective:
    """Of the jobs of the SKUs that match, the share `target` starts within `seconds` after it was queued.

    `name` names the class of SKUs in labels. `skus` is a regular expression for the whole name of a SKU,
    of the syntax that `_PARTS` allows: Prometheus reads it as RE2, and the controller with `re`.
    """

    name: str = "all"
    skus: str = ".*"
    seconds: int = 300
    target: float = 0.999

    def __post_init__(self) -> None:
        """Raise UnusableObjectiveError for a time that is no bucket, and a target outside 0 to 1."""
        if self.seconds not in WAIT_BUCKETS:
            known = ", ".join(map(str, WAIT_BUCKETS))
            raise UnusableObjectiveError(f"the objective is {self.seconds} s; use one of {known}")
        if not 0.0 < self.target < 1.0:
            raise UnusableObjectiveError(f"the target is {self.target}; use a share such as 0.999")


DEFAULT_OBJECTIVES = (WaitObjective(),)


def parse_objective(text: str) -> WaitObjective:
    """Return the objective that `NAME=SKUS:SECONDS:TARGET` describes. Raises UnusableObjectiveError."""
    name, _, rest = text.partition("=")
    skus, seconds, target = ["", "", "", *rest.rsplit(":", 2)][-3:]
    if _NAME.fullmatch(name) is None or not skus:
        raise UnusableObjectiveError(f"{text!r} is not {OBJECTIVE_FORM}")
    _check_pattern(skus)
    try:
        return WaitObjective(name, skus, int(seconds), float(target))
    except UnusableObjectiveError:
        raise
    except ValueError:
        raise UnusableObjectiveError(f"{text!r} is not {OBJECTIVE_FORM}") from None


def _check_pattern(skus: str) -> None:
    """Refuse a pattern unless Prometheus and `re` read it alike, and `re` matches quickly.

    Raises: UnusableObjectiveError.
    """
    if len(skus) > MAX_PATTERN_LENGTH:
        what = f"has {len(skus)} characters, and {MAX_PATTERN_LENGTH} are allowed"
        raise UnusableObjectiveError(f"the pattern for SKUs {what}")
    at = depth = choices = cost = 0
    while at < len(skus):
        part = _PARTS.match(skus, at)
        if part is None:
            raise UnusableObjectiveError(
                f"{skus!r} cannot be used from {skus[at:]!r} on: write a regular expression of letters, "
                "digits, _ . - [] | (), \\. \\d \\w, and * + ? {} after one character"
            )
        at = part.end()
        depth += (part["open"] is not None) - (part["group"] is not None)
        choices += part["open"] is not None or part["repeat"] is not None
        if part["or"] is not None and depth == 0:
            cost += 10**choices
            choices = 0
        if choices > MAX_CHOICES:
            what = f"has more than {MAX_CHOICES} groups and * + ? {{}} in one alternative"
            raise UnusableObjectiveError(f"{skus!r} {what}")
    if cost + 10**choices > MAX_COST:
        what = "would take long to match: it has many alternatives with several groups and * + ? {}"
        raise UnusableObjectiveError(f"{skus!r} {what}: write several objectives")
    try:
        re.compile(skus)
    except re.error as error:
        raise UnusableObjectiveError(f"{skus!r} is no regular expression: {error}") from None


@lru_cache(maxsize=1024)
def objective_of(objectives: tuple[WaitObjective, ...], sku: str) -> WaitObjective | None:
    """Return the first objective that matches a SKU, or None if there is none. Matches each SKU once."""
    return next((one for one in objectives if re.fullmatch(one.skus, sku)), None)


RECOVERS_AFTER: Seconds = 300.0
"""Jobs start late no more if none has for so long."""


@dataclass(frozen=True, slots=True)
class Starts:
    """How many jobs started in a time span, and how many of them later than their objective.

    `target` is the share that should start in time. `overdue` jobs have waited for longer than the objective,
    and wait still: they count as late. `late_at` is when the last late job started (Unix seconds), or None.
    """

    started: int = 0
    late: int = 0
    target: float = WaitObjective().target
    overdue: int = 0
    late_at: Instant | None = None

    @property
    def in_time(self) -> float | None:
        """Return the share of jobs that started within the objective; None if no job started or is overdue."""
        every = self.started + self.overdue
        return (self.started - self.late) / every if every else None

    @property
    def meets_target(self) -> bool:
        """Return True if enough jobs started in time, or none started and none is overdue."""
        share = self.in_time
        return share is None or share >= self.target

    def recovered_at(self, now: Instant) -> Instant | None:
        """Return when the last late job started, if no job has been late since, and none is; else None."""
        if self.overdue or self.late_at is None or now - self.late_at < RECOVERS_AFTER:
            return None
        return self.late_at


def with_overdue(
    starts: Mapping[str, Starts],
    overdue: Mapping[str, int],
    objectives: tuple[WaitObjective, ...],
) -> dict[str, Starts]:
    """Return the starts by SKU with the jobs that are overdue now."""
    found = dict(starts)
    for sku, count in overdue.items():
        objective = objective_of(objectives, sku)
        if objective is not None:
            known = found.get(sku, Starts(target=objective.target))
            found[sku] = replace(known, overdue=count)
    return found


def total(starts: Mapping[str, Starts]) -> Starts:
    """Return the starts of all SKUs together. Their target is the mean, weighted by the starts."""
    of = [one for one in starts.values() if one.started or one.overdue]
    if not of:
        return Starts()
    started, overdue = sum(one.started for one in of), sum(one.overdue for one in of)
    target = of[0].target
    if len({one.target for one in of}) > 1:
        weighted = sum(one.target * (one.started + one.overdue) for one in of)
        target = weighted / (started + overdue)
    late_at = max((one.late_at for one in of if one.late_at is not None), default=None)
    return Starts(started, sum(one.late for one in of), target, overdue, late_at)
