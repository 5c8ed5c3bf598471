"""Whether a replay passed: the demo must report a planted fault, and any other error fails it."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from lab.github.records import JobStatus
from lab.verdict import PASSED, Fault, Violation, verdict, violations
from lab.watch import Ending

if TYPE_CHECKING:
    from lab.laboratory import Laboratory

LOST = Violation("job build 1: started 0 times, queued, lost by the lab", planted=True)
OTHER = Violation("job build 2: started 2 times, success")


def test_without_a_planted_fault_any_error_fails() -> None:
    assert verdict([], None) == (True, [PASSED])
    assert verdict([OTHER], None) == (False, [f"FAILED: {OTHER.text}"])


@pytest.mark.parametrize("fault", Fault)
def test_a_planted_fault_that_is_reported_is_a_success(fault: Fault) -> None:
    last = f"PASSED: {fault.value} was noticed, as expected."
    assert verdict([LOST], fault) == (True, [f"Noticed: {LOST.text}", last])


@pytest.mark.parametrize("fault", Fault)
def test_a_planted_fault_that_is_not_reported_is_a_failure(fault: Fault) -> None:
    assert verdict([], fault) == (False, [f"FAILED: the demo did not notice {fault.value}"])


def test_any_other_error_fails_a_replay_with_a_planted_fault() -> None:
    lines = [f"Noticed: {LOST.text}", f"FAILED: {OTHER.text}"]
    assert verdict([OTHER, LOST], Fault.LOST_JOB) == (False, lines)


def test_a_job_that_is_lost_without_a_fault_planted_is_a_failure() -> None:
    assert verdict([LOST], None) == (False, [f"FAILED: {LOST.text}"])


def test_jobs_that_fail_in_the_same_way_share_a_line() -> None:
    def job(label: str, number: int, starts: int) -> SimpleNamespace:
        spec = SimpleNamespace(name=f"test / {label} {number}", labels=(label,))
        queued = JobStatus.QUEUED
        return SimpleNamespace(
            spec=spec, status=queued, conclusion=None, starts=["r"] * starts, lost=False
        )

    jobs = [
        job("gpu", 1, 0),
        job("gpu", 2, 0),
        job("gpu", 3, 0),
        job("gpu", 4, 2),
        job("cpu", 1, 2),
    ]
    github = SimpleNamespace(jobs=jobs, unfinished=True)
    lab = cast(
        "Laboratory", SimpleNamespace(github=github, ec2=SimpleNamespace(machines_left=list))
    )
    assert [one.text for one in violations(lab, Ending.STUCK, "it is stuck", 0, {})] == [
        "gave up: it is stuck",
        "job test / gpu 1 and 2 more like it: started 0 times, queued",
        "job test / gpu 4: started 2 times, queued",
        "job test / cpu 1: started 2 times, queued",
    ]


def test_more_machines_than_a_launch_request_was_for_are_reported() -> None:
    machines = [
        SimpleNamespace(tags={"autoscaler:launch-request": name}) for name in ("r-1", "r-2", "r-2")
    ]
    ec2 = SimpleNamespace(machines_left=list, instances=machines)
    github = SimpleNamespace(jobs=[], unfinished=True)
    lab = cast("Laboratory", SimpleNamespace(github=github, ec2=ec2))

    def found(**requests: int) -> list[str]:
        named = {f"r-{name[1:]}": count for name, count in requests.items()}
        return [one.text for one in violations(lab, Ending.FINISHED, "", 0, named)]

    assert found(r1=1, r2=2, r3=1) == []
    assert found(r1=1, r2=1) == ["launch request r-2 was for 1 machine, and EC2 launched 2"]
    assert found(r2=2) == ["launch request r-1 was for 0 machines, and EC2 launched 1"]
