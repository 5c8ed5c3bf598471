"""Measures the time from a machine's first packet until its runner's listener is connected.

Run: `PYTHONPATH=. python benchmarks/first_packet.py [--machines 10] [--latency 0.1]`. Runs real agents in real
time, one after the other, each with a job that waits for it: attestation, health checks, registration,
assignment, acknowledgement, listener. GitHub takes `--latency` seconds for each call. Prints one JSON object.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from lab.github.settings import JobSpec
from lab.laboratory import LabFleet, Laboratory

LABEL = "linux.gpu"
LOOK_EVERY = 0.002


@dataclass(frozen=True, slots=True)
class Findings:
    """The results in real seconds, with GitHub's latency."""

    machines: int
    github_latency: float
    p50: float
    worst: float
    github_calls_a_machine: float


async def measure(options: argparse.Namespace) -> Findings:
    """Measure one machine after the other. Raises TimeoutError if a machine does not come up."""
    section = {"on": [{"provider": "lab", "instance_types": ["g5.xlarge"]}]}
    fleet = LabFleet(
        "acme", ("widgets",), {LABEL: section}, scale=1.0, github_latency=options.latency
    )
    async with Laboratory(fleet) as lab:
        lab.ec2.delays.pending = 1.0
        await lab.start_controller()
        before = lab.github.calls.total()
        took = [await _one(lab, number) for number in range(options.machines)]
        calls = lab.github.calls.total() - before
    took.sort()
    return Findings(
        machines=len(took),
        github_latency=options.latency,
        p50=round(took[len(took) // 2], 2),
        worst=round(took[-1], 2),
        github_calls_a_machine=round(calls / len(took), 1),
    )


async def _one(lab: Laboratory, number: int) -> float:
    received = lab.ec2.metadata_requests
    (job,) = lab.github.push([JobSpec(f"job-{number}", "acme/widgets", (LABEL,), 1.0)])
    async with asyncio.timeout(120.0):
        await _until(lambda: lab.ec2.metadata_requests > received)
        began = time.monotonic()
        await _until(lambda: any(runner.online for runner in lab.github.runners))
        took = time.monotonic() - began
        await _until(lambda: bool(job.conclusion) and not lab.left())
    return took


async def _until(true: Callable[[], bool]) -> None:
    while True:
        if true():
            return
        await asyncio.sleep(LOOK_EVERY)


def main() -> int:
    """Measure once."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--machines", type=int, default=10)
    parser.add_argument("--latency", type=float, default=0.1, help="seconds a call to GitHub takes")
    print(json.dumps(asdict(asyncio.run(measure(parser.parse_args()))), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
