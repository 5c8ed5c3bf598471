"""Why a job has no machine, by GitHub and fleet.yaml alone."""

from dataclasses import replace

import pytest

from autoscaler.doctor.job import judge_job
from autoscaler.model.catalogue import Access, Catalogue
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import JobId, RunnerName
from autoscaler.model.jobs.job import JobState, RunOrigin
from autoscaler.operator_commands.options import JobPage
from tests.doctor.fleets import NOW, SCOPE
from tests.planner.fleets import catalogue, sku

PAGE = JobPage("https://github.com", "acme/rocket", "5")
ACCESS = Access(("acme/rocket",), forks=False)
FLEET = replace(catalogue(replace(sku("gpu"), access=ACCESS)), scopes=(SCOPE,))


def job(*labels: str, state: JobState = JobState.QUEUED) -> JobObserved:
    return JobObserved(NOW, JobId(5), state, "acme/rocket", labels, NOW)


@pytest.mark.parametrize(
    ("page", "found", "origin", "says"),
    [
        (PAGE, None, None, "GitHub shows no such job to the App"),
        (PAGE, job("gpv"), None, "the label gpv is close to gpu"),
        (
            PAGE._replace(repository="acme/site"),
            job("gpu"),
            None,
            "no scope in github.scopes covers acme/site",
        ),
        (PAGE, job("gpu"), RunOrigin(True, False, None), "access.forks of gpu refuses it"),
        (PAGE, job("gpu"), RunOrigin(False, False, "main"), "the controller does not answer"),
    ],
)
def test_a_job_without_a_machine_has_a_reason_and_a_fix(
    page: JobPage, found: JobObserved | None, origin: RunOrigin | None, says: str
) -> None:
    check = judge_job(FLEET, page, found, origin)
    assert check.outcome == "wrong"
    assert says in check.what
    assert check.fix


@pytest.mark.parametrize(
    ("found", "outcome", "says"),
    [
        (job("ubuntu-latest"), "fine", "GitHub's own runners serve these labels"),
        (job("gpu", state=JobState.WAITING), "skipped", "GitHub holds it back"),
        (
            replace(job("gpu", state=JobState.IN_PROGRESS), runner_name=RunnerName("ci-1")),
            "fine",
            "it runs on ci-1",
        ),
        (
            replace(job("gpu", state=JobState.COMPLETED), conclusion="success"),
            "fine",
            "it is over (success)",
        ),
    ],
)
def test_a_job_that_needs_no_machine_is_fine(found: JobObserved, outcome: str, says: str) -> None:
    fleet: Catalogue = FLEET
    check = judge_job(fleet, PAGE, found, None)
    assert check.outcome == outcome
    assert says in check.what
