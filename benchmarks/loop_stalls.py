"""Measures for how long the controller blocks its event loop, by cause, in milliseconds of CPU time.

Run: `PYTHONPATH=. python benchmarks/loop_stalls.py [--machines 3500] [--jobs 10000] [--burst 5000] [--rate 500]
[--room 1000] [--seconds 60] [--scale 1]`. The controller runs in this process and starts with this number of
machines and queued jobs. During the measurement it reads GitHub's and the provider's lists, prunes old records,
and gets `--burst` more jobs at `--rate` a second. It may launch `--room` more machines.

Only CPU time of the loop's thread counts, so other processes and waiting do not change the figures. `gc` is the
part of the longest step that Python's garbage collector took. `--scale` is the speed of the controller's clock
compared with real time.
"""

import argparse
import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path

from autoscaler.controller.reconciler import Pace
from benchmarks.crowded_fleet import Crowd
from benchmarks.full_fleet import FullFleet
from benchmarks.timed_loop import Steps, TimedLoop

JOBS_A_RUN = 75


@dataclass(frozen=True, slots=True)
class Load:
    """The options of the same names. `seconds` are seconds of the controller's clock."""

    machines: int
    jobs: int
    burst: int
    rate: float
    room: int
    seconds: float
    scale: float


async def measure(load: Load) -> Steps:
    """Run the controller in a TimedLoop, and measure it from its first turn on."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TimedLoop)
    crowd = Crowd(
        load.machines,
        load.jobs,
        most_machines=load.machines + load.room,
        jobs_a_run=JOBS_A_RUN,
        apart=0.0371 if load.jobs <= 10_000 else 0.00371,
    )
    with tempfile.TemporaryDirectory() as folder:
        fleet = FullFleet(crowd, load.scale, Pace())
        async with fleet.at_work(Path(folder)):
            with loop.measured() as steps:
                quiet = max(0.0, load.seconds - load.burst / load.rate) / load.scale
                await asyncio.sleep(quiet / 2)
                await fleet.deliver(load.burst, load.rate)
                await asyncio.sleep(quiet / 2)
    return steps


def print_steps(steps: Steps, most: int) -> None:
    """Print a line for each cause, the longest first."""
    print(f"{'longest':>8} {'gc':>7} {'steps':>6} {'total':>9}  cause (ms)")
    causes = sorted(steps.causes.items(), key=lambda one: -one[1].longest)
    for name, cause in causes[:most]:
        longest, collecting, total = (
            1000.0 * value for value in (cause.longest, cause.collecting, cause.total)
        )
        print(f"{longest:>8.1f} {collecting:>7.1f} {cause.steps:>6} {total:>9.1f}  {name}")


def main() -> None:
    """Print the longest steps by cause."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--machines", type=int, default=3500)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--burst", type=int, default=5000, help="jobs that come while it runs")
    parser.add_argument("--rate", type=float, default=500.0, help="of them in a second")
    parser.add_argument("--room", type=int, default=1000, help="machines that may be launched")
    parser.add_argument("--seconds", type=float, default=60.0, help="on the controller's clock")
    parser.add_argument("--scale", type=float, default=1.0, help="of the controller's clock")
    parser.add_argument("--causes", type=int, default=25, help="how many to print")
    options = vars(parser.parse_args())
    causes = options.pop("causes")
    load = Load(**options)
    with asyncio.Runner(loop_factory=TimedLoop) as runner:
        steps = runner.run(measure(load))
    print(f"{load.machines:,} machines, {load.jobs:,} jobs, {load.burst:,} more at {load.rate:g}/s")
    print_steps(steps, causes)


if __name__ == "__main__":
    main()
