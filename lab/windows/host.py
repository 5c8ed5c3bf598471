"""Lab machines with Windows: each is a Wine prefix in which a Windows CPython runs the real agent.

What Wine does not have, the lab plays: the PowerShell of the user data and of the runner's scheduled task, Task
Scheduler, `shutdown`, and GitHub's runner.
"""

import asyncio
import shutil
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.machine_host import LabMachine
from lab.machines.image import check_reachable
from lab.machines.process import MAX_WRITTEN, without_privileges
from lab.windows.commands import CommandServer
from lab.windows.disk import (
    BASE,
    TASK,
    WindowsDisk,
    make_disk,
    read_user_data,
    write_user_data,
)
from lab.windows.launch_script import run_launch_script
from lab.windows.parts import Parts, wine, wine_environment
from lab.windows.processes import end_processes

RUNNER_TASK = "actions-runner"
LAUNCHER = f"{BASE}\\handover\\launch.ps1"


class WindowsHost:
    """A `MachineHost` of Windows machines. Raises ValueError for a folder that machines cannot use.

    `folder` gets a prefix for each machine. `agent` is the agent's source. `scale` is lab seconds per real
    second. `keep` keeps the prefixes. `task` is the name of the task that the image registered for the runner.
    `image` creates the disk of a machine as its image leaves it; default: the lab's own image.
    """

    def __init__(
        self,
        folder: Path,
        agent: bytes,
        parts: Parts,
        scale: float = 1.0,
        *,
        keep: bool = False,
        task: str = RUNNER_TASK,
        image: Callable[[Path, LabMachine], WindowsDisk] | None = None,
    ) -> None:
        check_reachable(folder)
        self._folder = folder
        self._agent = agent
        self._scale = scale
        self._keep = keep
        self._task = task
        self._image = image or (
            lambda prefix, machine: make_disk(prefix, parts, machine.runner_version)
        )
        self._commands = CommandServer()
        self._computers: dict[str, _Computer] = {}
        self._written: dict[str, str] = {}
        self._closed = asyncio.Event()

    def commands(self, instance_id: str) -> list[tuple[str, int]]:
        """Return the commands of Windows that a machine ran, with their exit statuses."""
        return [
            (words, status)
            for name, words, status in self._commands.answered
            if name == instance_id
        ]

    @property
    def wrong(self) -> list[str]:
        """Return the commands and scripts that the lab's Windows could not run."""
        return self._commands.wrong

    async def boot(self, machine: LabMachine) -> None:
        """Create the machine's disk, and do what its user data do. Raises ValueError for other user data."""
        name = machine.instance_id
        if self._closed.is_set() or name in self._computers:
            return
        booted = read_user_data(machine.user_data)
        variables = {"LAB_WINDOWS": await self._commands.start(), "LAB_MACHINE": name}
        prefix = self._folder / name
        disk = await asyncio.to_thread(self._make_disk, prefix, machine)
        if self._closed.is_set():
            await asyncio.to_thread(shutil.rmtree, prefix)
            return
        computer = _Computer(machine, disk, variables, self._scale, self._task, self._ended)
        self._computers[name] = self._commands.computers[name] = computer
        computer.schedule_shutdown(float(booted.shutdown[-1]))
        await computer.start(TASK)

    def _make_disk(self, prefix: Path, machine: LabMachine) -> WindowsDisk:
        disk = self._image(prefix, machine)
        write_user_data(disk, self._agent, machine, self._scale)
        return disk

    async def reboot(self, instance_id: str) -> None:
        """End all processes, and run what starts with Windows. A scheduled shutdown is forgotten."""
        computer = self._computers.get(instance_id)
        if computer is not None and not computer.over.is_set():
            computer.abort_shutdown()
            await computer.end_processes()
            if not computer.over.is_set():
                await computer.start(TASK)

    async def shut_down(self, instance_id: str) -> None:
        """Kill the machine: Windows ends the agent without a signal that it could handle."""
        await self.kill(instance_id)

    async def kill(self, instance_id: str) -> None:
        """End all of the machine's processes. Does not call `powered_off`."""
        computer = self._computers.get(instance_id)
        if computer is not None:
            await computer.end()

    def console(self, instance_id: str) -> str:
        """Return the end of what the machine's processes wrote."""
        computer = self._computers.get(instance_id)
        return self._written.get(instance_id, "") if computer is None else computer.written

    def disk(self, instance_id: str) -> WindowsDisk:
        """Return the disk of a machine, which is kept after its end only with `keep`."""
        return WindowsDisk(self._folder / instance_id)

    async def close(self) -> None:
        """Kill every machine. Idempotent."""
        self._closed.set()
        await asyncio.gather(*(self.kill(name) for name in list(self._computers)))
        await self._commands.close()

    async def _ended(self, computer: "_Computer") -> None:
        name = computer.machine.instance_id
        self._written[name] = computer.written
        if not self._keep:
            await asyncio.to_thread(shutil.rmtree, computer.disk.prefix, ignore_errors=True)
        self._computers.pop(name, None)
        self._commands.computers.pop(name, None)


@dataclass(slots=True, eq=False)
class _Computer:
    """One running machine. `over` is set by the first call that ends it."""

    machine: LabMachine
    disk: WindowsDisk
    variables: Mapping[str, str]
    scale: float
    task: str
    ended: "Callable[[_Computer], Coroutine[Any, Any, None]]"
    over: asyncio.Event = field(default_factory=asyncio.Event)
    _output: bytearray = field(default_factory=bytearray)
    _scheduled: asyncio.TimerHandle | None = None
    _ending: asyncio.Task[None] | None = None
    _readers: list[asyncio.Task[None]] = field(default_factory=list)
    _power: asyncio.Task[None] | None = None

    @property
    def written(self) -> str:
        """The end of the output of all processes."""
        return self._output[-MAX_WRITTEN:].decode(errors="replace")

    def schedule_shutdown(self, seconds: float) -> bool:
        """As `Computer` says."""
        if self._scheduled is not None:
            return False
        loop = asyncio.get_running_loop()
        self._scheduled = loop.call_later(seconds / self.scale, self._begin_power_off)
        return True

    def abort_shutdown(self) -> bool:
        """As `Computer` says."""
        if self._scheduled is None:
            return False
        self._scheduled.cancel()
        self._scheduled = None
        return True

    async def run_task(self, name: str) -> bool:
        """As `Computer` says. The only task is the image's, whose action is PowerShell with the script."""
        if name != self.task:
            return False
        launch = await asyncio.to_thread(run_launch_script, self.disk, LAUNCHER)
        await self.start(launch.command, launch.folder, launch.variables)
        return True

    async def start(
        self, command: str, folder: str = "C:\\lab", variables: Mapping[str, str] | None = None
    ) -> None:
        """Run a command file, in the background."""
        if self.over.is_set():
            return
        process = await asyncio.create_subprocess_exec(
            *without_privileges(),
            str(wine()),
            "cmd.exe",
            "/c",
            command,
            cwd=self.disk.path(folder),
            env={**wine_environment(self.disk.prefix), **self.variables, **(variables or {})},
            stdin=asyncio.subprocess.DEVNULL,
            # Wine's Python cannot write to a file that it did not open: a pipe.
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        self._readers.append(asyncio.create_task(self._follow(process)))
        if self.over.is_set():
            await self.end_processes()

    async def end_processes(self) -> None:
        """Kill every process of the machine."""
        await asyncio.to_thread(end_processes, self.disk.prefix)

    async def end(self) -> None:
        """End the machine, once, even if several callers ask for it."""
        self.over.set()
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        self.abort_shutdown()
        await self.end_processes()
        # Every process that could write to their pipes has ended.
        await asyncio.gather(*self._readers)
        await self.ended(self)

    def _begin_power_off(self) -> None:
        self._power = asyncio.create_task(self._power_off())

    async def _power_off(self) -> None:
        if self.over.is_set():
            return
        await self.end()
        await self.machine.powered_off()

    async def _follow(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while piece := await process.stdout.read(4096):
            self._output += piece
            del self._output[:-MAX_WRITTEN]
        await process.wait()
