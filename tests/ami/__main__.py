"""`make first-image` and `make first-job`: from an empty account to a job on an image of this repository.

The account is that of the laboratory's EC2, and empty but for a stock image. Between the two commands its image
is kept in a folder: the disks of which it consists, and what EC2 knows about it.
"""

import asyncio
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer

from autoscaler.operator_commands.usage import PlainCommand
from lab.ec2.images import Image
from lab.laboratory import Laboratory
from tests.ami.account import FLEET, place, start_bake
from tests.ami.first_job import job_stages, machine_of, run_first_job
from tests.ami.machines import RootHost

commands = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)

Folder = Annotated[
    Path,
    typer.Option("--account", metavar="FOLDER", help="Where the account's image is kept."),
]
ACCOUNT = Path(".cache/account")
KEPT = "image.json"
BUILDS = "build-"
"""The beginning of the names of the builds' folders."""
FAILED, MISTAKEN, STOPPED = 1, 2, 130
_PROGRAM = 3
"""The arguments of a child process before those of `autoscaler`: Python, -c and the code."""


@dataclass(frozen=True, slots=True)
class KeptImage:
    """The account's image. `layers` are the folders of which its disk consists, the newest first."""

    name: str
    root_device: str
    snapshot_gb: int
    tags: dict[str, str]
    layers: list[str]

    @classmethod
    def of(cls, image: Image, layers: list[Path]) -> "KeptImage":
        """Keep an image of EC2."""
        paths = [str(layer) for layer in layers]
        return cls(image.name, image.root_device, image.snapshot_gb, dict(image.tags), paths)

    def add_to(self, lab: Laboratory) -> None:
        """Give the account of a laboratory the image."""
        lab.ec2.images.add(
            self.name, root_device=self.root_device, snapshot_gb=self.snapshot_gb, tags=self.tags
        )


@commands.command(cls=PlainCommand)
def image(account: Folder = ACCOUNT) -> None:
    """Bake an image for Linux in an empty account: build, test and publish it."""
    _refuse_without_root("first-image")
    account = account.absolute()
    account.mkdir(parents=True, exist_ok=True, mode=0o755)
    earlier = list(account.glob(f"{BUILDS}*"))
    # In a folder of its own, so that a build that fails loses neither the earlier image nor any other file.
    build = Path(mkdtemp(prefix=BUILDS, dir=account))
    build.chmod(0o755)
    kept = None
    try:
        kept = asyncio.run(_bake(build))
        if kept is not None:
            (account / KEPT).write_text(json.dumps(asdict(kept)))
    except asyncio.CancelledError:
        raise typer.Exit(STOPPED) from None
    finally:
        for folder in [build] if kept is None else earlier:
            shutil.rmtree(folder, ignore_errors=True)
    if kept is None:
        raise typer.Exit(FAILED)


@commands.command(cls=PlainCommand)
def job(account: Folder = ACCOUNT) -> None:
    """Start a fleet that uses the image, and run one job on a machine of it."""
    _refuse_without_root("first-job")
    kept = account.absolute() / KEPT
    if not kept.exists():
        typer.echo(f"{kept} is missing: run make first-image first", err=True)
        raise typer.Exit(MISTAKEN)
    found = KeptImage(**json.loads(kept.read_text()))
    try:
        status = asyncio.run(_run_job(account.absolute(), found))
    except asyncio.CancelledError:
        status = STOPPED
    raise typer.Exit(status)


def _refuse_without_root(target: str) -> None:
    if os.geteuid() != 0:
        typer.echo(f"only root can run machines' disks: run sudo make {target}", err=True)
        raise typer.Exit(MISTAKEN)


class _Interruption:
    """Cancels the current task at the first SIGINT, SIGTERM or SIGHUP.

    Later signals do nothing: they would cut off the removal of machines and files.
    """

    def __init__(self) -> None:
        self.received = False
        self.command: subprocess.Popen[str] | None = None
        """Gets SIGINT instead. It terminates its machine, and needs the account for that."""
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._receive)

    def _receive(self) -> None:
        if self.received:
            return
        self.received = True
        _print("Stopped. Removing all machines and files.")
        if self.command is not None:
            self.command.send_signal(signal.SIGINT)
        elif self._task is not None:
            self._task.cancel()


async def _bake(build: Path) -> KeptImage | None:
    """Return the published image, or None if the command failed. Raises CancelledError after a signal."""
    began = time.monotonic()
    interruption = _Interruption()
    async with place(build) as at:
        _print_stage("empty account at the laboratory's EC2", time.monotonic() - began)
        process = interruption.command = start_bake(at, output=None)
        assert isinstance(process.args, list)
        _print(f"$ autoscaler {shlex.join(process.args[_PROGRAM:])}")
        status = await asyncio.to_thread(process.wait)
        if interruption.received:
            raise asyncio.CancelledError
        if status != 0:
            return None
        [made] = at.ec2.images.named("autoscaler/linux-cpu-x64-*")
        kept = KeptImage.of(made, at.host.layers(made))
    _print_stage("whole command", time.monotonic() - began)
    return kept


async def _run_job(account: Path, kept: KeptImage) -> int:
    """Return the exit status. Raises CancelledError after a signal."""
    began = time.monotonic()
    _Interruption()
    host = RootHost(account / "machines", [Path(layer) for layer in kept.layers], {}, "")
    async with Laboratory(FLEET, machines=host) as lab:
        host.ec2 = lab.ec2
        kept.add_to(lab)
        _print_stage("account with the image, and GitHub", time.monotonic() - began)
        _print(f"$ autoscaler serve -c {lab.folder / 'fleet.yaml'}")
        started = time.monotonic()
        await lab.start_controller()
        _print_stage("serve until it is ready", time.monotonic() - started)
        _print("a job is queued that asks for the SKU `baked`")
        done = await run_first_job(lab)
        for name, seconds in job_stages(lab, done):
            _print_stage(name, seconds)
        machine, instance = machine_of(lab, done)
        used = instance.specification.image
    _print(f"job {done.spec.name}: {done.conclusion}, on {instance.id} of the image {used.name}")
    _print(f"the machine ended: {machine.reason}")
    _print_stage("whole command", time.monotonic() - began)
    return 0 if done.conclusion == "success" else FAILED


def _print_stage(name: str, seconds: float) -> None:
    _print(f"stage {name}: {seconds:.1f} s")


def _print(line: str) -> None:
    # At once, also into a pipe: the command that runs meanwhile writes into it, too.
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    commands()
