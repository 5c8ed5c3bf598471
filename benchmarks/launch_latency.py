"""Measures the time from a job's accepted delivery to its CreateFleet call, compared with an ideal fleet.

Run: `PYTHONPATH=. python benchmarks/launch_latency.py [--jobs-a-second 50] [--seconds 60] [--skus 1 20]`. Runs
a real controller, GitHub and EC2 on loopback in real time. Registrations are not limited, EC2's published
request bucket for CreateFleet applies, and no machine boots during the run.

Prints one JSON object for each number of SKUs. It contains how long jobs waited for the call, here and in an
ideal fleet with the same bucket (`launch_oracle.py`), and by how much the n-th launched job was later here. If
several SKUs wait for tokens, the two may launch jobs in another order, so single jobs are not compared.
"""

import argparse
import asyncio
import json
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from autoscaler.model.catalogue import Rate
from autoscaler.model.identifiers import Seconds
from benchmarks.launch_oracle import earliest, sent_at
from lab.github.settings import JobSpec
from lab.laboratory import APP_ID, LabFleet, Laboratory

REPOSITORY = "acme/widgets"
NEVER_BOOTS: Seconds = 86_400.0
RATE = Rate(50, 5.0)
"""CreateFleet's bucket: EC2 Developer Guide, "Request throttling", mutating calls."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The results in milliseconds, and counts."""

    skus: int
    jobs: int
    create_fleet_calls: int
    oracle_calls: int
    excess_p50_ms: float
    excess_p99_ms: float
    excess_max_ms: float
    wait_p50_ms: float
    wait_p99_ms: float
    oracle_wait_p50_ms: float
    oracle_wait_p99_ms: float


async def measure(skus: int, options: argparse.Namespace) -> Findings:
    """Run one lab for a minute of jobs. Raises TimeoutError if a job's machine is not requested."""
    section = {"on": [{"provider": "lab", "instance_types": ["g5.xlarge"]}]}
    fleet = LabFleet(
        "acme",
        ("widgets",),
        {f"gpu.{number}": section for number in range(skus)},
        scale=1.0,
        most_machines=100_000,
    )
    async with Laboratory(fleet) as lab:
        lab.ec2.delays.pending = NEVER_BOOTS
        await lab.start_controller()
        jobs = await _push(lab, skus, options)
        async with asyncio.timeout(options.patience):
            while (asked := len(lab.ec2.instances)) < jobs:
                print(f"{asked} of {jobs} machines asked for", file=sys.stderr)
                await asyncio.sleep(1.0)
        accepted, calls = _accepted(lab), _calls(lab)
        return _compare(skus, accepted, calls)


async def _push(lab: Laboratory, skus: int, options: argparse.Namespace) -> int:
    """Queue jobs one by one at random moments. Return their number."""
    choice = random.Random(options.seed)
    clock = asyncio.get_running_loop()
    moment, end, pushed = clock.time(), clock.time() + options.seconds, 0
    while (moment := moment + choice.expovariate(options.jobs_a_second)) < end:
        await asyncio.sleep(max(0.0, moment - clock.time()))
        label = f"gpu.{choice.randrange(skus)}"
        lab.github.push([JobSpec(f"job-{pushed}", REPOSITORY, (label,), 60.0)])
        pushed += 1
    return pushed


def _accepted(lab: Laboratory) -> list[tuple[float, str]]:
    """Return for each queued job when its delivery was answered, and its SKU."""
    found = []
    for delivery in lab.github.delivery_log(APP_ID):
        if delivery.message.action == "queued" and delivery.succeeded:
            body = json.loads(delivery.message.body())
            found.append(
                (delivery.delivered_at + delivery.duration, body["workflow_job"]["labels"][0])
            )
    return sorted(found)


def _calls(lab: Laboratory) -> dict[str, list[tuple[float, int]]]:
    """Return each SKU's CreateFleet calls: when each reached EC2, and the number of machines in it."""
    machines = Counter((i.tags["autoscaler:sku"], i.client_token) for i in lab.ec2.instances)
    calls: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for (sku, token), count in machines.items():
        calls[sku].append((lab.ec2.first_sent[token], count))
    return calls


def _compare(
    skus: int, accepted: list[tuple[float, str]], calls: dict[str, list[tuple[float, int]]]
) -> Findings:
    known = [moment for moment, _ in accepted]
    ideal, real = earliest(accepted, RATE), sent_at(accepted, calls)
    excess = _after(sorted(ideal), sorted(real))
    waits, oracle = _after(known, real), _after(known, ideal)
    return Findings(
        skus=skus,
        jobs=len(accepted),
        create_fleet_calls=sum(map(len, calls.values())),
        oracle_calls=len(set(ideal)),
        excess_p50_ms=_quantile(excess, 50),
        excess_p99_ms=_quantile(excess, 99),
        excess_max_ms=_quantile(excess, 100),
        wait_p50_ms=_quantile(waits, 50),
        wait_p99_ms=_quantile(waits, 99),
        oracle_wait_p50_ms=_quantile(oracle, 50),
        oracle_wait_p99_ms=_quantile(oracle, 99),
    )


def _after(earlier: Sequence[float], later: Sequence[float]) -> list[float]:
    return sorted(1000.0 * (b - a) for a, b in zip(earlier, later, strict=True))


def _quantile(ordered: Sequence[float], percent: int) -> float:
    return round(ordered[min(len(ordered) * percent // 100, len(ordered) - 1)], 1)


def main() -> int:
    """Measure each number of SKUs in turn."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs-a-second", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--skus", type=int, nargs="+", default=[1, 20])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--patience", type=float, default=60.0, help="seconds for what is left")
    options = parser.parse_args()
    for skus in options.skus:
        print(json.dumps(asdict(asyncio.run(measure(skus, options))), indent=2), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
