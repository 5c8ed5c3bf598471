"""The host of a new controller: a Debian with systemd, the built wheel, and a user who may use sudo."""

import asyncio
import json
import secrets
import shlex
import signal
import socket
from asyncio.subprocess import Process
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.ami.machines import first_process, start_with_console
from tests.ami.root import base_root
from tests.lab.system.pace import PATIENCE, stretched
from tests.readme.typist import Shell

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
USER = "ubuntu"
HOME = f"/home/{USER}"
PROGRAMS = "opt/autoscaler"
"""Where the README has the program installed, with a link in /usr/local/bin."""

_PREPARE = f"""
useradd --create-home --shell /bin/bash {USER}
echo '{USER} ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/90-cloud-init-users
chmod 440 /etc/sudoers.d/90-cloud-init-users
ln -s /{PROGRAMS}/bin/autoscaler /usr/local/bin/autoscaler
"""


class DebianHost:
    """A host with its own namespaces and disk, and this host's network. Use it as an async context manager.

    `installed` is a folder with the environment of the wheel in `opt/autoscaler`: a layer of the host's disk.
    """

    def __init__(self, folder: Path, installed: Path) -> None:
        # A machine's control group has the name of its disk.
        self._disk, self._work = folder / f"disk-{secrets.token_hex(4)}", folder / "work"
        self._installed = installed
        self._process: Process
        self._reader: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        """Boot it, and wait until systemd has started everything."""
        hosts = self._disk / "etc/hosts"
        hosts.parent.mkdir(parents=True)
        hosts.write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")
        layers = [f"{self._installed}:{base_root()}", str(self._disk), str(self._work)]
        self._process, console = await start_with_console(layers, "")
        self._reader = asyncio.create_task(_drain(console))
        try:
            await self._booted()
            await self.run(_PREPARE)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Pull its plug."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        await self._process.wait()
        await self._reader

    def shell(self, variables: Mapping[str, str]) -> Shell:
        """Return the shell of a user who connected to the host."""
        login = ("runuser", "-u", USER, "--", "env", f"--chdir={HOME}", "bash", "-c")
        own = {"PATH": PATH, "HOME": HOME, "LANG": "C.UTF-8", **variables}
        return Shell((*self._enter(), *login), own)

    async def run(self, command: str, text: str = "") -> str:
        """Run a command as root, with this text as its input. Fails with its output if it fails."""
        process = await asyncio.create_subprocess_exec(
            *self._enter(),
            *("bash", "-c", command),
            env={"PATH": PATH, "LANG": "C.UTF-8"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate(text.encode())
        assert process.returncode == 0, f"{command}\n{output.decode()}"
        return output.decode()

    async def write(self, path: str, text: str, owner: str = USER) -> None:
        """Write a file of a user's."""
        name = shlex.quote(path)
        command = f"install -D -m 600 -o {owner} -g {owner} /dev/stdin {name}"
        await self.run(command, text)

    async def change(self, path: str, old: str, new: str) -> None:
        """Replace a text, which must be there, in a file."""
        found = await self.run(f"cat {shlex.quote(path)}")
        assert old in found, f"{path} lacks {json.dumps(old)}:\n{found}"
        await self.run(f"cat > {shlex.quote(path)}", found.replace(old, new, 1))

    def _enter(self) -> tuple[str, ...]:
        first = first_process(self._process.pid)
        return ("nsenter", f"--target={first}", "--all", "--root", "env", "--chdir=/")

    async def _booted(self) -> None:
        async with asyncio.timeout(stretched(PATIENCE)):
            while self._process.returncode is None:
                with suppress(AssertionError, ProcessLookupError):
                    # `running`, or exit status 1 for other states.
                    await self.run("systemctl is-system-running")
                    return
                await asyncio.sleep(0.5)
        raise AssertionError(f"the host ended with {self._process.returncode} while it booted")


async def _drain(console: asyncio.StreamReader) -> None:
    # A terminal that no process has open any more gives EIO, and not an end of file.
    with suppress(OSError):
        while await console.read(4096):
            pass
