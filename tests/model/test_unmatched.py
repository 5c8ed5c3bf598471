"""Which jobs no SKU serves, why, and which SKU has the closest labels."""

from dataclasses import replace

import pytest

from autoscaler.model.catalogue import Access, Catalogue, Scope
from autoscaler.model.jobs.demand import classify
from autoscaler.model.reasons.table import Unmatched
from autoscaler.model.reasons.unmatched import close_label, nearest_sku, why_unmatched
from tests.planner.fleets import catalogue, sku

LARGE = "linux.g5.4xlarge.nvidia.gpu"
SMALL = "linux.c7i.large"


def fleet() -> Catalogue:
    """Return a catalogue with a large SKU for all repositories and a small SKU for one."""
    small = replace(sku(SMALL, labels=("fast",)), access=Access(("acme/kernels",), forks=True))
    return catalogue(sku(LARGE, labels=("a10g",)), small)


@pytest.mark.case(
    "a typing error in `runs-on` leaves no trace",
    topic="Complaints about other fleets",
    source="ARC#3649; GitHub: GitHub-hosted runners",
)
@pytest.mark.parametrize(
    ("labels", "repository", "why"),
    [
        ((LARGE,), "acme/widgets", None),
        (("self-hosted", "Linux", LARGE.upper()), "acme/widgets", None),
        (("linux.g5.4xlrage.nvidia.gpu",), "acme/widgets", Unmatched.LABELS),
        (("self-hosted", "linux"), "acme/widgets", Unmatched.NAMES_NO_SKU),
        (("self-hosted", "Linux", "x64"), "acme/widgets", Unmatched.NAMES_NO_SKU),
        (("self-hosted", "windows", LARGE), "acme/widgets", Unmatched.LABELS),
        (("a10g", "fast"), "acme/kernels", Unmatched.LABELS),
        ((), "acme/widgets", Unmatched.LABELS),
        ((SMALL,), "acme/kernels", None),
        ((SMALL,), "acme/widgets", Unmatched.ACCESS),
        ((SMALL,), "elsewhere/widgets", None),
        (("linux.g5.4xlrage.nvidia.gpu",), "elsewhere/widgets", None),
        (("self-hosted", "ubuntu-latest"), "acme/widgets", Unmatched.LABELS),
    ],
)
def test_each_unmatched_job_has_its_reason(
    labels: tuple[str, ...], repository: str, why: Unmatched | None
) -> None:
    assert why_unmatched(fleet(), repository, labels) is why
    if repository.startswith("acme/"):
        assert (classify(fleet(), repository, labels) is None) == (why is not None)


@pytest.mark.parametrize(
    "label",
    [
        *("ubuntu-latest", "ubuntu-24.04", "ubuntu-24.04-arm", "ubuntu-slim", "Ubuntu-Latest"),
        *("windows-2025", "windows-11-arm", "windows-latest-8-cores"),
        *("macos-15", "macos-15-intel", "macos-latest-xlarge"),
    ],
)
def test_jobs_for_github_hosted_runners_are_not_unmatched(label: str) -> None:
    assert why_unmatched(fleet(), "acme/widgets", (label,)) is None


@pytest.mark.parametrize(
    "label", ["ubuntu", "ubuntu-gpu", "windows-gpu-latest", "my-ubuntu-latest"]
)
def test_labels_similar_to_github_hosted_runners_are_unmatched(label: str) -> None:
    assert why_unmatched(fleet(), "acme/widgets", (label,)) is Unmatched.LABELS


def test_a_scope_without_the_repository_covers_none_of_its_jobs() -> None:
    narrow = replace(fleet(), scopes=(Scope("acme", None, repositories=("acme/kernels",)),))
    assert why_unmatched(narrow, "acme/widgets", ("gpu",)) is None


@pytest.mark.parametrize(
    ("labels", "nearest"),
    [
        (("linux.g5.4xlrage.nvidia.gpu",), LARGE),
        (("self-hosted", "linux", "linux.c7i.lrge"), SMALL),
        (("Linux.G5.4xlarge.Nvidia",), LARGE),
        (("a10",), LARGE),
        (("self-hosted", "windows", LARGE), LARGE),
        ((SMALL,), SMALL),
        (("macos-of-ours",), None),
        (("self-hosted", "linux", "x64"), None),
        ((), None),
    ],
)
def test_the_sku_with_the_closest_labels_is_found(
    labels: tuple[str, ...], nearest: str | None
) -> None:
    assert nearest_sku(fleet(), labels) == nearest


def test_without_skus_no_closest_sku_is_found() -> None:
    assert nearest_sku(replace(fleet(), skus={}), ("gpu",)) is None


@pytest.mark.parametrize(
    ("labels", "close"),
    [
        (("linux.g5.4xlrage.nvidia.gpu",), ("linux.g5.4xlrage.nvidia.gpu", LARGE)),
        (("self-hosted", "linux", "Fats"), ("fats", "fast")),
        ((LARGE, "a10gg"), ("a10gg", "a10g")),
        (("self-hostd", LARGE), ("self-hostd", "self-hosted")),
        ((SMALL,), None),
        (("a10g", "fast"), None),
        (("macos-of-ours",), None),
        ((), None),
    ],
)
def test_a_label_that_is_close_to_an_existing_one_is_named_with_it(
    labels: tuple[str, ...], close: tuple[str, str] | None
) -> None:
    assert close_label(fleet(), labels) == close
