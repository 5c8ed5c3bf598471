"""How soon jobs are to start: the objectives that alerts and the console measure the fleet against. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

WAIT_BUCKETS = (5, 10, 20, 30, 60, 90, 120, 300, 600, 1800, 3600, 7200, 21600)
"""Seconds. A job starts on a ready machine in seconds, on a new one in minutes, without capacity in hours."""

OBJECTIVE_FORM = "NAME=SKUS:SECONDS:TARGET"


class UnusableObjectiveError(ValueError):
    """An objective cannot be used. The text says which values can."""


_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class WaitObjective:
    """Of the jobs of the SKUs that match, the share `target` starts within `seconds` after it was queued.

    `name` names the class of SKUs in labels. `skus` is a regular expression for the whole name of a SKU (RE2).
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
    try:
        re.compile(skus)
        return WaitObjective(name, skus, int(seconds), float(target))
    except re.error as error:
        raise UnusableObjectiveError(f"{skus!r} is no regular expression: {error}") from None
    except UnusableObjectiveError:
        raise
    except ValueError:
        raise UnusableObjectiveError(f"{text!r} is not {OBJECTIVE_FORM}") from None


def objective_of(objectives: Iterable[WaitObjective], sku: str) -> WaitObjective | None:
    """Return the first objective that matches a SKU, or None if there is none."""
    return next((one for one in objectives if re.fullmatch(one.skus, sku)), None)
