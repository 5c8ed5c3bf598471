"""A real Prometheus scrapes a controller: an alert fires during its fault, and resolves after it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import yaml

from autoscaler.model.catalogue import CapacityType
from autoscaler.observability.alert_rules import AlertParameters, alert_rules
from lab.ec2.instances import Pool
from lab.ec2.moto import MotoProcess
from lab.laboratory import LabFleet, Laboratory
from lab.ports import free_ports
from tests.lab.system.harness import at_rest, ec2_sku, job
from tests.lab.system.pace import PATIENCE, stretched, yielding
from tests.observability.prometheus import prometheus

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
SKU, INSTANCE_TYPE = "gpu", "g5.4xlarge"
SCALE = 1 / 60
"""The alert's delay of 15 minutes becomes 15 seconds."""
EVERY = "1s"


@dataclass
class Prometheus:
    """A running server. `url` is its address."""

    url: str
    log: Path

    async def firing(self) -> set[tuple[str, str]]:
        """Return the name and the SKU of each alert that fires."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.url}/api/v1/alerts") as answer,
        ):
            alerts = (await answer.json())["data"]["alerts"]
        return {
            (alert["labels"]["alertname"], alert["labels"].get("sku", ""))
            for alert in alerts
            if alert["state"] == "firing"
        }

    async def until(self, alert: tuple[str, str], *, fires: bool) -> None:
        """Return once the alert fires, or no longer does. Raises AssertionError with Prometheus' log."""
        try:
            async with asyncio.timeout(stretched(PATIENCE)):
                while (alert in await self.firing()) is not fires:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.2)
        except TimeoutError as error:
            raise AssertionError(self.log.read_text()) from error


@asynccontextmanager
async def running_prometheus(folder: Path, target: str) -> AsyncIterator[Prometheus]:
    """Start a Prometheus with the fleet's alerts that scrapes one address, and stop it."""
    (folder / "alerts.yaml").write_text(yaml.safe_dump(alert_rules(AlertParameters(scale=SCALE))))
    (folder / "prometheus.yml").write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": EVERY, "evaluation_interval": EVERY},
                "rule_files": ["alerts.yaml"],
                "scrape_configs": [
                    {"job_name": "autoscaler", "static_configs": [{"targets": [target]}]}
                ],
            }
        )
    )
    (port,) = free_ports(1)
    log = folder / "prometheus.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            prometheus(),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            stdout=output,
            stderr=output,
        )
    server = Prometheus(f"http://127.0.0.1:{port}", log)
    try:
        await _is_ready(server)
        yield server
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _is_ready(server: Prometheus) -> None:
    async with asyncio.timeout(stretched(PATIENCE)), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"{server.url}/-/ready") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)


async def test_an_alert_fires_while_ec2_has_no_capacity_and_resolves_after_it(
    moto: MotoProcess, tmp_path: Path
) -> None:
    fleet = LabFleet(
        "acme", ("widgets",), {SKU: ec2_sku(INSTANCE_TYPE)}, scale=yielding(60.0), most_machines=5
    )
    pools = [Pool(INSTANCE_TYPE, zone, CapacityType.ON_DEMAND) for zone in ZONES]
    async with Laboratory(fleet, moto) as lab:
        await lab.start_controller()
        target = urlsplit(lab.controller.url).netloc
        async with running_prometheus(tmp_path, target) as server:
            lab.github.push([job("runs", SKU, 30.0)])
            await at_rest(lab, PATIENCE)
            assert ("OutOfCapacity", SKU) not in await server.firing()
            for pool in pools:
                lab.ec2.faults.set_capacity(pool, 0)
            lab.github.push([job("waits", SKU, 30.0)])
            await server.until(("OutOfCapacity", SKU), fires=True)
            for pool in pools:
                lab.ec2.faults.set_capacity(pool, None)
            await server.until(("OutOfCapacity", SKU), fires=False)
            await at_rest(lab, PATIENCE)
