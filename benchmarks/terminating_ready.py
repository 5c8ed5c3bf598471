"""Measures how long it takes to terminate a thousand ready machines at once.

Run: `PYTHONPATH=. python benchmarks/terminating_ready.py [--machines 1000]`. A schedule's minimum keeps the
machines ready for a few minutes of real time. When the schedule ends, all of them pass their idle timeout at
the same moment. EC2's published request limits apply. Prints one JSON object.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

from lab.ec2.throttling import PUBLISHED
from lab.laboratory import LabFleet, Laboratory

LOOK_EVERY = 0.05
SETTLED = 5.0
KEPT_FOR = 180.0
SKU = "linux.gpu"


@dataclass(frozen=True, slots=True)
class Findings:
    """The results. `seconds` is from the schedule's end to the end of the last machine.

    The answer to its poll makes a machine power itself off. The controller also sends TerminateInstances.
    """

    machines: int
    seconds: float
    terminate_calls: int
    throttled: int


async def measure(options: argparse.Namespace) -> Findings:
    """Become ready, wait for the schedule's end, and watch. Raises TimeoutError."""
    fires_at = (time.time() // 60 + 1) * 60
    async with Laboratory(_fleet(options.machines, fires_at)) as lab:
        lab.ec2.throttling.limits = PUBLISHED
        await lab.start_controller()
        async with asyncio.timeout(KEPT_FOR + 300.0):
            await _until("ready", options.machines, lambda: _ready(lab))
            before = lab.ec2.calls["TerminateInstances"]
            await _until("ending", options.machines, lambda: _ending(lab))
            took = time.time() - fires_at - KEPT_FOR
            await asyncio.sleep(SETTLED)
        return Findings(
            machines=options.machines,
            seconds=round(took, 2),
            terminate_calls=lab.ec2.calls["TerminateInstances"] - before,
            throttled=sum(lab.ec2.throttling.refused.values()),
        )


def _fleet(machines: int, fires_at: float) -> LabFleet:
    start = time.gmtime(fires_at)
    minimum = {
        "cron": f"{start.tm_min} {start.tm_hour} * * *",
        "timezone": "UTC",
        "for": f"{KEPT_FOR:g}s",
        "min": machines,
    }
    section: dict[str, Any] = {
        "on": [{"provider": "lab", "instance_types": ["g5.xlarge"]}],
        "idle": {"timeout": "1s", "schedule": [minimum]},
    }
    return LabFleet("acme", ("widgets",), {SKU: section}, scale=1.0, most_machines=machines)


async def _until(what: str, many: int, count: Callable[[], Awaitable[int]]) -> None:
    shown = -1
    while (now := await count()) < many:
        if now != shown:
            print(f"{now} of {many} {what}", file=sys.stderr)
        shown = now
        await asyncio.sleep(LOOK_EVERY)


async def _ready(lab: Laboratory) -> int:
    metrics = await lab.controller.metrics()
    return int(metrics.get(f'autoscaler_machines{{sku="{SKU}",state="ready"}}', 0.0))


async def _ending(lab: Laboratory) -> int:
    return sum(instance.ended_at is not None for instance in lab.ec2.instances)


def main() -> int:
    """Measure once."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--machines", type=int, default=1000)
    print(json.dumps(asdict(asyncio.run(measure(parser.parse_args()))), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
