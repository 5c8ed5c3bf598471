"""Files with very many SKUs or schedules: refused at once, or checked in bounded time."""

import pytest

from autoscaler.config.checks.sizes import (
    BOUNDS,
    MAX_SCHEDULES,
    MAX_SCOPES,
    MAX_SKUS,
    Bound,
    check_sizes,
)
from autoscaler.config.problems import ConfigurationError
from autoscaler.config.reading.document import parse
from tests.config.fleet_file import MINIMAL, Folder

SKU = (
    "  {name}:\n    on: [{{provider: east, instance_types: [g5.xlarge]}}]\n    image: {{name: i}}\n"
)


def skus(count: int) -> str:
    return MINIMAL + "".join(SKU.format(name=f"s{number}") for number in range(count - 1))


def schedules(count: int) -> str:
    entry = '{cron: "0 7 * * *", min: 1}'
    return f"{MINIMAL}    idle: {{schedule: [{', '.join([entry] * count)}]}}\n"


def test_the_largest_file_is_accepted(folder: Folder) -> None:
    assert len(folder.load(skus(MAX_SKUS)).settings.skus) == MAX_SKUS
    assert len(folder.load(schedules(MAX_SCHEDULES)).settings.skus["gpu"].idle.schedule) == 300


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (skus(MAX_SKUS + 1), "has 501 SKUs, and 500 are allowed"),
        (
            schedules(MAX_SCHEDULES + 1),
            "has 301 entries of idle.schedule in all SKUs, and 300 are allowed",
        ),
    ],
)
def test_a_larger_file_is_refused_with_the_number_and_the_bound(
    folder: Folder, text: str, what: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        folder.load(text)
    problem = caught.value.problems[0]
    assert (problem.line, problem.key, problem.what) == (13, "skus", what)


LISTS = {
    "on": ("on", "{provider: east, instance_types: [g5.xlarge]}", "on"),
    "on.instance_types": ("on", "{provider: east, instance_types: [TYPES]}", "on"),
    "labels": ("labels", "gpu-label", "labels"),
    "access.repositories": ("access: {repositories", '"acme/*"', "access.repositories"),
    "access.branches": ("access: {branches", "main", "access.branches"),
    "idle.schedule": ("idle: {schedule", '{cron: "0 7 * * *", min: 1}', "idle.schedule"),
}
"""By the key of a bound: how its list begins in a SKU, an entry of it, and the key of its error."""


def aliased(key: str, *counts: int) -> str:
    """Return a file whose SKUs have lists of these lengths, most of whose entries are aliases."""
    begin, entry, _ = LISTS[key]
    lines = []
    for number, count in enumerate(counts):
        first = entry if number else f"&one {entry}"
        if "TYPES" in entry:
            few = ["&type g5.xlarge" if not number else "g5.xlarge", *["*type"] * (count - 1)]
            entries = [entry.replace("TYPES", ", ".join(few))]
        else:
            entries = [first, *["*one"] * (count - 1)]
        end = "}" if "{" in begin else ""
        on = "" if begin == "on" else "on: [{provider: east, instance_types: [g5.xlarge]}], "
        lines.append(
            f"  s{number}: {{{on}{begin}: [{', '.join(entries)}]{end}, image: {{name: i}}}}\n"
        )
    return MINIMAL[: MINIMAL.index("  gpu:")] + "".join(lines)


def refused(folder: Folder, text: str) -> list[tuple[str, str]]:
    with pytest.raises(ConfigurationError) as caught:
        folder.load(text)
    assert all(one.fix == "remove some of them" for one in caught.value.problems)
    return [(one.key, one.what) for one in caught.value.problems]


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.key)
def test_lists_of_a_sku_are_bounded_with_their_aliases(folder: Folder, bound: Bound) -> None:
    what = f"has {bound.a_sku + 1} entries of {bound.key}, and {bound.a_sku} are allowed in a SKU"
    found = refused(folder, aliased(bound.key, 1, bound.a_sku + 1))
    assert (f"skus.s1.{LISTS[bound.key][2]}", what) in found


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.key)
def test_lists_of_all_skus_are_bounded_together(folder: Folder, bound: Bound) -> None:
    most = bound.altogether
    full = [bound.a_sku] * (most // bound.a_sku) + [most % bound.a_sku] * bool(most % bound.a_sku)
    what = f"has {most + 1} entries of {bound.key} in all SKUs, and {most} are allowed"
    assert refused(folder, aliased(bound.key, *full, 1)) == [("skus", what)]
    exactly = parse(aliased(bound.key, *full).encode(), "fleet.yaml")
    assert list(check_sizes(exactly)) == []


def test_scopes_are_bounded(folder: Folder) -> None:
    scopes = ", ".join(f"{{org: o{number}}}" for number in range(MAX_SCOPES + 1))
    problem = folder.problem(MINIMAL.replace("{org: acme}", scopes))
    assert (problem.key, problem.what) == (
        "github.scopes",
        "has 101 scopes, and 100 are allowed",
    )
