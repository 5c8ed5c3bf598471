"""The clock of the system, which the laboratory lets run faster."""

import asyncio
import time
from random import Random

import pytest

from autoscaler.controller.system import BELIEVED_AFTER, ClockSetBackError, SystemClock
from autoscaler.simulator.world.virtual_time import run


@pytest.mark.parametrize("scale", [1.0, 60.0])
def test_a_clock_runs_so_many_times_as_fast_since_its_epoch(scale: float) -> None:
    epoch = time.time() - 1000.0
    clock = SystemClock(scale, epoch)
    before = time.time()
    now = clock.now()
    after = time.time()
    assert epoch + (before - epoch) * scale <= now <= epoch + (after - epoch) * scale


class Host:
    """The two clocks of a host. `set` moves the wall clock alone."""

    def __init__(self, scale: float) -> None:
        self.wall = 1_800_000_000.0
        self.up = 50.0
        self.clock = SystemClock(scale, self.wall, lambda: self.wall, lambda: self.up)
        self.began = self.clock.now()

    def pass_time(self, seconds: float, step: float = 1.0) -> float:
        """Let real time pass, with a look at the clock each second. Return what the clock says passed."""
        before = self.clock.now()
        for _ in range(round(seconds / step)):
            self.wall += step
            self.up += step
            self.clock.now()
        return self.clock.now() - before


@pytest.mark.parametrize("scale", [1.0, 60.0])
@pytest.mark.parametrize("wrong_by", [-86_400.0, -600.0, -2.0, 2.0, 600.0, 86_400.0])
def test_time_passes_while_the_wall_clock_is_wrong_for_a_while(
    scale: float, wrong_by: float
) -> None:
    host = Host(scale)
    host.wall += wrong_by
    passed = host.pass_time(60.0) / scale
    host.wall -= wrong_by
    passed += host.pass_time(600.0) / scale
    assert 0.9 * 660.0 <= passed <= 660.0
    assert abs(host.clock.now() - host.clock.wall()) <= scale


@pytest.mark.parametrize("scale", [1.0, 60.0])
def test_a_wall_clock_that_stays_ahead_is_right(scale: float) -> None:
    """Such as after the host was suspended: its monotonic clock stands still meanwhile."""
    host = Host(scale)
    host.wall += 3600.0
    host.pass_time(301.0)
    assert host.clock.now() == host.clock.wall()


def test_time_goes_on_at_half_its_speed_until_a_clock_that_was_set_back_is_reached() -> None:
    host = Host(1.0)
    host.wall -= 600.0
    assert host.pass_time(600.0) == 300.0
    assert host.pass_time(600.0) == 300.0
    assert host.pass_time(60.0) >= 59.0


@pytest.mark.parametrize("seed", range(20))
def test_time_never_goes_back_and_never_stands_still(seed: int) -> None:
    random = Random(seed)
    host = Host(1.0)
    for _ in range(50):
        host.wall += random.choice([0.0, 0.5, -0.5, 600.0, -600.0, random.uniform(-1e5, 1e5)])
        seconds = random.randrange(2, 400)
        assert host.pass_time(seconds) >= 0.4 * seconds


def watched(*changes: tuple[float, float], scale: float = 1.0) -> float | None:
    """Set the wall clock to be off by the second number at the first, each in seconds.

    Return when the watch asks for a new process, or None if it has not after a day.
    """

    async def story() -> float | None:
        loop = asyncio.get_running_loop()
        began = loop.time()

        def wall() -> float:
            up = loop.time() - began
            return 1.8e9 + up + sum(([by for at, by in changes if at <= up] or [0.0])[-1:])

        clock = SystemClock(scale, 1.8e9, wall, loop.time)
        clock.now()
        try:
            await asyncio.wait_for(clock.stop_if_set_back(), 86_400.0)
        except TimeoutError:
            return None
        except ClockSetBackError:
            pass
        return loop.time() - began

    return run(story())


@pytest.mark.parametrize("scale", [1.0, 60.0])
@pytest.mark.parametrize("by", [7200.0, 86_400.0, 5 * 365 * 86_400.0])
def test_a_clock_that_was_set_back_by_hours_needs_a_new_process(by: float, scale: float) -> None:
    """A clock that ran ahead for so long that it was believed would else be reached after years."""
    ahead, back = watched((50.0, by), (3600.0, 0.0), scale=scale), watched((50.0, -by), scale=scale)
    assert ahead is not None
    assert 3600.0 <= ahead <= 3600.0 + 2 * BELIEVED_AFTER
    assert back is not None
    assert back <= 50.0 + 2 * BELIEVED_AFTER


@pytest.mark.parametrize(
    "changes",
    [
        [(1000.0, -3000.0)],  # reached after 6000 s
        [(1000.0, -86_400.0), (1250.0, 0.0)],  # wrong for a moment
        [(1000.0, 5e8), (1250.0, 0.0)],  # ahead for a moment: not believed
        [(1000.0, 5e8)],  # the host was suspended
    ],
)
def test_no_other_change_of_the_wall_clock_needs_a_new_process(
    changes: list[tuple[float, float]],
) -> None:
    assert watched(*changes) is None
