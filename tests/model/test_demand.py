"""Demand classes: scopes first, then the SKUs whose labels and access match."""

import dataclasses

import pytest

from autoscaler.model.catalogue import Access, Catalogue, Scope, Sku
from autoscaler.model.identifiers import SkuName
from autoscaler.model.jobs.demand import DemandClass, classify, normalise_labels, scope_of, serves
from tests.planner.fleets import catalogue, sku

REPO = "acme/widgets"


def with_scopes(*scopes: Scope, skus: tuple[Sku, ...] = ()) -> Catalogue:
    return dataclasses.replace(catalogue(*skus), scopes=scopes)


def skus_for(*labels: str, of: tuple[Sku, ...], repository: str = REPO) -> tuple[str, ...]:
    found = classify(catalogue(*of), repository, labels)
    return found.skus if found is not None else ()


def test_labels_are_compared_without_regard_to_case_order_and_repeats() -> None:
    assert normalise_labels(["Linux", "GPU", "linux"]) == ("gpu", "linux")


def test_a_demand_class_has_scope_group_labels_and_the_skus_in_configured_order() -> None:
    of = (sku("zeta", labels=("shared",)), sku("alpha", labels=("shared",)))
    assert classify(catalogue(*of), REPO, ["Shared", "SELF-HOSTED"]) == DemandClass(
        "org:acme", "Default", ("self-hosted", "shared"), (SkuName("zeta"), SkuName("alpha"))
    )


@pytest.mark.case(
    "labels of the operating system or processor alone select no SKU",
    topic="GitHub's events",
    source="GitHub: labels",
)
@pytest.mark.parametrize(
    ("labels", "ours"),
    [
        (("gpu",), True),
        (("extra",), True),
        (("gpu", "extra"), True),
        (("GPU", "Self-Hosted", "Linux", "X64"), True),
        (("self-hosted", "linux", "x64"), False),
        (("gpu", "windows"), False),
        (("gpu", "arm64"), False),
        (("gpu", "unknown"), False),
        ((), False),
    ],
)
def test_a_sku_serves_a_job_that_has_one_of_its_own_labels(
    labels: tuple[str, ...], ours: bool
) -> None:
    assert bool(skus_for(*labels, of=(sku("gpu", labels=("extra",)),))) is ours


@pytest.mark.parametrize(
    ("labels", "ours"),
    [
        ((), True),
        (("self-hosted",), True),
        (("self-hosted", "linux", "x64"), True),
        (("gpu",), True),
        (("gpu", "linux"), True),
        (("windows",), False),
        (("gpu", "windows"), False),
        (("other",), False),
    ],
)
def test_a_sku_without_labels_serves_jobs_with_only_githubs_default_labels(
    labels: tuple[str, ...], ours: bool
) -> None:
    assert bool(skus_for(*labels, of=(dataclasses.replace(sku(), unlabelled=True),))) is ours


@pytest.mark.case(
    "`runs-on: {group: x}` sends no labels",
    topic="GitHub's events",
    source="GAR#3643; GAR#3548",
)
def test_a_runner_for_the_empty_list_registers_with_its_skus_name() -> None:
    unlabelled = dataclasses.replace(sku("any"), unlabelled=True)
    found = classify(catalogue(sku(), unlabelled), REPO, [])
    assert found == DemandClass("org:acme", "Default", (), (SkuName("any"),))
    assert found is not None
    assert found.runner_labels == ("any",)


@pytest.mark.case(
    "a runner has exactly the labels of its registration request",
    topic="GitHub's events",
    source="GAR#3491",
)
def test_a_runner_registers_with_exactly_its_jobs_labels() -> None:
    found = classify(catalogue(sku("gpu", labels=("extra",))), REPO, ["Linux", "gpu"])
    assert found is not None
    assert found.runner_labels == ("gpu", "linux")


@pytest.mark.parametrize(
    ("repositories", "repository", "ours"),
    [
        (("acme/*",), "Acme/Widgets", True),
        (("ACME/Wid*",), "acme/widgets", True),
        (("acme/gadgets", "acme/widgets"), "acme/widgets", True),
        (("acme/gadgets",), "acme/widgets", False),
        ((), "acme/widgets", False),
    ],
)
def test_access_says_which_repositories_may_use_a_sku(
    repositories: tuple[str, ...], repository: str, ours: bool
) -> None:
    guarded = dataclasses.replace(sku(), access=Access(repositories, forks=True))
    assert serves(guarded, ("gpu",), repository) is ours
    assert (skus_for("gpu", of=(guarded,), repository=repository) != ()) is ours


def test_a_job_outside_the_access_of_a_sku_goes_to_the_next_sku_with_its_labels() -> None:
    guarded = dataclasses.replace(
        sku("a", labels=("x",)), access=Access(("acme/secret",), forks=True)
    )
    assert skus_for("x", of=(guarded, sku("b", labels=("x",)))) == ("b",)


def test_the_first_scope_that_covers_the_repository_wins() -> None:
    narrow = Scope("acme", None, "narrow", ("acme/w*",))
    wide = Scope("acme", None, "wide")
    known = with_scopes(narrow, wide)
    assert scope_of(known, "acme/widgets") is narrow
    assert scope_of(known, "acme/gadgets") is wide
    assert scope_of(with_scopes(wide, narrow), "acme/widgets") is wide


def test_a_repository_scope_covers_that_repository_alone() -> None:
    scope = Scope("Acme", "Widgets")
    known = with_scopes(scope)
    assert scope_of(known, "acme/WIDGETS") is scope
    assert scope_of(known, "acme/widgets2") is None
    assert scope_of(known, "other/widgets") is None
    assert classify(known, "acme/gadgets", ["gpu"]) is None


@pytest.mark.case(
    "a webhook does not contain the requested runner group",
    topic="GitHub's events",
    source="GitHub: workflow_job events",
)
def test_the_runner_group_comes_from_the_scope() -> None:
    found = classify(with_scopes(Scope("acme", None, "gpus")), REPO, ["gpu"])
    assert found is not None
    assert (found.scope, found.runner_group) == ("org:acme", "gpus")


@pytest.mark.parametrize("scope", ["org:Acme", "repo:Acme/widgets"])
def test_registrations_count_against_the_organisation_or_user(scope: str) -> None:
    assert DemandClass(scope, "Default", (), ()).account == "acme"
