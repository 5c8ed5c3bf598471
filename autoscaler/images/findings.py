"""Finds what is missing in versions.yaml, and what gets too old. Pure: the day is an argument."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta

from autoscaler.config.problems import KeyPath
from autoscaler.images.entries import EndOfLife, File, Read, Runner, Versions, children, numbers

OLDEST_RUNNER = "2.329.0"
"""The oldest runner that GitHub registers (github.blog, changelog of 2026-02-05 and 2026-06-12)."""
RUNNER_GRACE = timedelta(days=30)
"""GitHub gives a runner no jobs this long after the next release (GitHub, self-hosted runners reference)."""
RUNNER_NOTICE = timedelta(days=14)
"""How long before the end of that time `check` warns: two weekly builds of images."""
END_OF_LIFE_NOTICE = timedelta(days=90)
"""How long before an end of life `check` warns."""
UNASKED = date.min
"""Instead of GitHub's day for a runner version: GitHub was not asked."""

_RELEASES = "https://github.com/actions/runner/releases"
_REBUILD = "take the newest release, and build the images again"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to do about versions.yaml. A warning is about a day that may still be to come."""

    path: KeyPath
    what: str
    fix: str
    warning: bool = False


def find(versions: Versions, today: date, runner_end: date | None = UNASKED) -> tuple[Finding, ...]:
    """Return all findings: missing values, the runner's end, and ends of life.

    `runner_end` is GitHub's day for the runner's version, or None if GitHub names none. If GitHub was not
    asked, its documented rule counts: RUNNER_GRACE after the next release.
    """
    return (
        *nulls(versions),
        *runner_findings(versions.runner, today, runner_end),
        *_ends(versions, (), today),
    )


def missing_base_images(
    versions: Versions, exists: Callable[[str, str], bool]
) -> Iterator[Finding]:
    """Find each base image that EC2 does not show. `exists` takes the name and the owner of an AMI."""
    for entry, image in versions.machine_images.items():
        for architecture, name in image.names.items():
            if name is not None and not exists(name, image.owner):
                what = f"EC2 does not show {name} of {image.owner}: no build can start from it"
                fix = f"take a newer image, see {image.source}"
                yield Finding(("machine_images", entry, "names", architecture.value), what, fix)


def nulls(value: object, path: KeyPath = (), source: str = "") -> Iterator[Finding]:
    """Find each explicit null. `source` is the page of the section around it."""
    if isinstance(value, Read | EndOfLife):
        source = value.source
    if isinstance(value, File) and value.url is not None:
        source = value.url
    for key, inner in children(value).items():
        if inner is None:
            what = "is null: it was not read yet, and no build may use it"
            yield Finding((*path, key), what, f"read it at {source}, and write it here")
        else:
            yield from nulls(inner, (*path, key), source)


def runner_findings(runner: Runner, today: date, end: date | None = UNASKED) -> Iterator[Finding]:
    """Find whether GitHub soon gives the runner no jobs (see `find`)."""
    if numbers(runner.version) < numbers(OLDEST_RUNNER):
        what = f"{runner.version} is older than {OLDEST_RUNNER}, the oldest that GitHub registers"
        yield Finding(("runner", "version"), what, f"take the newest release of {_RELEASES}")
        return
    # A day later: `today` is in UTC, and the writer's day may have begun before it.
    if runner.newest_on > today + timedelta(days=1):
        what = f"{runner.newest_on} is still to come, and would silence the warning until then"
        fix = f"write the day on which you looked at {_RELEASES}"
        yield Finding(("runner", "newest_on"), what, fix)
        return
    if end != UNASKED:
        if end is not None and today >= end - RUNNER_NOTICE:
            what = f"GitHub refuses {runner.version} from {end} on, as its API says"
            yield Finding(("runner", "version"), what, _REBUILD, warning=today < end)
        return
    following = runner.next
    refused = (runner.newest_on if following is None else following.released) + RUNNER_GRACE
    if today < refused - RUNNER_NOTICE:
        return
    if following is not None:
        what = (
            f"GitHub gives {runner.version} no jobs from {refused} on, {RUNNER_GRACE.days} days "
            f"after the release of {following.version}"
        )
        yield Finding(("runner", "version"), what, _REBUILD, warning=today < refused)
        return
    what = (
        f"{runner.version} was the newest release on {runner.newest_on}; if there is another since "
        f"then, GitHub gives {runner.version} no jobs from {refused} on, or later"
    )
    fix = f"look at {_RELEASES}: write today's date here, or take the newest release"
    yield Finding(("runner", "newest_on"), what, fix, warning=True)


def _ends(value: object, path: KeyPath, today: date) -> Iterator[Finding]:
    if isinstance(value, EndOfLife):
        yield from _end(value, (*path, "date"), today)
    for key, inner in children(value).items():
        yield from _ends(inner, (*path, key), today)


def _end(end: EndOfLife, path: KeyPath, today: date) -> Iterator[Finding]:
    if end.date is None or today < end.date - END_OF_LIFE_NOTICE:
        return
    days = (end.date - today).days
    fix = f"change to one that is supported longer, see {end.source}"
    if days < 0:
        yield Finding(path, f"its end of life was on {end.date}", fix)
    else:
        what = f"its end of life is on {end.date}, in {days} day{'' if days == 1 else 's'}"
        yield Finding(path, what, fix, warning=True)
