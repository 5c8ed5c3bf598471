"""Whether a replay passed: the demo must report a planted fault, and any other error fails it."""

import pytest

from lab.verdict import PASSED, Fault, Violation, verdict

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
