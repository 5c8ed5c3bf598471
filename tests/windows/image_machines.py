"""Runs the lab's Windows instances for the build of an image: build machines under SSH, others from the image.

An image of an instance is that instance's disk, so what a build installed is what its image has.
"""

import asyncio
import re
import shutil
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Mapping
from pathlib import Path

from autoscaler.app.agent_file import build_agent
from autoscaler.providers.ec2.images.smoke_test import USER_DATA
from lab.ec2.service import LabEc2
from lab.machine_host import LabMachine
from lab.windows.commands import CommandServer
from lab.windows.disk import WindowsDisk
from lab.windows.host import LAUNCHER, WindowsHost
from lab.windows.launch_script import run_launch_script
from lab.windows.parts import Parts, wine, wine_environment
from lab.windows.processes import end_processes, shut_down
from tests.ami.root import base_root
from tests.windows.image_build import AMI

SSH_MACHINE = Path(__file__).parent / "ssh_machine.sh"
AGENT = build_agent()
TEST = re.search(r"^\$test = '(.*)'$", USER_DATA["windows"], re.MULTILINE)
"""The program of the image that the user data of the smoke test run."""


class ImageHost:
    """A machine host for `LabEc2`, whose machines have a disk each in `folder`.

    `stock` is the disk of the stock image. An instance with a key pair runs an SSH server at the port that
    `ports` has for it, with `key` (a public key) as the administrator's. Another runs the image's own test, or
    as a machine of a fleet the agent that the image has.
    """

    def __init__(
        self, folder: Path, stock: Path, ports: Mapping[str, int], key: str, parts: Parts
    ) -> None:
        folder.mkdir()
        folder.chmod(0o755)
        self._folder = folder
        self._stock = stock
        self._ports = ports
        self._key = key
        self._commands = CommandServer()
        self._processes: dict[str, Process] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._written: dict[str, bytes] = {}
        self._fleet = WindowsHost(folder, AGENT, parts, keep=True, image=self._disk_of_image)
        self.ec2: LabEc2 | None = None

    async def boot(self, machine: LabMachine) -> None:
        assert self.ec2 is not None
        instance = self.ec2.instances.find(machine.instance_id)
        assert instance is not None
        if "register-scheduledtask" in machine.user_data.lower():
            await self._fleet.boot(machine)
            return
        prefix = self.disk(machine.instance_id).prefix
        await asyncio.to_thread(self._disk_of_image, prefix, machine)
        pair = instance.specification.key_name
        run = self._serve_ssh(machine, pair) if pair else self._test(machine)
        task = asyncio.create_task(run)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(machine.instance_id, done))

    def _ended(self, instance_id: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # The test that waits for this machine prints its log.
            failure = f"{task.exception()!r}\n".encode()
            self._written[instance_id] = self._written.get(instance_id, b"") + failure

    def _disk_of_image(self, prefix: Path, machine: LabMachine) -> WindowsDisk:
        """Create the disk of a machine: a copy of the disk that its image was made of."""
        assert self.ec2 is not None
        instance = self.ec2.instances.find(machine.instance_id)
        assert instance is not None
        made_of = instance.specification.image.source_instance
        source = self.disk(made_of).prefix if made_of else self._stock
        shutil.copytree(source, prefix, symlinks=True)
        return WindowsDisk(prefix)

    def disk(self, instance_id: str) -> WindowsDisk:
        """Return the disk of an instance."""
        return WindowsDisk(self._folder / instance_id)

    async def _environment(self, machine: LabMachine) -> dict[str, str]:
        variables = {
            "LAB_WINDOWS": await self._commands.start(),
            "LAB_MACHINE": machine.instance_id,
        }
        return {**wine_environment(self.disk(machine.instance_id).prefix), **variables}

    async def _serve_ssh(self, machine: LabMachine, pair: str) -> None:
        # EC2Launch enables SSH only if it is asked to.
        assert machine.user_data == (AMI / "enable-ssh.yml").read_text()
        prefix = self.disk(machine.instance_id).prefix
        work = self._folder / f"{machine.instance_id}.ssh"
        work.mkdir()
        (work / "authorized_keys").write_text(self._key + "\n")
        words = [str(prefix), str(work), str(self._ports[pair]), str(base_root())]
        environment = {**await self._environment(machine), "TERM": "dumb"}
        # The programs of a Linux administrator, too.
        environment["PATH"] += ":/usr/sbin:/sbin"
        await self._run(machine, [str(SSH_MACHINE), *words], environment)

    async def _test(self, machine: LabMachine) -> None:
        """Do what the user data of the smoke test do, and power off."""
        assert machine.user_data == USER_DATA["windows"]
        assert TEST is not None
        disk = self.disk(machine.instance_id)
        console = disk.prefix / "console"
        console.touch()
        with (disk.prefix / "system.reg").open("a") as registry:
            registry.write(f'\n[Software\\\\Wine\\\\Ports]\n"COM1"="{console}"\n')
        environment = await self._environment(machine)
        self._commands.computers[machine.instance_id] = _Tasks(self, machine, environment)
        python = "C:\\runner-agent\\python\\python.exe"
        await self._run(machine, [str(wine()), python, "-I", TEST[1]], environment)
        await asyncio.to_thread(end_processes, disk.prefix)
        await machine.powered_off()

    async def _run(
        self, machine: LabMachine, command: list[str], environment: Mapping[str, str]
    ) -> None:
        name = machine.instance_id
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self.disk(name).path("C:\\lab"),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            env=dict(environment),
        )
        self._processes[name] = process
        assert process.stdout is not None
        while block := await process.stdout.read(4096):
            self._written[name] = self._written.get(name, b"") + block
        await process.wait()

    async def run_task(self, machine: LabMachine, environment: Mapping[str, str]) -> None:
        """Run the runner's task as its account."""
        disk = self.disk(machine.instance_id)
        launch = await asyncio.to_thread(run_launch_script, disk, LAUNCHER)
        command = f"set USERNAME=runner& {launch.command}"
        await asyncio.create_subprocess_exec(
            *(str(wine()), "cmd.exe", "/c", command),
            cwd=disk.path(launch.folder),
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=DEVNULL,
            env=dict(environment),
        )

    async def shut_down(self, instance_id: str) -> None:
        await self._fleet.shut_down(instance_id)
        # Wine's server has written the registry when it ends.
        await asyncio.to_thread(shut_down, self.disk(instance_id).prefix)
        await self.kill(instance_id)

    async def kill(self, instance_id: str) -> None:
        await self._fleet.kill(instance_id)
        process = self._processes.pop(instance_id, None)
        if process is not None and process.returncode is None:
            # unshare ignores SIGTERM while its child runs.
            process.kill()
            await process.wait()
        await asyncio.to_thread(end_processes, self.disk(instance_id).prefix)

    def console(self, instance_id: str) -> str:
        console = self.disk(instance_id).prefix / "console"
        if console.exists():
            return console.read_text()
        return self.log(instance_id) or self._fleet.console(instance_id)

    def log(self, instance_id: str) -> str:
        """Return what the machine's processes wrote."""
        return self._written.get(instance_id, b"").decode(errors="replace")

    async def close(self) -> None:
        await self._fleet.close()
        for instance_id in list(self._processes):
            await self.kill(instance_id)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._commands.close()


class _Tasks:
    """The scheduled tasks of a machine, for the command `schtasks /run`."""

    def __init__(
        self, host: ImageHost, machine: LabMachine, environment: Mapping[str, str]
    ) -> None:
        self._host = host
        self._machine = machine
        self._environment = environment

    def schedule_shutdown(self, seconds: float) -> bool:
        raise NotImplementedError

    def abort_shutdown(self) -> bool:
        raise NotImplementedError

    async def run_task(self, name: str) -> bool:
        tasks = self._host.disk(self._machine.instance_id).path("C:\\lab\\tasks")
        if not (tasks / f"{name}.xml").exists():
            return False
        await self._host.run_task(self._machine, self._environment)
        return True
