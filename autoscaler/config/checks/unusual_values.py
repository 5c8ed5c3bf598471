"""Finds values of fleet.yaml that are allowed but probably not intended: warnings, not errors."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from autoscaler.config.configuration import Configuration, run_checks
from autoscaler.config.problems import KeyPath, Problem, show
from autoscaler.config.settings.sku import SkuSettings
from autoscaler.model.identifiers import Seconds
from autoscaler.model.jobs.labels import label_set
from autoscaler.model.wait_objectives import objective_of
from autoscaler.model.wording import counted

UNTIMED_JOB: Seconds = 6 * 3600.0
"""GitHub's default for `timeout-minutes` (docs.github.com, workflow syntax). A job that sets it may run
for five days on a self-hosted runner (Actions limits)."""

SHORTEST_BOOT: Seconds = 60.0
"""EC2's Linux images need about this time to boot and start the agent."""

SHORTEST_SILENCE: Seconds = 60.0
"""A ready agent sends one request every 50 s."""

SHORTEST_AGE: Seconds = 600.0
"""With a smaller maximum age, ready machines are replaced all day."""


HOSTED = re.compile(
    r"(ubuntu|windows|macos)-(latest|slim|[0-9]+(\.[0-9]+)?)(-(arm|intel|large|xlarge|vs[0-9]+))?"
)
"""Labels of GitHub-hosted runners (docs.github.com, "GitHub-hosted runners reference")."""

STOCK_OWNERS = frozenset({"amazon", "aws-marketplace"})

STOCK_WHAT = "is a stock image, without GitHub's runner in /opt/actions-runner"
STOCK_FIX = "write stock: ubuntu-24.04, or build an image of your own (docs/images.md)"


def find_warnings(configuration: Configuration) -> Iterator[Problem]:
    """Return the warnings."""
    checks = (
        _shared_labels,
        _unlabelled,
        _scopes_without_match,
        _access_outside_scopes,
        _objectives_without_sku,
        _minimums,
        _stock_images,
        _hosted_labels,
    )
    yield from run_checks(checks, configuration)
    for name, sku in configuration.skus():
        for time in _TIMES:
            yield from run_checks((_short_time,), configuration, name, sku, time)


def own_labels(name: str, sku: SkuSettings) -> frozenset[str]:
    """Return a SKU's name and extra labels in lower case, because GitHub ignores case."""
    return label_set((name, *sku.labels))


def _shared_labels(configuration: Configuration) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for name, sku in configuration.skus():
        for label in sorted(label_set((name, *getattr(sku, "labels", ())))):
            if label not in first:
                first[label] = name
                continue
            what = f"{show(first[label])} also has the label {show(label)}"
            fix = f"jobs that both serve go to {show(first[label])}, the first one in the file; reorder them"
            yield configuration.warning(("skus", name), what, f"{fix} or drop the label")


def _hosted_labels(configuration: Configuration) -> Iterator[Problem]:
    """Warn of labels of GitHub's own runners, which GitHub Enterprise Server does not have."""
    host = urlsplit(configuration.settings.github.api_url).hostname or ""
    if not host.endswith(("github.com", ".ghe.com")):
        return
    for name, sku in configuration.skus():
        labels = enumerate(getattr(sku, "labels", ()))
        places = [
            (("skus", name), name),
            *((("skus", name, "labels", at), one) for at, one in labels),
        ]
        for path, label in places:
            if HOSTED.fullmatch(label.lower()):
                what = (
                    f"{show(label)} is a label of GitHub's own runners: each job with it starts a "
                    "machine, and GitHub's runners may take the job"
                )
                yield configuration.warning(path, what, "choose a label of your own")


def _unlabelled(configuration: Configuration) -> Iterator[Problem]:
    unlabelled = [name for name, sku in configuration.skus() if getattr(sku, "unlabelled", False)]
    for name in unlabelled[1:]:
        what = f"{show(unlabelled[0])} is also unlabelled, and gets the jobs that both serve"
        yield configuration.warning(("skus", name, "unlabelled"), what, "keep it for one of them")


def _scopes_without_match(configuration: Configuration) -> Iterator[Problem]:
    for index, scope in enumerate(configuration.settings.github.scopes):
        owner: str = getattr(scope, "org", None) or ""
        for position, glob in enumerate(getattr(scope, "repositories", ()) if owner else ()):
            if not fnmatchcase(owner.lower(), glob.lower().partition("/")[0]):
                path = ("github", "scopes", index, "repositories", position)
                what = f"{show(glob)} matches no repository of {show(owner)}"
                yield configuration.warning(path, what, "correct it, or remove it")


def _access_outside_scopes(configuration: Configuration) -> Iterator[Problem]:
    owners = {
        (scope.org or scope.repo or "").partition("/")[0].lower()
        for scope in configuration.settings.github.scopes
    }
    matches: dict[str, bool] = {}
    for name, sku in configuration.skus():
        access = getattr(sku, "access", None)
        for index, glob in enumerate(getattr(access, "repositories", ())):
            pattern = glob.lower().partition("/")[0]
            if pattern not in matches:
                matches[pattern] = any(fnmatchcase(owner, pattern) for owner in owners)
            if not matches[pattern]:
                path = ("skus", name, "access", "repositories", index)
                what = f"{show(glob)} matches nothing in github.scopes"
                yield configuration.warning(path, what, "add a scope, or correct the glob")


def _objectives_without_sku(configuration: Configuration) -> Iterator[Problem]:
    names = [name for name, _ in configuration.skus()]
    for index, objective in enumerate(configuration.settings.metrics.wait_objectives):
        if not any(objective_of((objective,), name) for name in names):
            path = ("metrics", "wait_objectives", index)
            what = f"{show(objective.skus)} matches no SKU"
            yield configuration.warning(path, what, "correct it, or remove it")


def _minimums(configuration: Configuration) -> Iterator[Problem]:
    """Warn if all SKUs' `idle.min` exceed `limits.machines`, or do so with the minimum of one schedule."""
    most = configuration.settings.limits.machines
    if most is None:
        return
    least = sum(sku.idle.minimum for _, sku in configuration.skus())
    if least > most:
        what = f"is less than the sum of the SKUs' idle.min, {least}"
        yield configuration.warning(("limits", "machines"), what, "raise it, or lower idle.min")
        return
    for name, sku in configuration.skus():
        for index, entry in enumerate(sku.idle.schedule):
            wanted = least - sku.idle.minimum + max(entry.minimum, sku.idle.minimum)
            if wanted > most:
                what = f"adds up to {wanted} machines with every idle.min, and limits.machines is {most}"
                path = ("skus", name, "idle", "schedule", index, "min")
                yield configuration.warning(path, what, "lower it, or raise limits.machines")


def _stock_images(configuration: Configuration) -> Iterator[Problem]:
    """Warn of images from AWS or a vendor, which do not contain GitHub's runner, each at its first SKU."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for name, sku in configuration.skus():
        for image, path in _images(sku):
            found.setdefault(image, []).append(("skus", name, *path))
    for image, paths in found.items():
        others = f" (of {counted(len(paths) - 1, 'more SKU')} too)" if len(paths) > 1 else ""
        yield configuration.warning(paths[0], f"{show(image)} {STOCK_WHAT}{others}", STOCK_FIX)


def _images(sku: SkuSettings) -> Iterator[tuple[str, tuple[str, ...]]]:
    image = getattr(sku, "image", None)
    canary = getattr(image, "canary", None)
    for one, path in ((image, ("image",)), (canary, ("image", "canary"))):
        name = getattr(one, "name", None)
        if name is not None and getattr(one, "owner", None) in STOCK_OWNERS:
            yield name, path


_TIMES: tuple[tuple[KeyPath, Seconds, str, str], ...] = (
    (
        ("idle", "max_age"),
        SHORTEST_AGE,
        "replaces ready machines again and again",
        "write 10m or more, or leave it out for 24h",
    ),
    (
        ("deadlines", "boot"),
        SHORTEST_BOOT,
        "terminates machines during a normal boot",
        "write 1m or more, or leave it out",
    ),
    (
        ("deadlines", "ready_silence"),
        SHORTEST_SILENCE,
        "terminates healthy ready machines, which send a request every 50 s",
        "write 1m or more, or leave it out for 5m",
    ),
    (
        ("lifetime",),
        UNTIMED_JOB,
        "terminates machines with running jobs: a job without timeout-minutes may run for 6h",
        "write more than the longest job takes, or leave it out for 24h",
    ),
)
"""The key of a time below a SKU, the shortest one that is no warning, and the warning."""


def _short_time(
    configuration: Configuration,
    name: str,
    sku: SkuSettings,
    time: tuple[KeyPath, Seconds, str, str],
) -> Iterator[Problem]:
    keys, least, what, fix = time
    given: object = sku
    for key in keys:
        given = getattr(given, str(key))
    if isinstance(given, float) and given < least:
        yield configuration.warning(("skus", name, *keys), what, fix)
