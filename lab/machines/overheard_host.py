"""A host all of whose machines are listened in on.

Decides nothing: what the listener does not break passes through as it is.
"""

from dataclasses import replace

from lab.machine_host import LabMachine, MachineHost
from lab.machines.interception import Ear, Interception


class OverheardHost:
    """A `MachineHost` over another, which is the caller's no more: `close` closes both."""

    def __init__(self, host: MachineHost, ear: Ear) -> None:
        self._host = host
        self._ear = ear
        self._interception = Interception()

    async def boot(self, machine: LabMachine) -> None:
        """Start it; it takes us for its controller. Raises ValueError if its user data name none."""
        text = await self._interception.divert(machine.instance_id, machine.user_data, self._ear)
        await self._host.boot(replace(machine, user_data=text))

    async def shut_down(self, instance_id: str) -> None:
        """Shut its operating system down."""
        await self._host.shut_down(instance_id)

    async def kill(self, instance_id: str) -> None:
        """Pull the plug."""
        await self._host.kill(instance_id)

    def console(self, instance_id: str) -> str:
        """What it wrote."""
        return self._host.console(instance_id)

    async def close(self) -> None:
        """Kill every machine, and stop listening in. Idempotent."""
        await self._host.close()
        await self._interception.close()
