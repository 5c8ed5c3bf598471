"""Which runner groups admit more than the `access` of the fleet's SKUs."""

from dataclasses import replace

import pytest

from autoscaler.model.catalogue import Access, Scope
from autoscaler.model.jobs.runner_group_excess import Excess, Finding, RunnerGroup, excesses
from tests.planner.fleets import catalogue, sku

KNOWN = ("acme/widgets", "acme/gadgets", "acme/secret")
OUTSIDE = Excess.OUTSIDE_ACCESS


def group(*repositories: str, every: bool = False, public: bool = False) -> RunnerGroup:
    """Return a runner group of these repositories, or of all repositories."""
    chosen = None if every else repositories
    visibility = "all" if every else "selected"
    return RunnerGroup(visibility, public, restricted_to_workflows=False, repositories=chosen)


@pytest.mark.case(
    "a runner group admits public repositories, or more than any `access` does",
    topic="GitHub's events",
    source="GitHub: secure use; GitHub: runner groups",
)
@pytest.mark.parametrize(
    ("access", "shown", "found"),
    [
        (("*",), group(every=True), ()),
        (("acme/*",), group(every=True), ()),
        (("ACME/*",), group("Acme/Widgets"), ()),
        (("acme/widgets",), group("acme/widgets"), ()),
        (("acme/widgets",), group(), ()),
        (
            ("acme/widgets",),
            group("acme/widgets", "acme/secret"),
            (Finding(OUTSIDE, ("acme/secret",)),),
        ),
        (
            ("acme/widgets",),
            group(every=True),
            (Finding(OUTSIDE, ("acme/gadgets", "acme/secret")),),
        ),
        (KNOWN, group(every=True), (Finding(OUTSIDE),)),
        (("*",), group(every=True, public=True), (Finding(Excess.PUBLIC_REPOSITORIES),)),
        (
            ("acme/w*",),
            group("acme/secret", public=True),
            (Finding(Excess.PUBLIC_REPOSITORIES), Finding(OUTSIDE, ("acme/secret",))),
        ),
    ],
)
def test_runner_groups_that_are_too_wide_are_found(
    access: tuple[str, ...], shown: RunnerGroup, found: tuple[Finding, ...]
) -> None:
    """A group of all repositories also admits future ones."""
    known = catalogue(replace(sku(), access=Access(access, forks=True)))
    assert excesses(known, known.scopes[0], shown, KNOWN) == found


def test_a_runner_group_may_admit_what_any_sku_or_the_scope_admits() -> None:
    known = catalogue(
        replace(sku("gpu"), access=Access(("acme/widgets",), forks=True)),
        replace(sku("cpu"), access=Access(("acme/gadgets",), forks=True)),
    )
    both = group("acme/widgets", "acme/gadgets")
    assert excesses(known, known.scopes[0], both, KNOWN) == ()
    narrow = replace(known, scopes=(Scope("acme", None, repositories=("acme/widgets",)),))
    assert excesses(narrow, narrow.scopes[0], both, KNOWN) == (Finding(OUTSIDE, ("acme/gadgets",)),)


def test_a_runner_group_that_admits_a_repository_of_another_groups_scope_is_too_wide() -> None:
    scopes = (
        Scope("acme", None, repositories=("acme/w*",), runner_group="A"),
        Scope("acme", None, repositories=("acme/g*",), runner_group="B"),
    )
    known = replace(
        catalogue(replace(sku(), access=Access(("acme/*",), forks=True))), scopes=scopes
    )
    shown = group("acme/widgets", "acme/gadgets")
    assert excesses(known, scopes[0], shown, KNOWN) == (Finding(OUTSIDE, ("acme/gadgets",)),)
    assert excesses(known, scopes[1], shown, KNOWN) == (Finding(OUTSIDE, ("acme/widgets",)),)


@pytest.mark.parametrize("pattern", ["acme/a*", "acme/*e", "acme/1*"])
def test_a_group_of_all_repositories_is_too_wide_for_a_pattern_that_covers_some(
    pattern: str,
) -> None:
    known = catalogue(replace(sku(), access=Access((pattern,), forks=True)))
    assert excesses(known, known.scopes[0], group(every=True), ()) == (Finding(OUTSIDE),)
