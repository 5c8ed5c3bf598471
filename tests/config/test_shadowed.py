"""A SKU that never gets a job, because SKUs above it get all of its jobs, is an error."""

from collections.abc import Iterator
from itertools import combinations, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.config.checks.shadowed import check_shadowed
from autoscaler.config.configuration import Configuration
from autoscaler.config.problems import Problem
from autoscaler.config.reading.document import parse
from autoscaler.config.reading.validation import validate
from autoscaler.config.structure import settings_type
from autoscaler.model.catalogue import Access, Architecture, OperatingSystem, Sku
from autoscaler.model.identifiers import SkuName
from autoscaler.model.jobs.access_rules import rule_against
from autoscaler.model.jobs.demand import serves
from autoscaler.model.jobs.job import RunOrigin
from autoscaler.providers.registry import provider_kinds
from tests.config.fleet_file import MINIMAL, Folder

ON = MINIMAL[MINIMAL.index("    on: [{") :]
REPOSITORIES = ("acme/one", "acme/two", "acme/twofold")
ORIGINS = [
    RunOrigin(fork, public, branch)
    for fork, public, branch in product(
        (False, True), (False, True), (None, "main", "mine", "release/1")
    )
    if branch is None or not fork
]


def two_skus(first: str, second: str) -> str:
    """MINIMAL with its SKU `gpu`, and a SKU `other` below it."""
    return f"{MINIMAL}{first}  other:\n{ON}{second}"


@pytest.mark.case(
    "a SKU that no job can reach, because a SKU above it has all of its labels: an error",
    topic="Operators' files",
    source="GitHub: labels",
)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("    labels: [other]\n", ""),
        ("    labels: [OTHER, fast]\n", "    labels: [fast]\n"),
        ("    labels: [other]\n", "    access: {repositories: [acme/one, acme/two-*]}\n"),
        ("    labels: [other]\n    access: {repositories: [acme/*]}\n", ""),
        ("    labels: [other]\n    unlabelled: true\n", "    unlabelled: true\n"),
    ],
)
def test_a_sku_whose_jobs_all_go_to_a_sku_above_is_an_error(
    folder: Folder, first: str, second: str
) -> None:
    problem = folder.problem(two_skus(first, second))
    assert problem.key == "skus.other"
    assert problem.what == 'gets no job: "gpu" (line 14) comes first and has all of its labels'
    assert problem.fix == 'move it above "gpu", or remove its labels from "gpu"'


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("    labels: [other]\n", "    labels: [fast]\n"),
        ("    labels: [other]\n", "    os: windows\n"),
        ("    labels: [other]\n", "    unlabelled: true\n"),
        ("    labels: [other]\n    access: {repositories: [acme/one]}\n", ""),
        (
            "    labels: [other]\n    access: {repositories: [acme/?]}\n",
            "    access: {repositories: [acme/*]}\n",
        ),
        ("    labels: [gpus]\n", ""),
        ("    labels: [other]\n", "    access: {forks: true}\n"),
        ("    labels: [other]\n    access: {public_repositories: false}\n", ""),
        ("    labels: [other]\n    access: {branches: [main]}\n", ""),
        (
            "    labels: [other]\n    access: {branches: [main]}\n",
            "    access: {branches: [main, topic]}\n",
        ),
    ],
)
def test_a_sku_that_gets_some_jobs_is_accepted(folder: Folder, first: str, second: str) -> None:
    assert list(folder.load(two_skus(first, second)).settings.skus) == ["gpu", "other"]


def test_a_shadowed_sku_is_reported_beside_another_error(folder: Folder) -> None:
    text = two_skus("    labels: [other]\n", "    lifetime: long\n")
    assert [one.key for one in folder.problems(text)] == ["skus.other", "skus.other.lifetime"]


def sku(name: str) -> st.SearchStrategy[Sku]:
    """Return a SKU with some of three labels, which can be names of other SKUs."""
    return st.builds(
        lambda labels, os, unlabelled, globs, forks, public, branches: Sku(
            SkuName(name),
            frozenset({name, *labels}),
            os,
            Architecture.X64,
            (),
            unlabelled=unlabelled,
            access=Access(
                tuple(globs), forks=forks, public_repositories=public, branches=tuple(branches)
            ),
        ),
        st.sets(st.sampled_from(["a", "b", "c"])),
        st.sampled_from([OperatingSystem.LINUX, OperatingSystem.LINUX, OperatingSystem.WINDOWS]),
        st.booleans(),
        st.lists(st.sampled_from(["*", "acme/*", "acme/two*", *REPOSITORIES]), min_size=1),
        st.booleans(),
        st.booleans(),
        st.lists(st.sampled_from(["main", "release/*", "m*"]), max_size=2),
    )


def written(skus: list[Sku]) -> bytes:
    """Return the fleet.yaml of these SKUs."""
    lines = ["github: {scopes: [{org: acme}]}", "skus:"]
    for one in skus:
        labels = ", ".join(sorted(one.labels - {one.name}))
        globs = ", ".join(f'"{glob}"' for glob in one.access.repositories)
        branches = ", ".join(one.access.branches)
        lines.append(
            f"  {one.name}: {{labels: [{labels}], os: {one.os}, "
            f"unlabelled: {str(one.unlabelled).lower()}, "
            f"access: {{repositories: [{globs}], forks: {str(one.access.forks).lower()}, "
            f"public_repositories: {str(one.access.public_repositories).lower()}"
            f"{f', branches: [{branches}]' if branches else ''}}}}}"
        )
    return "\n".join(lines).encode()


def shadowed(skus: list[Sku]) -> Iterator[Problem]:
    """Return the errors of these SKUs."""
    document = parse(written(skus), "f")
    settings, _ = validate(document, settings_type(provider_kinds()))
    return check_shadowed(Configuration(Path("f"), settings, document))


def reached(skus: list[Sku]) -> set[str]:
    """Return the SKUs that get a job with some set of labels from one of three repositories."""
    found: set[str] = set()
    every = sorted({label for one in skus for label in one.offered_labels})
    for count in range(len(every) + 1):
        for labels in combinations(every, count):
            for repository in REPOSITORIES:
                serving = [one for one in skus if serves(one, labels, repository)]
                for origin in ORIGINS:
                    admitting = (one for one in serving if not rule_against(one.access, origin))
                    first = next(admitting, None)
                    found |= {first.name} if first is not None else set()
    return found


@given(st.tuples(sku("a"), sku("b"), sku("c")))
def test_a_shadowed_sku_is_an_error_only_if_no_job_reaches_it(skus: tuple[Sku, ...]) -> None:
    refused = {one.key for one in shadowed([*skus])}
    assert not refused & {f"skus.{name}" for name in reached([*skus])}


@pytest.mark.case(
    "a SKU that no job can reach, because a SKU above it has all of its labels: an error",
    topic="Operators' files",
    source="GitHub: labels",
)
@given(st.tuples(sku("a"), sku("b")))
def test_every_shadowed_sku_without_access_limits_is_found(skus: tuple[Sku, ...]) -> None:
    every = [
        Sku(s.name, s.labels, s.os, s.arch, (), unlabelled=s.unlabelled, access=Access(forks=True))
        for s in skus
    ]
    refused = {one.key for one in shadowed(every)}
    assert refused == {f"skus.{s.name}" for s in every} - {
        f"skus.{name}" for name in reached(every)
    }
