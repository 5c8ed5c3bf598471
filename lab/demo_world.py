"""The command `autoscaler-lab`: plays GitHub and EC2 for the folder of `autoscaler init --demo`.

`autoscaler serve` runs beside it, unmodified and on the real clock.
"""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

import typer
from cryptography.hazmat.primitives import serialization

from autoscaler.app.agent_file import build_agent
from autoscaler.config import ConfigurationError, load
from autoscaler.controller.system import SystemClock
from autoscaler.model.catalogue import OperatingSystem
from autoscaler.operator_commands.usage import PlainCommand
from autoscaler.providers.ec2.instance_types import instance_type
from autoscaler.providers.ec2.tags import PUBLISHED
from autoscaler.providers.registry import provider_kinds
from autoscaler.setup import choices, demo
from autoscaler.setup.github_app import NotFinishedError
from autoscaler.setup.private_files import PUBLIC, NotWrittenError, replace
from lab.ec2.lifecycle import RUNNER_TAG
from lab.ec2.service import LabEc2
from lab.first_steps import FirstSteps
from lab.github.server import LabGitHub
from lab.github.settings import JobSpec, LabApp, LabGitHubOptions, LabOrganization, LabRunnerGroup
from lab.host_check import HostTooSmallError, check_host
from lab.machine_host import RUNNER_VERSION
from lab.machines.process import ProcessHost

IMAGE = "autoscaler/linux-gpu-x64-1"
JOB_SECONDS = 10.0
_SPOT = 0.4
"""What a spot instance costs, as a part of the on-demand price."""

_LOOK_EVERY = 0.25

command = typer.Typer(add_completion=False)


class NotPlayedError(Exception):
    """GitHub and EC2 cannot be played for this folder. The text says why and what to do."""


@dataclass(frozen=True, slots=True)
class DemoFiles:
    """What the folder of a demo says: the ports of GitHub and EC2, the App's public key, the SKUs."""

    folder: Path
    github: int
    ec2: int
    public_key: bytes
    skus: tuple[str, ...]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the folder. Raises NotPlayedError, ConfigurationError and OSError."""
        aws = folder / demo.AWS
        if not aws.exists():
            raise NotPlayedError(f"{folder}: is not a demo's; run: autoscaler init --demo {folder}")
        variables = dict(line.split("=", 1) for line in aws.read_text().splitlines())
        settings = load(folder / "fleet.yaml", provider_kinds(), files=False).settings
        key = serialization.load_pem_private_key((folder / choices.KEY).read_bytes(), None)
        public_key = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return cls(
            folder,
            _port(settings.github.api_url),
            _port(variables.get(demo.ENDPOINT, "")),
            public_key,
            tuple(settings.skus),
        )


class DemoWorld:
    """A GitHub with one job and an EC2. Use it as an async context manager; it removes what it made."""

    def __init__(self, files: DemoFiles, ids_after: int) -> None:
        """`ids_after` is that of `LabGitHubOptions`: the controller's store outlives this GitHub."""
        self.github: LabGitHub
        self.ec2: LabEc2
        self._files = files
        self._ids_after = ids_after
        self._closing = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start EC2 and GitHub, and queue a job for each SKU. Raises NotPlayedError."""
        async with AsyncExitStack() as stack:
            host = ProcessHost(_machines_folder(stack), build_agent())
            stack.push_async_callback(host.close)
            clock = SystemClock()
            self.ec2 = LabEc2(host, clock, port=self._files.ec2)
            stack.push_async_callback(self.ec2.close)
            await _listening(self.ec2.start, self._files.ec2)
            await self._furnish()
            options = LabGitHubOptions(port=self._files.github, ids_after=self._ids_after)
            self.github = LabGitHub(
                [LabApp(demo.APP_ID, self._files.public_key, "")],
                [LabOrganization(demo.OWNER, (demo.REPOSITORY,), (LabRunnerGroup(demo.GROUP),))],
                clock,
                options,
            )
            stack.push_async_callback(self.github.close)
            await _listening(self.github.start, self._files.github)
            self.github.push([_job(sku) for sku in self._files.skus])
            self._closing = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End all machines, and stop GitHub and EC2."""
        await self._closing.aclose()

    async def _furnish(self) -> None:
        """Put into EC2 what fleet.yaml names: the network, the image, the price, the certificate."""
        network = await self.ec2.seed_network(1, demo.NETWORK_SEED)
        if (network.subnets, network.security_group) != ((demo.SUBNET,), demo.SECURITY_GROUP):
            raise NotPlayedError(
                "the installed moto gives its networks other IDs than the demo's; install the version that "
                "the extra `demo` names"
            )
        self.ec2.images.add(
            IMAGE, snapshot_gb=8, tags={RUNNER_TAG: RUNNER_VERSION, PUBLISHED: "yes"}
        )
        dollars = instance_type(demo.INSTANCE_TYPE).dollars_per_hour(OperatingSystem.LINUX)
        self.ec2.prices.set_on_demand(demo.INSTANCE_TYPE, dollars)
        self.ec2.prices.set_spot(demo.INSTANCE_TYPE, network.zones[0], dollars * _SPOT)
        replace(self._files.folder / demo.IDENTITY, self.ec2.certificate_pem, PUBLIC)


async def play(files: DemoFiles, stopped: asyncio.Event, say: Callable[[str], None]) -> None:
    """Play GitHub and EC2 until `stopped`, and say each step of the job. Raises NotPlayedError."""
    async with DemoWorld(files, int(time.time())) as world:
        steps = FirstSteps(world.github, world.ec2, None, files.skus, 1.0)
        say(
            "GitHub and EC2 are up, until Ctrl-C. In another terminal, run the next command of init."
        )
        while not stopped.is_set():
            for line in steps.new({}):
                say(line)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY):
                    await stopped.wait()


def _say(line: str) -> None:
    typer.echo(f"{time.strftime('%H:%M:%S')}  {line}")
    sys.stdout.flush()


async def _until_signal(files: DemoFiles) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stopped.set)
    await play(files, stopped, _say)


@command.command(cls=PlainCommand)
def run(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder of `autoscaler init --demo`.")
    ] = Path("fleet"),
) -> None:
    """Play GitHub and EC2 for the folder of `autoscaler init --demo`, with one queued job, until Ctrl-C."""
    # As root, machines run as another user, which must be able to read their files.
    os.umask(0o022)
    try:
        demo.refuse_without_lab()
        files = DemoFiles.read(folder)
        check_host(Path(tempfile.gettempdir()), 1)
        asyncio.run(_until_signal(files))
    except ConfigurationError as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        raise typer.Exit(2) from None
    except (
        NotPlayedError,
        NotFinishedError,
        NotWrittenError,
        HostTooSmallError,
        RuntimeError,
        ValueError,
        OSError,
    ) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


def main() -> None:
    """Run the command."""
    command()


def _machines_folder(stack: AsyncExitStack) -> Path:
    """Create a folder that the stack removes."""
    folder = Path(tempfile.mkdtemp(prefix="autoscaler-lab-"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    # As root, machines run their jobs as another user, which must be able to enter it.
    folder.chmod(0o755)
    return folder


async def _listening(start: Callable[[], Awaitable[None]], port: int) -> None:
    """Start a server. Raises NotPlayedError if it cannot listen."""
    try:
        await start()
    except OSError as error:
        raise NotPlayedError(
            f"port {port} of 127.0.0.1: {error.strerror}; stop what listens there, or run init --demo for "
            "another folder"
        ) from None


def _job(sku: str) -> JobSpec:
    return JobSpec("test", f"{demo.OWNER}/{demo.REPOSITORY}", ("self-hosted", sku), JOB_SECONDS)


def _port(url: str) -> int:
    """Return the port of an address on loopback. Raises NotPlayedError."""
    parts = urlsplit(url)
    if parts.hostname != "127.0.0.1" or parts.port is None:
        raise NotPlayedError(f"{url!r} is not an address with a port of 127.0.0.1")
    return parts.port


if __name__ == "__main__":
    main()
