"""How soon jobs are to start: the objectives that alerts measure the fleet against."""

import re
from dataclasses import dataclass

from autoscaler.observability.series import WAIT_BUCKETS


class UnusableAlertError(ValueError):
    """A parameter cannot be used. The text says which values can."""


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
        """Raise UnusableAlertError for a time that is no bucket, and a target outside 0 to 1."""
        if self.seconds not in WAIT_BUCKETS:
            known = ", ".join(map(str, WAIT_BUCKETS))
            raise UnusableAlertError(f"the objective is {self.seconds} s; use one of {known}")
        if not 0.0 < self.target < 1.0:
            raise UnusableAlertError(f"the target is {self.target}; use a share such as 0.999")


def parse_objective(text: str) -> WaitObjective:
    """Return the objective that `NAME=SKUS:SECONDS:TARGET` describes. Raises UnusableAlertError."""
    name, _, rest = text.partition("=")
    skus, seconds, target = ["", "", "", *rest.rsplit(":", 2)][-3:]
    if _NAME.fullmatch(name) is None or not skus:
        raise UnusableAlertError(f"{text!r} is not NAME=SKUS:SECONDS:TARGET")
    try:
        re.compile(skus)
        return WaitObjective(name, skus, int(seconds), float(target))
    except re.error as error:
        raise UnusableAlertError(f"{skus!r} is no regular expression: {error}") from None
    except UnusableAlertError:
        raise
    except ValueError:
        raise UnusableAlertError(f"{text!r} is not NAME=SKUS:SECONDS:TARGET") from None
