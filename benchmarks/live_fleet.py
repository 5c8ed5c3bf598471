"""A controller with thousands of jobs and machines live: its memory, and how soon deliveries are durable.

Run: `PYTHONPATH=. python benchmarks/live_fleet.py [--machines 3500] [--jobs 5000] [--wave 500]
[--rate 500] [--seconds 20]`. A whole laboratory on loopback in real time: jobs come in waves until
every machine runs one and the others wait at the fleet's limit; then a second process sends
deliveries at a steady rate, half of which queue jobs and half of which end them, so that the
controller plans all the while. Prints one JSON object; memory is in MB of resident set, the AWS
worker's apart. GitHub's registrations and EC2's quotas, lifted here, would never let thousands of
machines boot in the same seconds; `--wave 5000` does it nevertheless.
"""

import argparse
import asyncio
import json
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass

import psutil

from benchmarks.open_load import Answers, Stream, send
from lab.github.records import Job
from lab.github.settings import JobSpec
from lab.laboratory import LabFleet, Laboratory

LABEL, REPOSITORY = "linux.gpu", "acme/widgets"
AN_HOUR = 3600.0
PASSES = "autoscaler_reconcile_duration_seconds_count"


@dataclass(frozen=True, slots=True)
class Findings:
    """`durable_*` are milliseconds from when a delivery was due to its 2xx.

    `*_cpu_us` is the CPU time, in microseconds a delivery, of the controller (its loop's thread
    and all its threads) and of the process that sends, while the load lasts.
    """

    machines: int
    jobs: int
    seconds_to_fill: float
    controller_mb: float
    controller_mb_under_load: float
    aws_worker_mb: float
    deliveries: int
    deliveries_refused: int
    plans_during_load: int
    controller_loop_cpu_us: float
    controller_cpu_us: float
    sender_cpu_us: float
    durable_p50_ms: float
    durable_p99_ms: float
    durable_max_ms: float


async def measure(options: argparse.Namespace) -> Findings:
    """Fill the fleet, weigh it, and put it under load. Raises TimeoutError if it does not fill."""
    section = {"on": [{"provider": "lab", "instance_types": ["g5.xlarge"]}]}
    fleet = LabFleet(
        "acme", ("widgets",), {LABEL: section}, scale=1.0, most_machines=options.machines
    )
    async with Laboratory(fleet) as lab:
        await lab.start_controller()
        began = time.monotonic()
        async with asyncio.timeout(options.patience):
            await _fill(lab, options)
        filled = time.monotonic() - began
        process = psutil.Process(lab.controller.pid)
        memory = _megabytes(process)
        before = (await lab.controller.metrics())[PASSES]
        busy = _cpu(process)
        answers = await _load(lab, options)
        loop_us, all_us = (
            round((after - spent) / len(answers.waits_ms) * 1e6, 1)
            for spent, after in zip(busy, _cpu(process), strict=True)
        )
        passes = (await lab.controller.metrics())[PASSES] - before
        return Findings(
            machines=len(lab.ec2.instances),
            jobs=options.jobs,
            seconds_to_fill=round(filled, 1),
            controller_mb=memory,
            controller_mb_under_load=_megabytes(process),
            aws_worker_mb=round(sum(map(_megabytes, process.children(recursive=True))), 1),
            deliveries=len(answers.waits_ms),
            deliveries_refused=len(answers.waits_ms) - answers.statuses[202],
            plans_during_load=int(passes),
            controller_loop_cpu_us=loop_us,
            controller_cpu_us=all_us,
            sender_cpu_us=answers.cpu_us,
            durable_p50_ms=answers.quantile(50),
            durable_p99_ms=answers.quantile(99),
            durable_max_ms=answers.quantile(100),
        )


async def _fill(lab: Laboratory, options: argparse.Namespace) -> None:
    """Have every machine at work, and the other jobs waiting."""
    jobs: list[Job] = []
    specs = [JobSpec(f"j{n}", REPOSITORY, (LABEL,), AN_HOUR) for n in range(options.jobs)]
    for first in range(0, options.jobs, options.wave):
        jobs += lab.github.push(specs[first : first + options.wave])
        while (started := sum(bool(job.starts) for job in jobs)) < min(len(jobs), options.machines):
            print(f"{started} of {options.machines} machines at work", file=sys.stderr)
            await asyncio.sleep(2.0)
    await asyncio.sleep(5.0)


async def _load(lab: Laboratory, options: argparse.Namespace) -> Answers:
    stream = Stream(
        f"{lab.controller.url}/webhook",
        (lab.folder / "webhook-secret").read_bytes(),
        REPOSITORY,
        LABEL,
        options.rate,
        options.seconds,
    )
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as other:
        return await asyncio.get_running_loop().run_in_executor(other, send, stream)


def _cpu(process: psutil.Process) -> tuple[float, float]:
    """CPU seconds so far of the process's first thread, which is the event loop's, and of all."""
    first = next(thread for thread in process.threads() if thread.id == process.pid)
    every = process.cpu_times()
    return first.user_time + first.system_time, every.user + every.system


def _megabytes(process: psutil.Process) -> float:
    return round(process.memory_info().rss / 1e6, 1)


def main() -> int:
    """Exit status 1 if a delivery was refused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--machines", type=int, default=3500)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--wave", type=int, default=500, help="jobs queued at once")
    parser.add_argument("--rate", type=float, default=500.0, help="deliveries a second")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--patience", type=float, default=600.0, help="seconds to fill the fleet")
    findings = asyncio.run(measure(parser.parse_args()))
    print(json.dumps(asdict(findings), indent=2))
    return 1 if findings.deliveries_refused else 0


if __name__ == "__main__":
    sys.exit(main())
