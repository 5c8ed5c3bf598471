"""A controller that starts again within its process, because of a reload: its addresses and its signals."""

import asyncio
import signal
import socket
import sys
from pathlib import Path

import aiohttp
import pytest

from autoscaler.config.settings.fleet import Settings
from autoscaler.model.identifiers import ProviderName
from tests.app.served_process import logged, serving, write_operators
from tests.config.fleet_file import Folder
from tests.providers.memory import REGISTERED
from tests.providers.memory.fleet import TEXT
from tests.providers.memory.kind import MemoryFactory, MemoryKind

NOWHERE = "scopes: [{org: acme}]\n  api_url: http://127.0.0.1:9"
GROUP = ("{org: acme}", "{org: acme, runner_group: gpu}")
"""A change for which the controller starts again."""


class Fleet:
    """A folder with a fleet.yaml whose GitHub does not answer."""

    def __init__(self, parent: Path) -> None:
        self.path = Folder(parent).path
        self.write()
        write_operators(self.path)

    def write(self, *changes: tuple[str, str]) -> None:
        """Write fleet.yaml with these changes."""
        text = TEXT.replace("scopes: [{org: acme}]", NOWHERE)
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        (self.path / "fleet.yaml").write_text(text)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


async def _asked_until(reloaded: asyncio.Event, address: str) -> list[OSError]:
    """Send requests, each in a connection of its own, until the event. Return why connections failed.

    A connection that the controller accepted just before the stop may be closed: then there is another one.
    """
    failed = list[OSError]()
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        while not reloaded.is_set():
            try:
                async with session.get(f"http://{address}/healthz") as answer:
                    assert answer.status == 200
            except aiohttp.ClientConnectorError as error:
                failed.append(error.os_error)
            except aiohttp.ClientConnectionError:
                continue
    return failed


async def test_no_connection_is_refused_while_the_controller_starts_again(fleet: Fleet) -> None:
    async with serving(fleet.path, REGISTERED[-1]) as process:
        address, reloaded = (await logged(process, "serving"))["on"], asyncio.Event()
        asking = asyncio.create_task(_asked_until(reloaded, address))
        fleet.write(GROUP)
        process.send_signal(signal.SIGHUP)
        assert (await logged(process, "serving"))["on"] == address
        await logged(process, "configuration_reloaded")
        reloaded.set()
        assert await asking == []


@pytest.mark.systems
async def test_a_file_with_which_it_cannot_start_is_refused_and_the_earlier_one_used(
    fleet: Fleet,
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        started, used = asyncio.Event(), f"127.0.0.1:{taken.getsockname()[1]}"
        async with serving(fleet.path, REGISTERED[-1]) as process:
            address = (await logged(process, "serving"))["on"]
            asking = asyncio.create_task(_asked_until(started, address))
            fleet.write(("127.0.0.1:0", used), GROUP)
            process.send_signal(signal.SIGHUP)
            refused = await logged(process, "configuration_not_reloaded")
            assert (refused["by"], refused["problems"]) == (
                "SIGHUP",
                [
                    f"the controller cannot start with it: cannot listen on {used}: "
                    "Address already in use; another process listens there, which ss -ltnp shows: end "
                    "it, or use another port"
                ],
            )
            assert (await logged(process, "serving"))["on"] == address
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://{address}/healthz") as answer,
            ):
                assert answer.status == 200
            started.set()
            assert await asking == []
            fleet.write(GROUP)
            process.send_signal(signal.SIGHUP)
            reloaded = await logged(process, "configuration_reloaded")
            assert reloaded["changed"] == ["github.scopes"]


@pytest.mark.systems
async def test_the_earlier_configuration_has_what_a_reload_changed(fleet: Fleet) -> None:
    """Otherwise a SKU that was added would be gone, and its ready machines terminate."""
    added = ("machines: 20", "machines: 30")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        async with serving(fleet.path, REGISTERED[-1]) as process:
            await logged(process, "serving")
            fleet.write(added)
            process.send_signal(signal.SIGHUP)
            await logged(process, "configuration_reloaded")
            fleet.write(added, ("127.0.0.1:0", f"127.0.0.1:{taken.getsockname()[1]}"))
            process.send_signal(signal.SIGHUP)
            await logged(process, "configuration_not_reloaded")
            fleet.write(added)
            process.send_signal(signal.SIGHUP)
            assert (await logged(process, "configuration_reloaded"))["changed"] == []


@pytest.mark.systems
async def test_it_can_listen_at_another_host_with_the_same_port(fleet: Fleet) -> None:
    """The kernel refuses a second socket with the port, if one of them is for all hosts."""
    async with serving(fleet.path, REGISTERED[-1]) as process:
        port = (await logged(process, "serving"))["on"].rpartition(":")[2]
        for host in ("127.0.0.1", "0.0.0.0"):
            insecure = ("server: {", "server: {insecure: true, ")
            fleet.write(("127.0.0.1:0", f"{host}:{port}"), insecure)
            process.send_signal(signal.SIGHUP)
            assert (await logged(process, "serving"))["on"] == f"{host}:{port}"
            await logged(process, "configuration_reloaded")


@pytest.mark.systems
async def test_a_second_sighup_is_remembered_while_the_controller_starts_again(
    fleet: Fleet,
) -> None:
    async with serving(fleet.path, REGISTERED[-1]) as process:
        await logged(process, "serving")
        fleet.write(GROUP)
        process.send_signal(signal.SIGHUP)
        await logged(process, "controller_restarts")
        fleet.write(GROUP, ("machines: 20", "machines: 30"))
        process.send_signal(signal.SIGHUP)
        changed = [(await logged(process, "configuration_reloaded"))["changed"] for _ in range(2)]
        assert changed == [["github.scopes"], ["limits.machines"]]


class WaitingFactory(MemoryFactory):
    """Prints a line before it starts, and then waits until there is no file `wait`."""

    async def start(self) -> None:
        sys.stdout.write('{"event": "factory_starts"}\n')
        while Path("wait").exists():  # noqa: ASYNC110, ASYNC240 - another process removes it
            await asyncio.sleep(0.01)


class WaitingKind(MemoryKind):
    """The kind of these providers."""

    def factory(self, name: ProviderName, settings: Settings, folder: Path) -> MemoryFactory:
        del folder
        return WaitingFactory(name, settings)


@pytest.mark.systems
async def test_a_sighup_during_a_start_that_fails_is_not_lost(fleet: Fleet) -> None:
    """An operator corrects the file as soon as the log has the reason."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        kind = f"{__name__}:WaitingKind"
        async with serving(fleet.path, kind) as process:
            await logged(process, "serving")
            (fleet.path / "wait").touch()
            fleet.write(("127.0.0.1:0", f"127.0.0.1:{taken.getsockname()[1]}"))
            process.send_signal(signal.SIGHUP)
            await logged(process, "factory_starts")
            fleet.write(GROUP)
            process.send_signal(signal.SIGHUP)
            (fleet.path / "wait").unlink()
            await logged(process, "configuration_not_reloaded")
            reloaded = await logged(process, "configuration_reloaded")
            assert reloaded["changed"] == ["github.scopes"]


@pytest.mark.systems
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("again", [False, True])
async def test_a_start_that_hangs_can_be_ended(
    fleet: Fleet, number: signal.Signals, again: bool
) -> None:
    waiting = fleet.path / "wait"
    if not again:
        waiting.touch()
    async with serving(fleet.path, f"{__name__}:WaitingKind") as process:
        if again:
            await logged(process, "serving")
            waiting.touch()
            fleet.write(GROUP)
            process.send_signal(signal.SIGHUP)
        await logged(process, "factory_starts")
        process.send_signal(number)
        assert await process.wait() == 0
    assert waiting.exists()


@pytest.mark.systems
async def test_sigterm_during_the_start_ends_the_process(fleet: Fleet) -> None:
    async with serving(fleet.path, REGISTERED[-1]) as process:
        await logged(process, "serving")
        fleet.write(GROUP)
        process.send_signal(signal.SIGHUP)
        await logged(process, "controller_restarts")
        process.terminate()
        assert await process.wait() == 0
