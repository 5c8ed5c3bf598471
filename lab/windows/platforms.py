"""A host of Linux and Windows machines."""

import asyncio

from lab.machine_host import LabMachine, RebootingHost


class PlatformHost:
    """A `RebootingHost` over one for Linux machines and one for Windows machines. `close` closes both."""

    def __init__(self, linux: RebootingHost, windows: RebootingHost) -> None:
        self._linux = linux
        self._windows = windows
        self._ids: set[str] = set()

    async def boot(self, machine: LabMachine) -> None:
        """Start the machine on the host of its platform."""
        if machine.platform == "windows":
            self._ids.add(machine.instance_id)
        await self._host(machine.instance_id).boot(machine)

    async def reboot(self, instance_id: str) -> None:
        """Reboot the machine."""
        await self._host(instance_id).reboot(instance_id)

    async def shut_down(self, instance_id: str) -> None:
        """Shut the machine's operating system down."""
        await self._host(instance_id).shut_down(instance_id)

    async def kill(self, instance_id: str) -> None:
        """Kill the machine's processes at once."""
        await self._host(instance_id).kill(instance_id)

    def console(self, instance_id: str) -> str:
        """Return the machine's output."""
        return self._host(instance_id).console(instance_id)

    async def close(self) -> None:
        """Kill every machine. Idempotent."""
        await asyncio.gather(self._linux.close(), self._windows.close())

    def _host(self, instance_id: str) -> RebootingHost:
        return self._windows if instance_id in self._ids else self._linux
