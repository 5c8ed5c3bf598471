"""The longest stall of the event loop, in virtual time: a long step advances the clock."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from autoscaler.app.event_loop import LAG_EVERY, LAG_WINDOW, report_lag
from autoscaler.model.identifiers import Seconds
from autoscaler.simulator.world.virtual_time import VirtualLoop
from tests.controller.fakes import RecordingTelemetry


class HeldReconciler(VirtualLoop):
    """An event loop whose callbacks can take virtual time."""

    def __init__(self) -> None:
        self.held: Seconds = 0.0
        super().__init__()

    def time(self) -> float:
        return super().time() + self.held

    def hold(self, seconds: Seconds) -> None:
        """Block the loop for so many seconds."""
        self.held += seconds


def lags(story: Callable[[HeldReconciler], Coroutine[Any, Any, None]]) -> list[Seconds]:
    """Return the lags that the telemetry received during the story."""
    telemetry = RecordingTelemetry()

    async def reported() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, HeldReconciler)
        watching = loop.create_task(report_lag(telemetry))
        await asyncio.sleep(LAG_EVERY / 2)
        await story(loop)
        watching.cancel()

    with asyncio.Runner(loop_factory=HeldReconciler) as runner:
        runner.run(reported())
    return telemetry.lags


def test_the_longest_stall_is_reported_until_the_next_whole_window_has_passed() -> None:
    async def story(loop: HeldReconciler) -> None:
        loop.hold(0.3)
        await asyncio.sleep(2 * LAG_EVERY)
        loop.hold(0.1)
        await asyncio.sleep(LAG_WINDOW)
        loop.hold(0.05)
        await asyncio.sleep(2 * LAG_WINDOW)

    assert [round(one, 3) for one in lags(story)] == [0.295, 0.295, 0.295, 0.04, 0.0]


def test_a_loop_that_is_never_blocked_has_no_lag() -> None:
    async def story(loop: HeldReconciler) -> None:
        del loop
        await asyncio.sleep(3.5 * LAG_WINDOW)

    assert {round(one, 9) for one in lags(story)} == {0.0}


def test_a_stall_is_measured_at_most_one_interval_too_short() -> None:
    async def story(loop: HeldReconciler) -> None:
        for _ in range(7):
            loop.hold(0.02)
            await asyncio.sleep(0.7 * LAG_EVERY)
        await asyncio.sleep(LAG_WINDOW)

    assert 0.02 - LAG_EVERY <= max(lags(story)) <= 0.02
