"""A host that reports all requests of its machines to a listener.

Requests that the listener does not break reach the controller unchanged.
"""

from dataclasses import replace

from lab.machine_host import LabMachine, MachineHost
from lab.machines.interception import Interception, RequestListener


class ObservedHost:
    """A `MachineHost` over another one, whose requests `listener` observes. `close` closes both."""

    def __init__(self, host: MachineHost, listener: RequestListener) -> None:
        self._host = host
        self._listener = listener
        self._interception = Interception()

    async def boot(self, machine: LabMachine) -> None:
        """Start the machine, with this host's server as its controller.

        Raises ValueError if its user data name no controller.
        """
        text = await self._interception.redirect(
            machine.instance_id, machine.user_data, self._listener
        )
        await self._host.boot(replace(machine, user_data=text))

    async def shut_down(self, instance_id: str) -> None:
        """Shut the machine's operating system down."""
        await self._host.shut_down(instance_id)

    async def kill(self, instance_id: str) -> None:
        """Kill the machine's processes at once."""
        await self._host.kill(instance_id)

    def console(self, instance_id: str) -> str:
        """Return the machine's output."""
        return self._host.console(instance_id)

    async def close(self) -> None:
        """Kill every machine and stop the server between machines and controller. Idempotent."""
        await self._host.close()
        await self._interception.close()
