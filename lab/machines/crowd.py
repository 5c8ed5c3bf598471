"""Simulates many machines in one process, for fleets that are too large for real agents.

`crowd_machine` simulates one machine. No user data and no agent run: the controller's settings are read
from the user data.
"""

import asyncio

import aiohttp

from lab.machine_host import LabMachine
from lab.machines.crowd_machine import CrowdMachine
from lab.machines.wire import Wire

ARMED = 1200.0
"""The time after which a machine without an agent powers itself off, in lab seconds."""


class CrowdHost:
    """A `MachineHost` of coroutines. `scale` is lab seconds per real second.

    `failing_checks` has, by SKU, the name and detail of a health check that fails on machines that boot.
    """

    def __init__(self, scale: float = 1.0) -> None:
        self._scale = scale
        self._wire: Wire | None = None
        self._running: dict[str, asyncio.Task[None]] = {}
        self._machines: dict[str, CrowdMachine] = {}
        self._off: set[asyncio.Task[None]] = set()
        self._closed = False
        self.failing_checks: dict[str, tuple[str, str]] = {}

    async def boot(self, machine: LabMachine) -> None:
        """Start the machine."""
        if self._closed or machine.instance_id in self._running:
            return
        if self._wire is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
            timeout = aiohttp.ClientTimeout(total=60)
            session = aiohttp.ClientSession(connector=connector, timeout=timeout)
            self._wire = Wire(session, self._scale)
        made = CrowdMachine(self._wire, machine, self.failing_checks.get(machine.sku))
        self._machines[machine.instance_id] = made
        life = asyncio.create_task(self._live(self._wire, made))
        self._running[machine.instance_id] = life

    async def shut_down(self, instance_id: str) -> None:
        """Make the machine send its last requests, then end it."""
        machine = self._machines.get(instance_id)
        await self.kill(instance_id)
        if machine is not None:
            await machine.stop()

    async def kill(self, instance_id: str) -> None:
        """Stop the machine at once. Does not call `powered_off`."""
        life = self._running.pop(instance_id, None)
        self._machines.pop(instance_id, None)
        if life is not None:
            life.cancel()
            await asyncio.wait({life})

    def console(self, instance_id: str) -> str:
        """Return no output: these machines write nothing."""
        del instance_id
        return ""

    async def close(self) -> None:
        """Stop all machines and close every connection. Idempotent."""
        self._closed = True
        await asyncio.gather(*(self.kill(name) for name in list(self._running)))
        this = asyncio.current_task()
        await asyncio.gather(*(task for task in self._off if task is not this))
        if self._wire is not None:
            await self._wire.session.close()
            self._wire = None

    async def _live(self, wire: Wire, machine: CrowdMachine) -> None:
        try:
            await machine.live()
        except ValueError:
            # The agent did not start, so the shutdown that the user data scheduled happens.
            await wire.sleep(ARMED)
        # From here on the machine is off and `kill` does nothing.
        life = self._running.pop(machine.lab.instance_id, None)
        if life is None:
            return
        del self._machines[machine.lab.instance_id]
        self._off.add(life)
        life.add_done_callback(self._off.discard)
        await machine.lab.powered_off()
