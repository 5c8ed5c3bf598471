"""The controllers of a laboratory: one, or several replicas behind a balancer."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from autoscaler.controller.system import SystemClock
from lab.controller_process import ControllerProcess
from lab.fleet import LabFleet, Surroundings, fleet_settings
from lab.ports import free_ports
from lab.replicas.balancer import Balancer

_LEADS, _EPOCH = "autoscaler_leader", "autoscaler_lease_epoch"
_PATIENCE = 2.0
"""Real seconds for a replica's metrics: one that is suspended does not answer."""


class Leader(NamedTuple):
    """The replica that leads, the number of its leadership, and its metrics."""

    process: ControllerProcess
    epoch: float
    metrics: dict[str, float]


Make = Callable[[int, str, Sequence[str]], ControllerProcess]
"""Makes a controller from its number, its URL and its program."""


class Controllers:
    """The controllers of one fleet. `url` is where GitHub, machines and operators reach them."""

    def __init__(
        self,
        processes: Sequence[ControllerProcess],
        balancer: Balancer | None,
        make: Make | None = None,
    ) -> None:
        """`balancer` is None for one controller, which is then reached directly.

        `make` makes more replicas.
        """
        self.processes = list(processes)
        self._make = make
        self.url = processes[0].url if balancer is None else balancer.url
        self._balancer = balancer
        self._epoch = 0.0

    async def start(self) -> None:
        """Start all, and wait until each is ready. Raises RuntimeError with the end of a log."""
        for process in self.processes:
            await process.start()
        await asyncio.gather(*(process.ready() for process in self.processes))
        if self._balancer is not None:
            await self._balancer.start()

    async def add(self, program: Sequence[str]) -> ControllerProcess:
        """Start one more replica with this program. Once it is ready, it gets requests, too.

        Raises RuntimeError with the end of its log.
        """
        assert self._balancer is not None
        assert self._make is not None
        [port] = free_ports(1)
        process = self._make(len(self.processes) + 1, f"http://127.0.0.1:{port}", program)
        self.processes.append(process)
        await process.start()
        await process.ready()
        self._balancer.add(process.url)
        return process

    def take_out(self, process: ControllerProcess) -> None:
        """Send no new request to a replica, as a Service does once its pod is being deleted."""
        assert self._balancer is not None
        self._balancer.remove(process.url)

    async def leader(self) -> Leader | None:
        """Return the replica that leads, or None.

        A replica that was suspended may still say so after another one has taken over.
        """
        asked = [asyncio.create_task(_as_leader(process)) for process in self.processes]
        try:
            for answer in asyncio.as_completed(asked):
                leader = await answer
                if leader is not None and leader.epoch >= self._epoch:
                    self._epoch = leader.epoch
                    return leader
        finally:
            for one in asked:
                one.cancel()
        return None

    async def metrics(self) -> dict[str, float]:
        """Return the leader's metrics by `name{labels}`, or nothing while none leads."""
        leader = await self.leader()
        return {} if leader is None else leader.metrics

    @property
    def failed(self) -> ControllerProcess | None:
        """A controller that exited by itself, or None."""
        return next((one for one in self.processes if one.failed), None)

    async def terminate(self) -> int:
        """Send SIGTERM to all and wait for their exit. Return the first exit status that is not 0, or 0."""
        if self._balancer is not None:
            await self._balancer.close()
        statuses = await asyncio.gather(*(one.terminate() for one in self.processes))
        return next((status for status in statuses if status), 0)


def make_controllers(
    fleet: LabFleet, folder: Path, clock: SystemClock, around: Surroundings
) -> Controllers:
    """Write a fleet.yaml for each controller, and return the controllers, which are not started."""
    public, *own = free_ports(fleet.replicas + 1)
    urls = [f"http://127.0.0.1:{port}" for port in own]
    balancer = Balancer(public, urls, fleet.probe) if fleet.replicas > 1 else None

    def make(number: int, url: str, program: Sequence[str]) -> ControllerProcess:
        suffix = "" if number == 1 else f"-{number}"
        path = folder / f"fleet{suffix}.yaml"
        public_url = url if balancer is None else balancer.url
        settings = fleet_settings(fleet, url.removeprefix("http://"), public_url, around)
        path.write_text(yaml.safe_dump(settings, sort_keys=False))
        name = "the controller" if balancer is None else f"replica {number}"
        log = folder / f"controller{suffix}.log"
        return make_controller(program, clock, around.ec2, path, url, log, name)

    processes = [make(number, url, fleet.program) for number, url in enumerate(urls, 1)]
    return Controllers(processes, balancer, make)


def make_controller(
    program: Sequence[str],
    clock: SystemClock,
    ec2: str,
    fleet_file: Path,
    url: str,
    log: Path,
    name: str = "the controller",
) -> ControllerProcess:
    """Return a controller that is not started. `program` is that of `LabFleet`, `ec2` is EC2's URL."""
    words = [*program, "-c", str(fleet_file)]
    words += ["--clock-scale", str(clock.scale), "--clock-epoch", repr(clock.epoch)]
    environment = {
        "AWS_ENDPOINT_URL": ec2,
        "AWS_ACCESS_KEY_ID": "lab",
        "AWS_SECRET_ACCESS_KEY": "lab",  # not a secret: the lab accepts any value
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "no_proxy": "127.0.0.1",
    }
    return ControllerProcess(words, url, log, environment, name)


def is_follower(metrics: Mapping[str, float]) -> bool:
    """Return whether these are the metrics of a replica that does not lead."""
    return metrics.get(_LEADS) == 0


async def _as_leader(process: ControllerProcess) -> Leader | None:
    metrics = await process.metrics(_PATIENCE)
    return Leader(process, metrics[_EPOCH], metrics) if metrics.get(_LEADS) else None
