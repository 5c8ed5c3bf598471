"""Finds values of fleet.yaml that are allowed but probably not intended: warnings, not errors."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from autoscaler.config.document import Document
from autoscaler.config.problems import Problem, show
from autoscaler.config.schedule_overlaps import largest_minimum
from autoscaler.config.settings import Settings
from autoscaler.config.sku_settings import SkuSettings
from autoscaler.model.identifiers import Seconds
from autoscaler.model.jobs.labels import label_set
from autoscaler.model.wait_objectives import objective_of

UNTIMED_JOB: Seconds = 6 * 3600.0
"""GitHub's default for `timeout-minutes` (docs.github.com, workflow syntax). A job that sets it may run
for five days on a self-hosted runner (Actions limits)."""

SHORTEST_BOOT: Seconds = 60.0
"""EC2's Linux images need about this time to boot and start the agent."""

SHORTEST_SILENCE: Seconds = 60.0
"""A ready agent sends one request every 50 s."""

SHORTEST_AGE: Seconds = 600.0
"""With a smaller maximum age, ready machines are replaced all day."""


def find_warnings(document: Document, settings: Settings) -> Iterator[Problem]:
    """Return the warnings."""
    yield from _shared_labels(document, settings)
    yield from _unlabelled(document, settings)
    yield from _globs_without_match(document, settings)
    yield from _access_outside_scopes(document, settings)
    yield from _objectives_without_sku(document, settings)
    yield from _minimums(document, settings)
    yield from _short_times(document, settings)


def own_labels(name: str, sku: SkuSettings) -> frozenset[str]:
    """Return a SKU's name and extra labels in lower case, because GitHub ignores case."""
    return label_set((name, *sku.labels))


def _shared_labels(document: Document, settings: Settings) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for name, sku in settings.skus.items():
        for label in sorted(own_labels(name, sku)):
            if label not in first:
                first[label] = name
                continue
            what = f"{show(first[label])} also has the label {show(label)}"
            fix = f"jobs that both serve go to {show(first[label])}, the first one in the file; reorder them"
            yield document.problem(("skus", name), what, f"{fix} or drop the label", warning=True)


def _unlabelled(document: Document, settings: Settings) -> Iterator[Problem]:
    unlabelled = [name for name, sku in settings.skus.items() if sku.unlabelled]
    for name in unlabelled[1:]:
        what = f"{show(unlabelled[0])} is also unlabelled, and gets the jobs that both serve"
        path = ("skus", name, "unlabelled")
        yield document.problem(path, what, "keep it for one of them", warning=True)


def _globs_without_match(document: Document, settings: Settings) -> Iterator[Problem]:
    for index, scope in enumerate(settings.github.scopes):
        owner = (scope.org or "").lower()
        for position, glob in enumerate(scope.repositories if owner else ()):
            if fnmatchcase(owner, glob.lower().partition("/")[0]):
                continue
            path = ("github", "scopes", index, "repositories", position)
            what = f"{show(glob)} matches no repository of {show(scope.org)}"
            yield document.problem(path, what, "correct it, or remove it", warning=True)


def _access_outside_scopes(document: Document, settings: Settings) -> Iterator[Problem]:
    owners = {
        (scope.org or scope.repo or "").partition("/")[0].lower()
        for scope in settings.github.scopes
    }
    matches: dict[str, bool] = {}
    for name, sku in settings.skus.items():
        for index, glob in enumerate(sku.access.repositories):
            pattern = glob.lower().partition("/")[0]
            if pattern not in matches:
                matches[pattern] = any(fnmatchcase(owner, pattern) for owner in owners)
            if matches[pattern]:
                continue
            path = ("skus", name, "access", "repositories", index)
            what = f"{show(glob)} matches nothing in github.scopes"
            yield document.problem(path, what, "add a scope, or correct the glob", warning=True)


def _objectives_without_sku(document: Document, settings: Settings) -> Iterator[Problem]:
    for index, objective in enumerate(settings.metrics.wait_objectives):
        if not any(objective_of((objective,), name) for name in settings.skus):
            path = ("metrics", "wait_objectives", index)
            what = f"{show(objective.skus)} matches no SKU"
            yield document.problem(path, what, "correct it, or remove it", warning=True)


def _minimums(document: Document, settings: Settings) -> Iterator[Problem]:
    """Warn if the minimums of all SKUs exceed `limits.machines`, at all times or during a schedule."""
    most = settings.limits.machines
    least = sum(sku.idle.minimum for sku in settings.skus.values())
    if most is None:
        return
    if least > most:
        what = f"is less than the sum of the SKUs' idle.min, {least}"
        yield document.problem(
            ("limits", "machines"), what, "raise it, or lower idle.min", warning=True
        )
        return
    alone = False
    for name, sku in settings.skus.items():
        for index, entry in enumerate(sku.idle.schedule):
            wanted = least - sku.idle.minimum + max(entry.minimum, sku.idle.minimum)
            if wanted > most:
                alone = True
                what = f"adds up to {wanted} machines with every idle.min, and limits.machines is {most}"
                path = ("skus", name, "idle", "schedule", index, "min")
                yield document.problem(
                    path, what, "lower it, or raise limits.machines", warning=True
                )
    if not alone:
        yield from _overlapping_minimums(document, settings, most)


def _overlapping_minimums(document: Document, settings: Settings, most: int) -> Iterator[Problem]:
    """Warn once, at the last of the schedules that together exceed `limits.machines`."""
    idle = {name: sku.idle for name, sku in settings.skus.items()}
    if sum(max([one.minimum, *(s.minimum for s in one.schedule)]) for one in idle.values()) <= most:
        return
    largest = largest_minimum(idle)
    if largest.machines > most:
        *others, (name, index) = largest.entries
        also = ", ".join(f"skus.{other}.idle.schedule[{at}]" for other, at in others)
        what = (
            f"adds up to {largest.machines} machines together with {also}, "
            f"and limits.machines is {most}"
        )
        path = ("skus", name, "idle", "schedule", index, "min")
        fix = "lower one of them, move one, or raise limits.machines"
        yield document.problem(path, what, fix, warning=True)


def _short_times(document: Document, settings: Settings) -> Iterator[Problem]:
    for name, sku in settings.skus.items():
        for key, given, least, what, fix in (
            (
                ("idle", "max_age"),
                sku.idle.max_age,
                SHORTEST_AGE,
                "replaces ready machines again and again",
                "write 10m or more, or leave it out for 24h",
            ),
            (
                ("deadlines", "boot"),
                sku.deadlines.boot,
                SHORTEST_BOOT,
                "terminates machines during a normal boot",
                "write 1m or more, or leave it out",
            ),
            (
                ("deadlines", "ready_silence"),
                sku.deadlines.ready_silence,
                SHORTEST_SILENCE,
                "terminates healthy ready machines, which send a request every 50 s",
                "write 1m or more, or leave it out for 5m",
            ),
            (
                ("lifetime",),
                sku.lifetime,
                UNTIMED_JOB,
                "terminates machines with running jobs: a job without timeout-minutes may run for 6h",
                "write more than the longest job takes, or leave it out for 24h",
            ),
        ):
            if given is not None and given < least:
                yield document.problem(("skus", name, *key), what, fix, warning=True)
