"""Checks of what a fleet needs around it: what was found, why it matters, and the command that mends it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What a check found.

    fine     in order
    wrong    something must be changed
    unknown  the question got no usable answer
    skipped  the question does not apply to this fleet, or not yet
    """

    FINE = "fine"
    WRONG = "wrong"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `why` says what happens if it stays as it is, and `fix` is a command or a page."""

    name: str
    outcome: Outcome
    what: str
    why: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Examination:
    """Checks that need the same answers. `run` asks and judges; an error of it leaves all of them unknown.

    `group` is the heading under which its checks are shown, and `name` says what it is about.
    """

    group: str
    name: str
    run: Callable[[], Awaitable[Sequence[Check]]]


def fine(name: str, what: str) -> Check:
    """Return a check that found everything in order."""
    return Check(name, Outcome.FINE, what)


def wrong(name: str, what: str, why: str, fix: str) -> Check:
    """Return a check that found something to mend."""
    return Check(name, Outcome.WRONG, what, why, fix)


def unknown(name: str, what: str, fix: str = "") -> Check:
    """Return a check whose question got no usable answer."""
    return Check(name, Outcome.UNKNOWN, what, fix=fix)


def skipped(name: str, what: str) -> Check:
    """Return a check that does not apply."""
    return Check(name, Outcome.SKIPPED, what)
