"""What the demo says of a failure: the controller's explanation, or the end of its log."""

from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from rich.console import Console

from lab.github.records import JobStatus
from lab.waiting import explain_oldest, oldest_waiting, print_reasons

if TYPE_CHECKING:
    from lab.github.records import Job
    from lab.laboratory import Laboratory


def job(number: int, status: JobStatus, queued_at: float) -> "Job":
    made: Any = SimpleNamespace(id=number, status=status, queued_at=queued_at, created_at=0.0)
    return cast("Job", made)


JOBS = [
    job(1, JobStatus.COMPLETED, 1.0),
    job(2, JobStatus.QUEUED, 3.0),
    job(3, JobStatus.QUEUED, 2.0),
    job(4, JobStatus.IN_PROGRESS, 1.0),
]


def lab_with(jobs: "list[Job]", folder: Path) -> "Laboratory":
    made: Any = SimpleNamespace(github=SimpleNamespace(jobs=jobs), folder=folder)
    return cast("Laboratory", made)


def printed(log: str, explanation: str, keep: Path | None) -> str:
    out = StringIO()
    print_reasons(Console(file=out, width=80), log, explanation, keep)
    return out.getvalue()


def test_the_job_that_waits_longest_is_explained() -> None:
    assert oldest_waiting(JOBS) is JOBS[2]
    assert oldest_waiting(JOBS[:1]) is None


async def test_without_a_waiting_job_nothing_is_asked(tmp_path: Path) -> None:
    assert await explain_oldest(lab_with(JOBS[:1], tmp_path)) == ""


async def test_a_command_that_fails_is_part_of_the_answer(tmp_path: Path) -> None:
    assert "fleet.yaml" in await explain_oldest(lab_with(JOBS, tmp_path))


async def test_an_answer_that_takes_too_long_is_not_waited_for(tmp_path: Path) -> None:
    expected = "The controller did not explain job 3 within 0 seconds."
    assert await explain_oldest(lab_with(JOBS, tmp_path), patience=0.0) == expected


@pytest.mark.parametrize(
    ("log", "explanation", "shown"),
    [
        ("Killed", "Why: x", "\nThe last lines of the controller's log:\n  Killed\n"),
        (
            "",
            "Why: x",
            "\nWhat `autoscaler explain` says of the job that waits longest:\n  Why: x\n",
        ),
        ("", "", "--keep FOLDER keeps the controller's log, configuration and store.\n"),
    ],
)
def test_the_end_of_the_log_is_printed_only_of_a_controller_that_exited(
    log: str, explanation: str, shown: str
) -> None:
    assert printed(log, explanation, None).startswith(shown)


def test_a_long_explanation_is_cut() -> None:
    output = printed("", "\n".join(map(str, range(100))), Path("kept"))
    assert "  39\n  and 60 more lines\n\nkept has the controller's log" in output
    assert "  40\n" not in output
