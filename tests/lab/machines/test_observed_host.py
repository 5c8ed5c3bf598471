"""A host whose machines' requests pass through a listener, which can drop them."""

from typing import Any

from lab.machines.crowd import CrowdHost
from lab.machines.interception import MachineRequest
from lab.machines.observed_host import ObservedHost
from tests.lab.machines.conftest import UserData
from tests.lab.machines.world import World, running, until


class Listener:
    """Breaks the first acknowledgement on its way, and notes what else was said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.broken: list[str] = []
        self.answered: list[tuple[str, int]] = []

    async def before(self, said: MachineRequest) -> bool:
        self.said.append(said.step)
        if said.step == "acknowledge" and not self.broken:
            self.broken.append(said.body["runner"])
            return False
        return True

    async def after(self, said: MachineRequest, status: int, _: dict[str, Any]) -> None:
        self.answered.append((said.step, status))


async def test_the_listener_gets_all_requests_and_broken_ones_are_repeated(
    user_data: UserData,
) -> None:
    async with running(World(scale=50, jobs=[0.1] * 2)) as world:
        listener = Listener()
        host = ObservedHost(CrowdHost(world.scale), listener)
        for name in ("i-1", "i-2"):
            await host.boot(world.machine(name, user_data(world)))
        await until(lambda: len(world.off) == 2)
        await host.close()
        assert len(listener.broken) == 1
        acknowledged = [status for step, status in listener.answered if step == "acknowledge"]
        assert (len(acknowledged), world.count("acknowledge")) == (2, 2)
        assert world.count("completed") == 2
        assert world.wrong == []


async def test_a_killed_machine_sends_nothing_more(user_data: UserData) -> None:
    async with running(World(scale=50, forever={"attest": 503})) as world:
        listener = Listener()
        host = ObservedHost(CrowdHost(world.scale), listener)
        silenced, received = ("i-1", "attest"), ("i-2", "attest")
        for name, _ in (silenced, received):
            await host.boot(world.machine(name, user_data(world)))
        await until(lambda: {silenced, received} <= set(world.reported))
        await host.kill("i-1")
        said, others = world.reported.count(silenced), world.reported.count(received)
        await until(lambda: world.reported.count(received) >= others + 5)
        assert world.reported.count(silenced) <= said + 1  # one may have been on its way
        assert set(listener.said) == {"attest"}
        await host.close()
        assert world.off == []
