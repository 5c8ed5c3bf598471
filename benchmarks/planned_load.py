"""How soon deliveries are durable while a fleet is planned, without the laboratory on the same cores.

Run: `PYTHONPATH=. python benchmarks/planned_load.py [--machines 3500] [--jobs 10000] [--room 0] [--rate
1000] [--seconds 60] [--skus 20] [--scrape-every 0] [--page-every 0]`. The controller, its store and its
webhook endpoint are the product's own, in this process. At the start, this number of machines is at work,
and this number of jobs waits. `--room` more machines may be launched. GitHub and EC2 are in memory
(`full_fleet.py`). A second process sends deliveries at a steady rate. Half of them queue jobs and half of
them end these jobs, so that the controller plans all the while. With `--scrape-every SECONDS` a client
reads /metrics of the controller as often, to whose own series those of a busy week were added
(`scrape_cost.play`). With `--page-every SECONDS` another client, which has signed in, reads the first page of
the console as often. Prints one JSON object.

`--limits` measures the fleet of `LIMITED` and prints each measured value beside the one that is wanted instead.
The exit status is then 1 if one is over.

`live_fleet.py` measures the same with a whole laboratory beside it: a GitHub, an EC2 and thousands of machines,
which compete with the controller for the host's cores.
"""

import argparse
import asyncio
import json
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path

import aiohttp

from autoscaler.app.event_loop import new_event_loop, report_lag
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.controller.reconciler import Pace
from autoscaler.github.webhook import parse_workflow_job, verify_signature
from autoscaler.model.deliveries import DeliveryAnswer
from autoscaler.model.identifiers import Address
from autoscaler.observability.logs import LogLevel, LogStyle, configure_logging
from autoscaler.server.health import Exposition, HealthEndpoint
from autoscaler.server.listening.serving import Serving
from autoscaler.server.listening.settings import ServerSettings
from autoscaler.server.webhook import WebhookEndpoint
from benchmarks.console_cost import console_of, signed_in
from benchmarks.crowded_fleet import REPOSITORY, Crowd
from benchmarks.full_fleet import FullFleet
from benchmarks.open_load import Answers, Stream, send
from benchmarks.scrape_cost import REPOSITORIES, play, series_in

SECRET = b"benchmark"
LABEL = "label-00"
JOBS_A_RUN = 75


@dataclass(frozen=True, slots=True)
class Load:
    """The options of the same names."""

    machines: int
    jobs: int
    room: int
    rate: float
    seconds: float
    skus: int = 20
    scrape_every: float = 0.0
    page_every: float = 0.0


LIMITED = Load(3500, 10_000, 0, 500.0, 60.0, skus=66, scrape_every=1.0, page_every=1.0)
"""The fleet for which limits are stated."""


@dataclass(frozen=True, slots=True)
class Findings:
    """`durable_*` are milliseconds from when a delivery was due to its 2xx. `plans` were made meanwhile.

    `*_cpu_us` is the CPU time in microseconds a delivery: of the event loop's thread, of all threads of the
    controller, and of the process that sends. `loop_lag_max_ms` is the longest delay of a timer, and
    `scrape_max_ms` the longest time of a scrape for its client; 0 if there was none. `page_max_ms` is the same
    of the console's first page. `series` are those of the last scrape, buckets of histograms included.
    """

    deliveries: int
    deliveries_refused: int
    plans: int
    loop_cpu_us: float
    controller_cpu_us: float
    sender_cpu_us: float
    loop_lag_max_ms: float
    durable_p50_ms: float
    durable_p99_ms: float
    durable_max_ms: float
    scrape_max_ms: float = 0.0
    page_max_ms: float = 0.0
    series: int = 0


class _Telemetry(Telemetry):
    """Counts deliveries and plans, and keeps the longest lag."""

    def __init__(self) -> None:
        self.deliveries: Counter[DeliveryAnswer] = Counter()
        self.lag = 0.0
        self.plans = 0

    def delivery(self, answer: DeliveryAnswer) -> None:
        self.deliveries[answer] += 1

    def event_loop_lag(self, seconds: float) -> None:
        self.lag = max(self.lag, seconds)

    async def count_plans(self, fleet: FullFleet) -> None:
        """Count until cancelled. Passes of the control loop are at least 35 ms apart."""
        before = fleet.turned_at
        while True:
            await asyncio.sleep(0.01)
            self.plans += fleet.turned_at != before
            before = fleet.turned_at


async def measure(load: Load) -> Findings:
    """Put a fleet that is there from the start under load. Raises what ended the controller."""
    crowd = Crowd(
        load.machines,
        load.jobs,
        most_machines=load.machines + load.room,
        jobs_a_run=JOBS_A_RUN,
        apart=0.0371,
        skus=load.skus,
    )
    telemetry = _Telemetry()
    with tempfile.TemporaryDirectory() as folder:
        fleet = FullFleet(crowd, 1.0, Pace(), parse_workflow_job, REPOSITORIES)
        async with fleet.at_work(Path(folder)):
            endpoint = WebhookEndpoint(
                lambda body, header: verify_signature(body, header, [SECRET]),
                fleet.intake.accept,
                fleet.clock,
                telemetry,
            )
            settings = ServerSettings(Address("127.0.0.1", 0))
            metrics = HealthEndpoint(tuple, tuple, _exposition(fleet))
            console = console_of(fleet.queries)
            async with Serving(settings, endpoint, [metrics, console]) as serving:
                return await _loaded(load, fleet, f"http://{serving.address}", telemetry)


def _exposition(fleet: FullFleet) -> Exposition:
    """Return what /metrics of a fleet shows, after a busy week of its SKUs."""
    metrics = fleet.telemetry
    play(metrics, fleet.skus)
    return lambda: (metrics.render(), metrics.content_type)


def compared(found: Findings) -> Iterator[tuple[str, float, float, bool]]:
    """Yield each value that has a limit: its name, the measured and the wanted value, and whether it is ok."""
    for name, measured, wanted in (
        ("deliveries durable, p99 (ms)", found.durable_p99_ms, 50.0),
        ("deliveries refused", found.deliveries_refused, 0.0),
        ("first page of the console, max (ms)", found.page_max_ms, 200.0),
        ("/metrics, max (ms)", found.scrape_max_ms, 300.0),
        ("/metrics, series with buckets", found.series, 5000.0),
    ):
        yield name, measured, wanted, measured <= wanted


async def _scrape(url: str, every: float, took: list[float], last: list[bytes]) -> None:
    """Read /metrics until cancelled, add how long each time took, and keep the last answer."""
    async with aiohttp.ClientSession(url) as client:
        await _read_often(client, "/metrics", every, took, last)


async def _read_page(url: str, every: float, took: list[float]) -> None:
    """Sign in, read the console's first page until cancelled, and add how long each time took."""
    async with signed_in(url) as client:
        await _read_often(client, "/", every, took, [])


async def _read_often(
    client: aiohttp.ClientSession, path: str, every: float, took: list[float], last: list[bytes]
) -> None:
    while True:
        began = time.perf_counter()
        async with client.get(path, allow_redirects=False) as answer:
            last[:] = [await answer.read()]
            if answer.status != HTTPStatus.OK:
                raise RuntimeError(f"{path} was answered {answer.status}")
        took.append(time.perf_counter() - began)
        await asyncio.sleep(every)


async def _loaded(load: Load, fleet: FullFleet, url: str, telemetry: _Telemetry) -> Findings:
    ahead = fleet.clock.now() - time.time()
    stream = Stream(f"{url}/webhook", SECRET, REPOSITORY, LABEL, load.rate, load.seconds, ahead)
    loop = asyncio.get_running_loop()
    scrapes, pages, exposed = [0.0], [0.0], [b""]
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as other:
        await loop.run_in_executor(other, time.time)  # the process has started
        watching = [
            loop.create_task(one) for one in (report_lag(telemetry), telemetry.count_plans(fleet))
        ]
        if load.scrape_every:
            watching.append(loop.create_task(_scrape(url, load.scrape_every, scrapes, exposed)))
        if load.page_every:
            watching.append(loop.create_task(_read_page(url, load.page_every, pages)))
        spent = time.thread_time(), time.process_time()
        answers: Answers = await loop.run_in_executor(other, send, stream)
        count = len(answers.waits_ms)
        loop_us, all_us = (
            round((now - before) / count * 1e6, 1)
            for before, now in zip(spent, (time.thread_time(), time.process_time()), strict=True)
        )
        for task in watching:
            if task.done():
                task.result()  # raises what ended it
            task.cancel()
    return Findings(
        deliveries=count,
        deliveries_refused=count - answers.statuses[202],
        plans=telemetry.plans,
        loop_cpu_us=loop_us,
        controller_cpu_us=all_us,
        sender_cpu_us=answers.cpu_us,
        loop_lag_max_ms=round(1000.0 * telemetry.lag, 1),
        durable_p50_ms=answers.quantile(50),
        durable_p99_ms=answers.quantile(99),
        durable_max_ms=answers.quantile(100),
        scrape_max_ms=round(1000.0 * max(scrapes), 1),
        page_max_ms=round(1000.0 * max(pages), 1),
        series=series_in(exposed[0]),
    )


def main() -> int:
    """Exit status 1 if a delivery was refused, or with `--limits` if a value is over its limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--machines", type=int, default=3500)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--room", type=int, default=0, help="machines that may be launched")
    parser.add_argument("--rate", type=float, default=1000.0, help="deliveries a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--skus", type=int, default=20)
    parser.add_argument("--scrape-every", type=float, default=0.0, help="seconds; 0: never")
    parser.add_argument("--page-every", type=float, default=0.0, help="seconds; 0: never")
    parser.add_argument("--limits", action="store_true", help="compare with the stated limits")
    options = vars(parser.parse_args())
    limits = options.pop("limits")
    load = LIMITED if limits else Load(**options)
    configure_logging(LogLevel.ERROR, LogStyle.CONSOLE)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        findings = runner.run(measure(load))
    if limits:
        rows = list(compared(findings))
        for name, measured, wanted, is_ok in rows:
            said = "ok" if is_ok else "over"
            print(f"{name:40}{measured:10,.1f}   wanted at most {wanted:7,.0f}   {said}")
        return 0 if all(is_ok for *_, is_ok in rows) else 1
    print(json.dumps(asdict(findings), indent=2))
    return 1 if findings.deliveries_refused else 0


if __name__ == "__main__":
    sys.exit(main())
