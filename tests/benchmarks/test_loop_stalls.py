"""The benchmark of stalls finds the longest step, and runs a whole controller; how long depends on the host."""

import asyncio
import time

from benchmarks.loop_stalls import Load, measure
from benchmarks.timed_loop import TimedLoop

HELD = 0.03


def hold(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


async def hold_between_two_waits() -> None:
    await asyncio.sleep(0.0)
    hold(HELD)
    await asyncio.sleep(0.0)


async def test_loop_stalls_are_attributed_to_their_cause_and_waiting_is_ignored() -> None:
    def in_a_loop_of_its_own() -> TimedLoop:
        with asyncio.Runner(loop_factory=TimedLoop) as runner:
            loop = runner.get_loop()
            assert isinstance(loop, TimedLoop)

            async def measured() -> None:
                with loop.measured():
                    loop.call_later(0.0, hold, HELD)
                    await asyncio.gather(hold_between_two_waits(), asyncio.sleep(2.0 * HELD))

            runner.run(measured())
            return loop

    found = (await asyncio.to_thread(in_a_loop_of_its_own)).steps.causes
    held = {name for name, cause in found.items() if cause.longest >= HELD}
    assert "hold" in held
    assert any("hold_between_two_waits" in name or "benchmark itself" in name for name in held)
    assert all(cause.longest < HELD for name, cause in found.items() if name not in held)


async def test_a_whole_controller_is_measured() -> None:
    def in_a_loop_of_its_own() -> set[str]:
        with asyncio.Runner(loop_factory=TimedLoop) as runner:
            loop = runner.get_loop()
            assert isinstance(loop, TimedLoop)
            loop.steps.least = 0.0
            load = Load(machines=20, jobs=40, burst=20, rate=20.0, room=5, seconds=20.0, scale=10.0)
            return set(runner.run(measure(load)).causes)

    causes = await asyncio.to_thread(in_a_loop_of_its_own)
    for part in (
        "_AccountSync.run",
        "MachineLists._list_repeatedly",
        "Journal._write",
        "Launcher.launch",
    ):
        assert any(cause.startswith(part) for cause in causes), (part, causes)
    assert any(cause.startswith("ControllerProcess._life") for cause in causes)
