"""Lab machines as processes: each runs the real Linux user data, which start the real agent.

A machine is a root folder and a session of processes. Their PATH has only the lab's stand-ins and a few plain
tools. If the lab runs as root, the machines drop for good the privileges that affect the host, such as
rebooting, and the runner runs as `nobody`. Otherwise every process runs as the calling user.

Windows machines run the same agent. Their PowerShell is not executed: this module only reads the controller's
settings from it.
"""

import asyncio
import json
import os
import shutil
from collections.abc import Coroutine, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lab.machine_host import LabMachine
from lab.machines import systemd
from lab.machines.image import Disk, Image, check_reachable
from lab.machines.process_tree import end_sessions, members
from lab.machines.settings import controller_settings

MAX_WRITTEN = 64 * 1024
"""The number of bytes of console output that EC2 keeps."""

_DROPPED = (
    "sys_boot",
    "sys_admin",
    "sys_module",
    "sys_rawio",
    "sys_ptrace",
    "sys_time",
    "net_admin",
    "mknod",
)

_WINDOWS_BOOT = """\
shutdown -P +40
python3 -I -S "$1" --host-file "$RUNNER_AGENT_ROOT/etc/runner-agent/host.json"
shutdown -P now
"""

# User data run once in an instance's life (cloud-init, "Modules frequency"); the unit stays.
_BOOT_AGAIN = "systemctl start runner-agent.service"


@dataclass(slots=True)
class _Running:
    """One running machine. `over` is set by the first call that ends it."""

    machine: LabMachine
    disk: Disk
    reader: int
    writer: int
    process: asyncio.subprocess.Process | None = None
    armed: asyncio.TimerHandle | None = None
    over: bool = False
    ending: asyncio.Task[None] | None = field(default=None)


class ProcessHost:
    """A `MachineHost` of real processes. Raises ValueError for a folder that machines cannot use.

    `folder` gets a folder for each machine; as root it must be accessible to other users. `scale` is lab
    seconds per real second. `agent` is the agent's source. If `baked` is False, Linux machines fetch the
    agent from the controller. `keep` keeps the machines' folders, with their logs in var/log.
    `environment` has the variables of /etc/runner-agent/environment.
    """

    def __init__(
        self,
        folder: Path,
        agent: bytes,
        scale: float = 1.0,
        *,
        baked: bool = True,
        keep: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        check_reachable(folder)
        self._folder = folder
        self._image = Image(folder / "image", agent, baked, scale, environment or {})
        self._scale = scale
        self._keep = keep
        self._running: dict[str, _Running] = {}
        self._written: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def boot(self, machine: LabMachine) -> None:
        """Create the machine's disk and start its user data."""
        if self._closed or machine.instance_id in self._running:
            return
        root = self._folder / machine.instance_id
        disk = await asyncio.to_thread(
            self._image.make_disk,
            root,
            machine.metadata_url,
            machine.runner_version,
            machine.instance_type,
            machine.free_gb,
        )
        arguments = self._first_boot(machine, disk)
        # Both ends: a pipe without a writer would be at its end after the first message.
        reader = os.open(disk.power, os.O_RDONLY | os.O_NONBLOCK)
        writer = os.open(disk.power, os.O_WRONLY)
        running = _Running(machine, disk, reader, writer)
        self._running[machine.instance_id] = running
        asyncio.get_running_loop().add_reader(reader, self._on_shutdown_command, running)
        try:
            running.process = await self._start(disk, arguments)
        except FileNotFoundError:
            # The plug was pulled, and the disk removed, while the process was being started.
            if not running.over:
                raise
            return
        if running.over or self._closed:
            await asyncio.to_thread(end_sessions, [running.process.pid])
        self._spawn(self._reap(running.process))

    async def reboot(self, instance_id: str) -> None:
        """End all processes of a Linux machine, and start those that its disk starts at boot."""
        running = self._running.get(instance_id)
        if running is None or running.over or running.process is None:
            return
        await asyncio.to_thread(_end_processes, running)
        await running.process.wait()
        (running.disk.runner / "session").unlink(missing_ok=True)
        if not running.over:
            running.process = await self._start(
                running.disk, [str(self._image.bin / "bash"), "-c", _BOOT_AGAIN]
            )
            self._spawn(self._reap(running.process))

    async def shut_down(self, instance_id: str) -> None:
        """Stop the agent as systemd does at a shutdown, then end all other processes.

        A Windows machine is killed.
        """
        running = self._running.get(instance_id)
        if running is not None and not running.over:
            running.over = True
            everything = partial(_members, running)
            await systemd.stop(running.disk.root, everything, self._scale)
        await self.kill(instance_id)

    async def kill(self, instance_id: str) -> None:
        """End all of the machine's processes. Does not call `powered_off`."""
        running = self._running.get(instance_id)
        if running is not None:
            running.over = True
            await self._end(running)

    def console(self, instance_id: str) -> str:
        """Return the end of the output of the machine's user data and agent."""
        running = self._running.get(instance_id)
        if running is not None:
            return _written(running.disk)
        return self._written.get(instance_id, "")

    async def close(self) -> None:
        """Kill every machine and remove the image. Idempotent."""
        self._closed = True
        await asyncio.gather(*(self.kill(name) for name in list(self._running)))
        this = asyncio.current_task()
        await asyncio.gather(*(task for task in self._tasks if task is not this))
        await asyncio.to_thread(shutil.rmtree, self._image.folder, ignore_errors=True)

    def sessions(self, instance_id: str) -> tuple[int, ...]:
        """Return the sessions of a machine: its own, and its runner's once the runner was started."""
        running = self._running.get(instance_id)
        return () if running is None else tuple(_sessions(running))

    async def _start(self, disk: Disk, arguments: list[str]) -> asyncio.subprocess.Process:
        root = str(disk.root)
        with (disk.logs / "boot.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *without_privileges(),
                *arguments,
                cwd=root,
                env={"PATH": str(self._image.bin), "RUNNER_AGENT_ROOT": root, "LANG": "C.UTF-8"},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _first_boot(self, machine: LabMachine, disk: Disk) -> list[str]:
        script = disk.root / "user-data"
        bash = str(self._image.bin / "bash")
        if machine.platform == "windows":
            settings = asdict(controller_settings(machine.user_data))
            settings["controller"] = settings.pop("url")
            path = disk.host_file.with_name("controller.json")
            path.touch(0o600)
            path.write_text(json.dumps(settings), encoding="utf-8")
            script.write_text(_WINDOWS_BOOT, encoding="utf-8")
            return [bash, str(script), str(self._image.agent)]
        script.write_text(machine.user_data, encoding="utf-8")
        return [bash, str(script)]

    def _on_shutdown_command(self, running: _Running) -> None:
        """Act on a call of the machine's stand-in for `shutdown`: its arguments, one per line."""
        try:
            words = os.read(running.reader, 4096).decode("ascii", "replace")
        except BlockingIOError:
            return
        for line in words.splitlines():
            argument = line.rpartition(" ")[2]
            if argument == "now":
                self._spawn(self._power_off(running))
            elif argument == "-c":
                self._disarm(running)
            elif argument.startswith("+") and argument[1:].isdigit():
                self._arm(running, int(argument[1:]) * 60.0)

    def _arm(self, running: _Running, seconds: float) -> None:
        self._disarm(running)
        loop = asyncio.get_running_loop()
        running.armed = loop.call_later(
            seconds / self._scale, lambda: self._spawn(self._power_off(running))
        )

    def _disarm(self, running: _Running) -> None:
        if running.armed is not None:
            running.armed.cancel()
            running.armed = None

    async def _power_off(self, running: _Running) -> None:
        if running.over:
            return
        running.over = True
        await self._end(running)
        await running.machine.powered_off()

    async def _end(self, running: _Running) -> None:
        """End all processes of the machine, once, even if several callers ask for it."""
        if running.ending is None:
            running.ending = asyncio.create_task(self._end_once(running))
        await asyncio.shield(running.ending)

    async def _end_once(self, running: _Running) -> None:
        self._disarm(running)
        asyncio.get_running_loop().remove_reader(running.reader)
        await asyncio.to_thread(_end_processes, running)
        os.close(running.reader)
        os.close(running.writer)
        if running.process is not None:
            await running.process.wait()
        self._written[running.machine.instance_id] = _written(running.disk)
        if not self._keep:
            await asyncio.to_thread(shutil.rmtree, running.disk.root, ignore_errors=True)
        self._running.pop(running.machine.instance_id, None)

    async def _reap(self, process: asyncio.subprocess.Process) -> None:
        await process.wait()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _written(disk: Disk) -> str:
    try:
        return (disk.logs / "boot.log").read_bytes()[-MAX_WRITTEN:].decode(errors="replace")
    except FileNotFoundError:
        return ""


def _end_processes(running: _Running) -> None:
    end_sessions(_sessions(running))


def _members(running: _Running) -> set[int]:
    return members(_sessions(running))


def _sessions(running: _Running) -> list[int]:
    """Return the session that the user data began, in which the agent runs, and the runner's own."""
    found = [] if running.process is None else [running.process.pid]
    try:
        found.append(int((running.disk.runner / "session").read_text(encoding="ascii")[:10]))
    except (FileNotFoundError, ValueError):
        return found
    return found


def without_privileges() -> list[str]:
    """Return a command that, as root, drops the privileges that affect the host (setpriv(1))."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise RuntimeError("the lab's machines need setpriv when run as root")
    drop = ",".join(f"-{name}" for name in _DROPPED)
    return [setpriv, f"--bounding-set={drop}", "--no-new-privs", "--"]
