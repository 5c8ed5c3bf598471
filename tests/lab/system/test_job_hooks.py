"""Jobs that GitHub gives to a runner although the SKU's `access` does not admit them.

The runner group admits both repositories, and any job with the labels may get the runner.
"""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from lab.ec2.moto import MotoProcess
from lab.laboratory import LabFleet, Laboratory
from tests.lab.system.harness import at_rest, ec2_sku, job, log_lines, until
from tests.lab.system.pace import PATIENCE, yielding


@pytest_asyncio.fixture
async def lab(moto: MotoProcess) -> AsyncIterator[Laboratory]:
    skus = {
        "private": ec2_sku("g5.xlarge", access={"repositories": ["acme/widgets"]}),
        "closed": ec2_sku("g6.xlarge"),
        "protected": ec2_sku(
            "g6.2xlarge", access={"branches": ["main"], "public_repositories": False}
        ),
    }
    repositories = ("widgets", "gadgets", "site")
    fleet = LabFleet("acme", repositories, skus, scale=yielding(60.0), public=("site",))
    async with Laboratory(fleet, moto) as made:
        await made.start_controller()
        yield made


@pytest.mark.asyncio
@pytest.mark.case(
    "a job outside `access` gets a runner of the fleet: it is refused before its first step, with "
    "the reason in its log, and the job that the machine was launched for gets another one",
    topic="GitHub's events",
    source="GitHub: runner groups; actions/runner ADR 1751",
)
async def test_jobs_outside_access_run_no_step(lab: Laboratory) -> None:
    forked = replace(job("forked", "closed", 30.0), workflow="PR", fork="stranger/widgets")
    # GITHUB_REF of this run is refs/heads/main.
    targeted = replace(
        job("targeted", "protected", 30.0),
        workflow="PR target",
        event="pull_request_target",
        branch="topic",
    )
    public = job("public", "protected", 30.0, "acme/site")
    outside = lab.github.push(
        [job("gadgets", "private", 30.0, "acme/gadgets"), forked, targeted, public]
    )
    await until(
        lambda: bool(log_lines(lab, "job_unmatched") and len(log_lines(lab, "job_refused")) == 3),
        PATIENCE,
        lab.controller.log_end,
    )
    # GitHub gives the oldest job to the runners that are launched for these.
    skus = ("private", "closed", "protected", "protected")
    admitted = lab.github.push(
        [job(f"widgets-{number}", sku, 30.0) for number, sku in enumerate(skus)]
    )
    await at_rest(lab, PATIENCE)
    assert [(one.conclusion, one.stepped) for one in outside] == [("failure", False)] * 4
    assert [(one.conclusion, one.stepped) for one in admitted] == [("success", True)] * 4
    reasons = sorted(line["detail"] for line in log_lines(lab, "job_ran_outside_access"))
    assert [reason.partition(":")[0] for reason in reasons] == [
        "branch",
        "fork",
        "public_repository",
        "repository",
    ]
