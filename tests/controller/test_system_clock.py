"""The clock of the system, which the laboratory lets run faster."""

import time

import pytest

from autoscaler.controller.system import SystemClock


@pytest.mark.parametrize("scale", [1.0, 60.0])
def test_a_clock_runs_so_many_times_as_fast_since_its_epoch(scale: float) -> None:
    epoch = time.time() - 1000.0
    clock = SystemClock(scale, epoch)
    before = time.time()
    now = clock.now()
    after = time.time()
    assert epoch + (before - epoch) * scale <= now <= epoch + (after - epoch) * scale
