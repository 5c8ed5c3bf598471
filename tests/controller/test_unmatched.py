"""A job that no SKU serves is counted, and its labels are logged at most once an hour."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.reporting.unmatched import LINES, WINDOW
from autoscaler.model.jobs.job import JobState
from autoscaler.model.reasons.table import Unmatched
from tests.controller.agents import say
from tests.controller.controllers import Controller, World
from tests.controller.virtual_time import on_virtual_time

MISSPELT = ("self-hosted", "gpuu")


async def queue(controller: Controller, job: int, *labels: str) -> None:
    """GitHub queues a job with these labels."""
    await say(controller, job, JobState.QUEUED, labels=labels)
    await controller.intake.apply_waiting()


def counted(world: World) -> int:
    return world.telemetry.said.count(("job_unmatched", Unmatched.LABELS))


def reported(logs: list[Any]) -> list[Any]:
    """The log lines about such jobs."""
    return [line for line in logs if line["event"].startswith("job")]


@pytest.mark.case(
    "a typing error in `runs-on` leaves no trace",
    topic="Complaints about other fleets",
    source="ARC#3649; GitHub: GitHub-hosted runners",
)
@on_virtual_time
async def test_a_misspelt_label_is_counted_and_logged_with_the_sku_it_is_near() -> None:
    world = World()
    controller = Controller(world)
    with capture_logs() as logs:
        await queue(controller, 1, *MISSPELT)
    (line,) = reported(logs)
    assert line == {
        "event": "job_unmatched",
        "log_level": "warning",
        "job": 1,
        "repository": "acme/widgets",
        "labels": ("gpuu", "self-hosted"),
        "code": "labels",
        "reason": "no SKU has all of the job's labels",
        "nearest_sku": "gpu",
        "unknown_label": "gpuu",
        "close_label": "gpu",
    }
    assert counted(world) == 1


@on_virtual_time
async def test_a_job_for_a_sku_or_a_github_hosted_runner_is_neither_counted_nor_logged() -> None:
    world = World()
    controller = Controller(world)
    with capture_logs() as logs:
        await queue(controller, 1, "gpu")
        await queue(controller, 2, "ubuntu-latest")
    assert reported(logs) == []
    assert counted(world) == 0


@on_virtual_time
async def test_each_job_is_counted_once_and_its_labels_logged_once_an_hour() -> None:
    world = World()
    controller = Controller(world)
    with capture_logs() as logs:
        for job in range(1, 11):
            await queue(controller, job, *MISSPELT)
        await queue(controller, 10, *MISSPELT)  # a repeated delivery
        await say(controller, 10, JobState.COMPLETED, labels=MISSPELT)
        await controller.intake.apply_waiting()
        assert [line["job"] for line in reported(logs)] == [1]
        await asyncio.sleep(WINDOW)
        await queue(controller, 11, *MISSPELT)
    assert [line["job"] for line in reported(logs)] == [1, 11]
    assert counted(world) == 11


@pytest.mark.case(
    "a typing error in `runs-on` leaves no trace",
    topic="Complaints about other fleets",
    source="ARC#3649; GitHub: GitHub-hosted runners",
)
@on_virtual_time
async def test_many_different_labels_cause_a_few_log_lines_and_a_count() -> None:
    world = World()
    controller = Controller(world)
    with capture_logs() as logs:
        for job in range(1, 101):
            await queue(controller, job, f"label-{job}")
        assert len(reported(logs)) == LINES
        await asyncio.sleep(WINDOW)
        await queue(controller, 101, "label-101")
    *_, rest, last = reported(logs)
    assert (rest["event"], rest["count"]) == ("jobs_unmatched_not_logged", 100 - LINES)
    assert last["job"] == 101
    assert counted(world) == 101
