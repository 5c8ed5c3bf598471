"""Runs the lab's instances as real root file systems: build machines under sshd, others booted by systemd.

An image of an instance is that instance's disk, so what a build installed is what its image has.
"""

import asyncio
import json
import os
import signal
import tty
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from lab.ec2.images import Image
from lab.ec2.service import LabEc2
from lab.machine_host import LabMachine
from tests.ami.gpus import appear, module_of

PROGRAM = Path(__file__).parent / "machine.sh"

SSHD = """
id -u ubuntu > /dev/null 2>&1 || useradd --create-home --shell /bin/bash ubuntu
echo 'ubuntu ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/90-cloud-init-users
chmod 440 /etc/sudoers.d/90-cloud-init-users
install -d -m 700 -o ubuntu /home/ubuntu/.ssh
install -m 600 -o ubuntu /dev/stdin /home/ubuntu/.ssh/authorized_keys <<< '{key}'
rm -f /etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub
ssh-keygen -A > /dev/null
mkdir -p /var/lib/cloud/instances/i-build
ln -sfn instances/i-build /var/lib/cloud/instance
echo 'of the build machine' > /var/log/cloud-init.log
/usr/sbin/sshd -D -e -p {port} -o ListenAddress=127.0.0.1 -o PidFile=none
"""
"""What cloud-init does at the boot of the build machine: it also replaces the host keys of the stock image."""

CLOUD_INIT = """\
datasource_list: [NoCloud]
network: {config: disabled}
growpart: {mode: "off"}
resize_rootfs: false
"""
"""The machine has no network and no disk of its own. Its user data are in a folder, not in EC2's metadata."""


SHUTDOWN = 120.0
"""Seconds that a machine has to shut down."""


class RootHost:
    """A machine host for `LabEc2`, whose machines have a disk each in `folder`.

    `stock` are the folders of which the stock image consists, the newest first. An instance with a key pair
    runs sshd at the port that `ports` has for it, with `key` (a public key) as the user ubuntu's. Another is
    booted by systemd, and its cloud-init runs the user data.
    """

    def __init__(
        self, folder: Path, stock: Sequence[Path], ports: Mapping[str, int], key: str
    ) -> None:
        self._folder = folder
        self._stock = stock
        self._ports = ports
        self._key = key
        self._processes: dict[str, Process] = {}
        self._booted: set[str] = set()
        self._readers: set[asyncio.Task[None]] = set()
        self._written: dict[str, bytes] = {}
        self.ec2: LabEc2 | None = None

    async def boot(self, machine: LabMachine) -> None:
        assert self.ec2 is not None
        instance = self.ec2.instances.find(machine.instance_id)
        assert instance is not None
        arguments = [
            ":".join(str(one) for one in self.layers(instance.specification.image)),
            str(self.disk(machine.instance_id)),
            str(self._folder / f"{machine.instance_id}.work"),
        ]
        kind, pair = instance.specification.instance_type, instance.specification.key_name
        module = module_of(kind)
        if pair:
            sshd = SSHD.format(port=self._ports[pair], key=self._key)
            arguments += ["bash", "-c", appear(kind) + sshd]
            process = await _start(arguments, module, DEVNULL, PIPE)
            assert process.stdout is not None
            output = process.stdout
        else:
            _write_seed(self.disk(machine.instance_id), machine)
            process, output = await start_with_console(arguments, module)
            self._booted.add(machine.instance_id)
        self._processes[machine.instance_id] = process
        reader = asyncio.create_task(self._read(machine, process, output))
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
        return [*layers, *self._stock]

    def disk(self, instance_id: str) -> Path:
        """Return the folder with what an instance changed."""
        return self._folder / instance_id

    async def _read(
        self, machine: LabMachine, process: Process, output: asyncio.StreamReader
    ) -> None:
        # A terminal that no process has open any more gives EIO, and not an end of file.
        with suppress(OSError):
            while block := await output.read(4096):
                written = self._written.get(machine.instance_id, b"")
                self._written[machine.instance_id] = written + block
        await process.wait()
        await machine.powered_off()

    async def shut_down(self, instance_id: str) -> None:
        """Have systemd shut the machine down; kill one that does not end, as EC2 does, and a build machine."""
        process = self._processes.get(instance_id)
        if process is not None and instance_id in self._booted:
            with suppress(TimeoutError, ProcessLookupError):
                # systemd(1): SIGRTMIN+4 starts poweroff.target.
                os.kill(first_process(process.pid), signal.SIGRTMIN + 4)
                await asyncio.wait_for(process.wait(), SHUTDOWN)
        await self.kill(instance_id)

    async def kill(self, instance_id: str) -> None:
        process = self._processes.pop(instance_id, None)
        if process is not None and process.returncode is None:
            process.terminate()
            await process.wait()

    def console(self, instance_id: str) -> str:
        return self._written.get(instance_id, b"").decode(errors="replace")

    async def close(self) -> None:
        for instance_id in list(self._processes):
            await self.kill(instance_id)
        await asyncio.gather(*self._readers, return_exceptions=True)


def first_process(pid: int) -> int:
    """Return the first process of a machine: the child of `unshare`, which is the child of machine.sh.

    Raises ProcessLookupError if it does not run yet, or has ended.
    """
    for _ in range(2):
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except FileNotFoundError:
            raise ProcessLookupError from None
        if not children:
            raise ProcessLookupError
        [child] = children
        pid = int(child)
    return pid


def _write_seed(disk: Path, machine: LabMachine) -> None:
    """Write what a machine at EC2 gets from its metadata service, and where the agent finds the lab's."""
    seed = disk / "var/lib/cloud/seed/nocloud"
    files = {
        seed / "user-data": machine.user_data,
        seed / "meta-data": json.dumps({"instance-id": machine.instance_id}),
        disk / "etc/cloud/cloud.cfg.d/zz-test.cfg": CLOUD_INIT,
        disk / "etc/runner-agent/host.json": json.dumps({"metadata": machine.metadata_url}),
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


async def _start(arguments: list[str], module: str, standard_input: int, output: int) -> Process:
    return await asyncio.create_subprocess_exec(
        PROGRAM,
        *arguments,
        stdin=standard_input,
        stdout=output,
        stderr=STDOUT,
        env=os.environ | {"MODULE": module},
    )


async def start_with_console(
    arguments: list[str], module: str
) -> tuple[Process, asyncio.StreamReader]:
    """Start a machine whose console is a new terminal. Return its process, and what it writes."""
    ours, console = os.openpty()
    tty.setraw(console)
    output = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(output), os.fdopen(ours, "rb", buffering=0)
    )
    try:
        return await _start(arguments, module, console, console), output
    finally:
        os.close(console)
