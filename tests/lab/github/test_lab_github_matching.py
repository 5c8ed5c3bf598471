"""Which runner can get which job, and the order of runners and jobs."""

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.github.directory import Directory
from lab.github.matching import Matching, fits
from lab.github.records import JobClass, RunnerClass
from lab.github.settings import LabOrganization, LabRunnerGroup


def wants(*labels: str, repository: str = "rocket", group: str | None = None) -> JobClass:
    return JobClass("acme", repository, group, frozenset(labels))


def offers(
    *labels: str,
    repository: str | None = None,
    group: str = "default",
    open_to: frozenset[str] | None = None,
    organization: str = "acme",
) -> RunnerClass:
    return RunnerClass(organization, repository, group, open_to, frozenset(labels))


def test_every_label_must_be_covered() -> None:
    assert fits(offers("gpu", "linux"), wants("gpu"))
    assert fits(offers("gpu"), wants())
    assert not fits(offers("gpu"), wants("gpu", "linux"))


def test_group_organization_and_repository_must_agree() -> None:
    assert fits(offers("gpu", group="big"), wants("gpu", group="big"))
    assert not fits(offers("gpu"), wants("gpu", group="big"))
    assert not fits(offers("gpu", organization="globex"), wants("gpu"))
    assert fits(offers("gpu", repository="rocket"), wants("gpu"))
    assert not fits(offers("gpu", repository="anvil"), wants("gpu"))
    assert not fits(offers("gpu", open_to=frozenset({"anvil"})), wants("gpu"))
    assert fits(offers("gpu", open_to=frozenset({"anvil"})), wants("gpu", repository="anvil"))
    assert not fits(offers("gpu", repository="rocket", group="big"), wants("gpu", group="big"))


def test_a_group_that_is_restricted_to_workflows_takes_jobs_of_these_alone() -> None:
    deploys = "acme/rocket/.github/workflows/ci.yml@main"
    restricted = offers("gpu")._replace(group_workflows=frozenset({deploys}))
    assert fits(restricted, wants("gpu")._replace(workflow=deploys))
    assert not fits(restricted, wants("gpu")._replace(workflow=deploys.replace("@main", "@topic")))


@pytest.mark.case(
    "a runner group admits public repositories, or more than any `access` does",
    topic="GitHub's events",
    source="GitHub: secure use; GitHub: runner groups",
)
def test_a_group_admits_public_repositories_only_if_configured() -> None:
    organization = LabOrganization(
        "acme",
        ("rocket", "anvil"),
        (
            LabRunnerGroup("closed"),
            LabRunnerGroup("open", allows_public_repositories=True),
            LabRunnerGroup("chosen", ("rocket", "anvil")),
        ),
        public=("rocket",),
    )
    groups = Directory([], [organization]).organizations["acme"].groups.values()
    assert {group.name: group.open_to for group in groups} == {
        "Default": {"anvil"},
        "closed": {"anvil"},
        "open": None,
        "chosen": {"anvil"},
    }


def test_the_oldest_job_of_all_fitting_classes_comes_first() -> None:
    matching = Matching()
    matching.add_job(wants("linux"), 1, order=1)
    matching.add_job(wants("gpu"), 2, order=2)
    matching.add_job(wants("gpu", "linux"), 3, order=0)
    assert matching.job_for(offers("gpu", "linux")) == 3
    matching.remove_job(wants("gpu", "linux"), 3)
    assert matching.job_for(offers("gpu", "linux")) == 1
    assert matching.job_for(offers("gpu")) == 2


def test_the_runner_that_idled_longest_comes_first() -> None:
    matching = Matching()
    matching.add_runner(offers("gpu", "linux"), 7)
    matching.add_runner(offers("gpu"), 5)
    assert matching.runner_for(wants("gpu")) == 7
    matching.remove_runner(offers("gpu", "linux"), 7)
    assert matching.runner_for(wants("gpu")) == 5
    assert matching.runner_for(wants("gpu", "linux")) is None


def test_a_returned_job_goes_to_the_head_of_its_class() -> None:
    matching = Matching()
    for number in (1, 2, 3):
        matching.add_job(wants("gpu"), number, order=number)
    matching.remove_job(wants("gpu"), 1)
    matching.add_job(wants("gpu"), 1, order=1, first=True)
    assert matching.job_for(offers("gpu")) == 1


def test_a_random_choice_reaches_every_runner_and_repeats_with_its_seed() -> None:
    def picks(seed: int) -> list[int | None]:
        matching = Matching(random.Random(seed).randrange)
        for number in range(6):
            matching.add_runner(offers("gpu", *(["linux"] if number % 2 else [])), number)
        return [matching.runner_for(wants("gpu")) for _ in range(100)]

    assert set(picks(1)) == set(range(6))
    assert picks(1) == picks(1)
    assert picks(1) != picks(2)


LABELS = st.frozensets(st.sampled_from("abc"), max_size=3)
STEPS = st.lists(st.tuples(st.sampled_from(["job", "runner"]), LABELS), max_size=40)


@given(STEPS)
def test_matching_finds_the_same_pairs_as_a_plain_search(
    steps: list[tuple[str, frozenset[str]]],
) -> None:
    """Against a plain search through everything: FIFO both ways."""
    matching = Matching()
    jobs: dict[int, JobClass] = {}
    runners: dict[int, RunnerClass] = {}
    for number, (what, labels) in enumerate(steps):
        if what == "job":
            kind = wants(*labels)
            expected = next((r for r, offer in runners.items() if fits(offer, kind)), None)
            assert matching.runner_for(kind) == expected
            if expected is None:
                jobs[number] = kind
                matching.add_job(kind, number, number)
            else:
                matching.remove_runner(runners.pop(expected), expected)
        else:
            offer = offers(*labels)
            expected = next((j for j, kind in jobs.items() if fits(offer, kind)), None)
            assert matching.job_for(offer) == expected
            if expected is None:
                runners[number] = offer
                matching.add_runner(offer, number)
            else:
                matching.remove_job(jobs.pop(expected), expected)
        assert not any(fits(o, k) for o, k in product(runners.values(), jobs.values()))
