"""Runs the lab's instances as real root file systems: build machines under sshd, others with user data.

An image of an instance is that instance's disk, so what a build installed is what its image has.
"""

import asyncio
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from pathlib import Path

from lab.ec2.images import Image
from lab.ec2.service import LabEc2
from lab.machine_host import LabMachine

PROGRAM = Path(__file__).parent / "machine.sh"

SSHD = """
id -u ubuntu > /dev/null 2>&1 || useradd --create-home --shell /bin/bash ubuntu
echo 'ubuntu ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/90-cloud-init-users
chmod 440 /etc/sudoers.d/90-cloud-init-users
install -d -m 700 -o ubuntu /home/ubuntu/.ssh
install -m 600 -o ubuntu /dev/stdin /home/ubuntu/.ssh/authorized_keys <<< '{key}'
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d
echo 'deb [trusted=yes] {packages}/ ./' > /etc/apt/sources.list
ssh-keygen -A > /dev/null
/usr/sbin/sshd -D -e -p {port} -o ListenAddress=127.0.0.1 -o PidFile=none
"""
"""What cloud-init and the stock image do at the boot of the build machine."""


class RootHost:
    """A machine host for `LabEc2`, whose machines have a disk each in `folder`, over `root`.

    An instance with a key pair runs sshd at `port`, with `key` (a public key) as the user ubuntu's, and has the
    package repository at `packages`. Another runs its user data, and powers off afterwards.
    """

    def __init__(self, folder: Path, root: Path, port: int, key: str, packages: str) -> None:
        self._folder = folder
        self._root = root
        self._sshd = SSHD.format(port=port, key=key, packages=packages)
        self._processes: dict[str, Process] = {}
        self._readers: set[asyncio.Task[None]] = set()
        self._written: dict[str, bytes] = {}
        self.ec2: LabEc2 | None = None

    async def boot(self, machine: LabMachine) -> None:
        assert self.ec2 is not None
        instance = self.ec2.instances.find(machine.instance_id)
        assert instance is not None
        program = self._sshd if instance.specification.key_name else machine.user_data
        process = await asyncio.create_subprocess_exec(
            PROGRAM,
            ":".join(str(one) for one in self.layers(instance.specification.image)),
            self.disk(machine.instance_id),
            self._folder / f"{machine.instance_id}.work",
            *("bash", "-c", program),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
        )
        self._processes[machine.instance_id] = process
        reader = asyncio.create_task(self._read(machine, process))
        self._readers.add(reader)
        reader.add_done_callback(self._readers.discard)

    def layers(self, image: Image) -> list[Path]:
        """Return the folders of which an image consists, the newest first."""
        assert self.ec2 is not None
        layers = []
        while image.source_instance:
            layers.append(self.disk(image.source_instance))
            source = self.ec2.instances.find(image.source_instance)
            assert source is not None
            image = source.specification.image
        return [*layers, self._root]

    def disk(self, instance_id: str) -> Path:
        """Return the folder with what an instance changed."""
        return self._folder / instance_id

    async def _read(self, machine: LabMachine, process: Process) -> None:
        assert process.stdout is not None
        while block := await process.stdout.read(4096):
            written = self._written.get(machine.instance_id, b"")
            self._written[machine.instance_id] = written + block
        await process.wait()
        await machine.powered_off()

    async def shut_down(self, instance_id: str) -> None:
        await self.kill(instance_id)

    async def kill(self, instance_id: str) -> None:
        process = self._processes.pop(instance_id, None)
        if process is not None and process.returncode is None:
            process.send_signal(signal.SIGKILL)
            await process.wait()

    def console(self, instance_id: str) -> str:
        return self._written.get(instance_id, b"").decode(errors="replace")

    async def close(self) -> None:
        for instance_id in list(self._processes):
            await self.kill(instance_id)
        await asyncio.gather(*self._readers, return_exceptions=True)
