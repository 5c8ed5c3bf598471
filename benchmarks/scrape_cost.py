"""Measures /metrics of a large fleet: its series, its size, and the time of a scrape and of updates.

Run: `PYTHONPATH=. python benchmarks/scrape_cost.py [--every-reason]`. The fleet has 66 SKUs, 3,500 machines and
10,000 jobs. Its counters have what a busy week brings: every SKU meets the reasons of `USUAL`, and every third
one, which launches spot machines and GPUs, also those of `SPOT`. With `--every-reason` each SKU has met every
reason of every list, which is the most that there can be.
"""

import argparse
import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import product
from typing import Any

from autoscaler.controller.reporting.fleet_counts import fleet_counts
from autoscaler.ledger.ledger import Ledger
from autoscaler.model.accounting import FailureCause, MachineUse, RunState, WaitStage
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.identifiers import ProviderName, SkuName
from autoscaler.model.jobs.job import Admission
from autoscaler.model.jobs.runner_group_excess import OUTSIDE_ACCESS_REASONS
from autoscaler.model.machines.failures import HEALTH_CHECKS, FailureClass
from autoscaler.model.machines.interruptions import NoticeKind, RerunOutcome
from autoscaler.model.machines.machine import ExitReason, TerminationReason
from autoscaler.observability.call_metrics import CONCLUSIONS
from autoscaler.observability.metrics import PrometheusTelemetry
from autoscaler.planner.planner import plan
from autoscaler.server.health import joined
from autoscaler.views.offerings import offerings_on_hold
from benchmarks.crowded_fleet import EAST, NOW, Crowd, crowded

WEST = ProviderName("west")
SKUS = 66
REPOSITORIES = [f"acme/repository-{number}" for number in range(5)]
IMAGES = ["ami-0123456789abcdef0", "ami-0123456789abcdef1"]
"""The image of a SKU, and its canary."""

TRIES = 15

USUAL = frozenset(
    {
        *("success", "failure", "cancelled"),
        *(FailureCause.CODE, FailureCause.INFRASTRUCTURE),
        *(TerminationReason.IDLE, TerminationReason.POWERED_OFF, TerminationReason.EXITED),
        *(ExitReason.EXITED, ExitReason.HUNG),
        CapacityType.ON_DEMAND,
        FailureClass.CAPACITY,
    }
)
SPOT = frozenset(
    {
        *(CapacityType.SPOT, NoticeKind.SPOT_INTERRUPTION, NoticeKind.REBALANCE_RECOMMENDATION),
        *(TerminationReason.INTERRUPTED, TerminationReason.FAILED, ExitReason.STOPPED),
        *(FailureClass.HEALTH_CHECK, FailureClass.BOOT_DEADLINE, "gpu_count", "gpu_xid"),
        *(RerunOutcome.ACCEPTED, RerunOutcome.NOT_KILLED),
    }
)
Words = Callable[[Iterable[StrEnum | str]], Iterator[Any]]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every-reason", action="store_true", help="every reason for every SKU")
    ledger, telemetry = large_fleet(every=parser.parse_args().every_reason)
    skus = tuple(ledger.state.catalogue.skus)
    fleet = ledger.fleet(NOW)
    reasons = plan(fleet).waiting
    text = b"".join(telemetry.render())
    print(f"{len(skus)} SKUs, 3,500 machines, 10,000 jobs")
    print(f"{'series':44}{series_in(text):8,}")
    print(f"{'size':44}{len(text) / 1024:8,.0f} KiB")
    figures: dict[str, tuple[Callable[[], object], float]] = {
        "a scrape": (lambda: b"".join(telemetry.render()), 1e3),
        "counts and gauges of a turn of the loop": (
            lambda: telemetry.fleet(fleet_counts(ledger.state, NOW, reasons)),
            1e3,
        ),
        "offerings on hold, every 15 seconds": (lambda: offerings_on_hold(fleet), 1e3),
        "the start of one job": (lambda: _starts(telemetry, skus[0], REPOSITORIES[0]), 1e3),
    }
    for name, (work, scale) in figures.items():
        print(f"{name:44}{scale * _cheapest(work):8.3f} ms")
    print(
        f"{'delay of timers during a scrape, p99':44}{1e3 * asyncio.run(_lag(telemetry)):8.3f} ms"
    )


def large_fleet(*, every: bool = False) -> tuple[Ledger, PrometheusTelemetry]:
    """Return the fleet and its metrics after a busy week, or after every reason of every SKU."""
    ledger = crowded(Crowd(3_500, 10_000, skus=SKUS, most_machines=3_500, a_request=53))
    skus = tuple(ledger.state.catalogue.skus)
    telemetry = PrometheusTelemetry(skus, [EAST, WEST], "1.0.0", REPOSITORIES)
    play(telemetry, skus, every=every)
    reasons = plan(ledger.fleet(NOW)).waiting
    telemetry.fleet(fleet_counts(ledger.state, NOW, reasons))
    return ledger, telemetry


def series_in(text: bytes) -> int:
    """Return the number of series in a scrape."""
    return sum(1 for line in text.splitlines() if line and not line.startswith(b"#"))


async def _lag(telemetry: PrometheusTelemetry) -> float:
    """Return the 99th percentile of the delays of timers during scrapes, in seconds."""
    scrapes = asyncio.create_task(_scrape(telemetry))
    loop = asyncio.get_running_loop()
    delays = []
    while not scrapes.done():
        due = loop.time() + 0.001
        await asyncio.sleep(0.001)
        delays.append(loop.time() - due)
    return sorted(delays)[int(0.99 * len(delays))]


async def _scrape(telemetry: PrometheusTelemetry) -> None:
    for _ in range(20):
        await asyncio.to_thread(joined, telemetry.render())


def _cheapest(work: Callable[[], object]) -> float:
    """Return the least CPU time of several runs, in seconds."""
    times = []
    for _ in range(TRIES):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def play(telemetry: PrometheusTelemetry, skus: Sequence[SkuName], *, every: bool = False) -> None:
    """Report what happened to each SKU."""
    for number, sku in enumerate(skus):
        reasons = USUAL | SPOT if number % 3 == 0 else USUAL

        def met(
            known: Iterable[StrEnum | str], these: frozenset[StrEnum | str] = reasons
        ) -> Iterator[Any]:
            return (one for one in known if every or one in these)

        repository = REPOSITORIES[number % len(REPOSITORIES)]
        _play_jobs(telemetry, sku, repository, met)
        _play_machines(telemetry, sku, (EAST, WEST) if every else (EAST,), met)
    _play_calls(telemetry)


def _play_jobs(telemetry: PrometheusTelemetry, sku: SkuName, repository: str, met: Words) -> None:
    _starts(telemetry, sku, repository)
    for conclusion in met(CONCLUSIONS):
        telemetry.job_completed(sku, repository, conclusion)
    for cause in met(FailureCause):
        telemetry.job_failed(sku, cause)
    for use in MachineUse:
        telemetry.machine_used(sku, use, 60.0, 0.1, repository)
    for outcome in met(RerunOutcome):
        telemetry.rerun(sku, outcome)
    for admission in met(one for one in Admission if one.is_refusal):
        telemetry.job_refused(sku, admission)
    for outside in met(OUTSIDE_ACCESS_REASONS):
        telemetry.job_outside_access(sku, outside)


def _play_machines(
    telemetry: PrometheusTelemetry, sku: SkuName, providers: Iterable[ProviderName], met: Words
) -> None:
    for provider, kind in product(providers, met(CapacityType)):
        telemetry.launches(sku, provider, kind, 10)
        for failure in met(FailureClass):
            telemetry.launch_failures(sku, provider, kind, failure, 1)
    for reason in met(TerminationReason):
        telemetry.machine_terminated(sku, reason)
    for left in met(ExitReason):
        telemetry.runner_exited(sku, left)
    for check, image in product(met(HEALTH_CHECKS), IMAGES):
        telemetry.health_check_failed(sku, check, image)
    for notice in met(one for one in NoticeKind if one is not NoticeKind.STATE_CHANGE):
        telemetry.machine_interrupted(sku, notice)


def _play_calls(telemetry: PrometheusTelemetry) -> None:
    """Report calls of GitHub and of providers, and what the process does."""
    for endpoint, status in product(range(15), ("200", "304", "502")):
        telemetry.github_call(f"GET /route/{endpoint}", status, 0.1)
    for app, resource in product((1, 2), ("core", "actions_runner_registration")):
        telemetry.github_budget(app, "acme", resource, 4000, 5000)
    for provider, operation, outcome in product(
        (EAST, WEST), range(12), ("ok", "RequestLimitExceeded")
    ):
        telemetry.provider_call(provider, f"Operation{operation}", outcome, 0.1)
    for provider, zone in product((EAST, WEST), "abc"):
        telemetry.machine_launched(provider, CapacityType.SPOT, zone)
    for step, said in product(
        ("attest", "stage", "poll", "health-checks", "heartbeat", "exited"),
        ("ok", "nonce", "not_known_yet"),
    ):
        telemetry.bootstrap(step, said)
    for state in RunState:
        telemetry.run_time(REPOSITORIES[0], state, 60.0)
    telemetry.run_ended(REPOSITORIES[0], 600.0)
    for write in ("commit", "accept"):
        telemetry.store_write(write, 0.002)
    telemetry.store_size(10**9, 10**7)
    telemetry.delivery_lag(1.0)
    telemetry.reconciliation(0.01)


def _starts(telemetry: PrometheusTelemetry, sku: SkuName, repository: str) -> None:
    stages = [one for one in WaitStage if one is not WaitStage.OTHER]
    telemetry.job_started(sku, repository, 60.0)
    telemetry.job_waited(sku, dict.fromkeys(stages, 10.0))


if __name__ == "__main__":
    main()
