"""N jobs at once through a whole laboratory: a real controller, GitHub and EC2 on loopback.

Run: `python benchmarks/fleet_scale.py [--jobs 1000] [--skus 1] [--scale 10]
[--seconds 60] [--limits]`. `--scale` is lab seconds a real second, `--seconds` a job's length in lab
seconds; `--limits` puts GitHub's rate limits in force with the registration rate as shipped. Prints
one JSON object. The machines are spoken for by one process and share the host's cores with
everything else, so seconds are those of the whole world and not of the controller alone.
"""

import argparse
import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from autoscaler.model.catalogue import RegistrationRate
from lab.github.settings import JobSpec, Limits
from lab.laboratory import LabFleet, Laboratory

LOOK_EVERY = 0.2
MEMORY = "process_resident_memory_bytes"
GITHUB_REACHED = "GET /"
"""What machines ask of GitHub, beside the controller's calls."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Seconds are real ones; memory is the controller's largest, its AWS worker not counted."""

    jobs: int
    seconds_to_all_started: float
    seconds_to_all_gone: float
    wait_p50_lab_seconds: float
    wait_max_lab_seconds: float
    create_fleet_calls: int
    create_fleet_calls_a_job: float
    github_calls: int
    github_calls_a_job: float
    controller_mb: float
    wrong_jobs: int
    left: int


def fleet(options: argparse.Namespace) -> LabFleet:
    """One instance type for all SKUs: what differs is the number of classes."""
    section = {"on": [{"provider": "lab", "instance_types": ["g5.xlarge"]}]}
    rate = RegistrationRate()
    limited: dict[str, Any] = {
        "limits": Limits(),
        "registrations": {"burst": rate.burst, "per_second": rate.per_second},
    }
    return LabFleet(
        "acme",
        ("widgets",),
        {f"linux.{number}": section for number in range(options.skus)},
        scale=options.scale,
        most_machines=max(options.jobs, 101),
        **(limited if options.limits else {}),
    )


async def measure(options: argparse.Namespace) -> Findings:
    """Push everything at once and watch until nothing is left. Raises TimeoutError."""
    async with Laboratory(fleet(options)) as lab, asyncio.timeout(options.patience):
        await lab.start_controller()
        began = time.monotonic()
        jobs = lab.github.push(
            [
                JobSpec(f"j{n}", "acme/widgets", (f"linux.{n % options.skus}",), options.seconds)
                for n in range(options.jobs)
            ]
        )
        started, memory, calls = 0.0, 0.0, 0
        while lab.github.unfinished or lab.left():
            if not started and all(job.starts for job in jobs):
                started = time.monotonic() - began
            if lab.github.unfinished:
                calls = _github_calls(lab)
            memory = max(memory, (await lab.controller.metrics()).get(MEMORY, 0.0))
            await asyncio.sleep(LOOK_EVERY)
        gone = time.monotonic() - began
        waits = sorted((job.started_at or 0.0) - (job.queued_at or 0.0) for job in jobs)
        fleets = lab.ec2.calls["CreateFleet"]
        return Findings(
            jobs=len(jobs),
            seconds_to_all_started=round(started or gone, 1),
            seconds_to_all_gone=round(gone, 1),
            wait_p50_lab_seconds=round(waits[len(waits) // 2], 1),
            wait_max_lab_seconds=round(waits[-1], 1),
            create_fleet_calls=fleets,
            create_fleet_calls_a_job=round(fleets / len(jobs), 4),
            github_calls=calls,
            github_calls_a_job=round(calls / len(jobs), 3),
            controller_mb=round(memory / 1e6, 1),
            wrong_jobs=len(lab.wrong_jobs()),
            left=len(lab.left()),
        )


def _github_calls(lab: Laboratory) -> int:
    return sum(n for (route, _), n in lab.github.calls.items() if route != GITHUB_REACHED)


def main() -> int:
    """Exit status 1 unless every job ran once."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--skus", type=int, default=1)
    parser.add_argument("--scale", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--limits", action="store_true")
    parser.add_argument("--patience", type=float, default=600.0, help="real seconds for everything")
    findings = asyncio.run(measure(parser.parse_args()))
    print(json.dumps(asdict(findings), indent=2))
    return 1 if findings.wrong_jobs else 0


if __name__ == "__main__":
    sys.exit(main())
