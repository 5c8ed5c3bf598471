"""Real processes on one PostgreSQL server: one leads, the others store deliveries, and one takes over."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from autoscaler.app.following import Following, ReplicaOptions
from autoscaler.app.preflight import load_for_service
from autoscaler.controller.ports.replicas import Replica
from autoscaler.controller.system import SystemClock
from autoscaler.server.listening.listener import KeptSockets
from lab.controller_process import parse_metrics
from tests.patience import PATIENCE
from tests.store.opened import open_leading
from tests.store.postgresql_server import END_SESSIONS, PostgresqlServer, change
from tests.store.served import Served, delivery


class Replicas:
    """Replicas of one fleet, by name."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._url = url
        self._processes: dict[str, tuple[Served, asyncio.subprocess.Process]] = {}

    async def start(self, name: str, *options: str) -> None:
        served = Served(self._folder / name, self._folder / "unused.db")
        fleet = served.folder / "fleet.yaml"
        fleet.write_text(fleet.read_text().replace(f"sqlite:///{served.store}", self._url))
        self._processes[name] = served, await served.start(options=options)

    def change(self, name: str, *changes: tuple[str, str]) -> None:
        fleet = self._processes[name][0].folder / "fleet.yaml"
        text = fleet.read_text()
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        fleet.write_text(text)

    async def deliver(self, name: str, *jobs: int) -> list[int]:
        return await self._processes[name][0].deliver(*jobs)

    def send(self, name: str, number: signal.Signals) -> None:
        self._processes[name][1].send_signal(number)

    async def ended(self, name: str) -> int:
        async with asyncio.timeout(PATIENCE):
            return await self._processes[name][1].wait()

    def log(self, name: str) -> str:
        return self._processes[name][0].log()

    def events(self, name: str) -> list[str]:
        lines = self._processes[name][0].log().splitlines()
        return [json.loads(line)["event"] for line in lines if line.startswith("{")]

    async def leads(self, name: str) -> bool:
        return (await self.metrics(name)).get("autoscaler_leader") == 1

    async def metrics(self, name: str) -> dict[str, float]:
        _, text = await self.get(name, "/metrics")
        return parse_metrics(text)

    async def get(self, name: str, path: str) -> tuple[int, str]:
        """Return the status and the text of an answer, or 0 without one."""
        url = f"http://127.0.0.1:{self._processes[name][0].listens()}{path}"
        try:
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientError:
            return 0, ""

    async def until_leads(self, name: str) -> None:
        await self._until(name, lambda: self.leads(name))

    async def until_logged(self, name: str, event: str, times: int = 1) -> None:
        async def logged() -> bool:
            return self.events(name).count(event) >= times

        await self._until(name, logged)

    async def _until(self, name: str, is_so: Callable[[], Awaitable[bool]]) -> None:
        served, process = self._processes[name]
        async with asyncio.timeout(PATIENCE):
            while not await is_so():
                assert process.returncode is None, served.log()
                await asyncio.sleep(0.1)

    async def close(self) -> None:
        for _, process in self._processes.values():
            if process.returncode is None:
                process.kill()
                await process.wait()


@pytest.fixture
def url(server: PostgresqlServer) -> str:
    return server.database()


@pytest.fixture
async def replicas(tmp_path: Path, url: str) -> AsyncIterator[Replicas]:
    made = Replicas(tmp_path, url)
    yield made
    await made.close()


async def test_any_replica_stores_deliveries_and_the_leader_applies_all(
    replicas: Replicas, url: str
) -> None:
    await replicas.start("a")
    await replicas.until_leads("a")
    await replicas.start("b")
    await replicas.start("c", "--intake-only")
    assert await replicas.deliver("a", 1) == [202]
    assert await replicas.deliver("b", 2, 1) == [202, 200]
    assert await replicas.deliver("c", 3) == [202]
    assert not await replicas.leads("b")
    metrics = await replicas.metrics("b")
    assert metrics['autoscaler_store_write_duration_seconds_count{operation="accept"}'] == 1
    assert metrics["autoscaler_event_loop_lag_max_seconds"] > 0
    assert not any(name.startswith("autoscaler_jobs") for name in metrics)
    status, agent = await replicas.get("a", "/bootstrap/agent.py")
    assert status == 200
    assert await replicas.get("b", "/bootstrap/agent.py") == (200, agent), "the leader's answer"
    replicas.send("a", signal.SIGTERM)
    assert await replicas.ended("a") == 0
    await replicas.until_leads("b")
    assert await replicas.deliver("c", 4) == [202]
    assert not await replicas.leads("c")
    replicas.send("b", signal.SIGTERM)
    assert await replicas.ended("b") == 0
    assert await replicas.deliver("c", 5) == [202]
    assert (await replicas.get("c", "/bootstrap/agent.py"))[0] == 503
    replicas.send("c", signal.SIGTERM)
    assert await replicas.ended("c") == 0
    store = await open_leading(url)
    state = await store.load(0.0)
    await store.close()
    assert {job.id for job in state.jobs} >= {1, 2, 3}
    waiting = {int(one.id.removeprefix("d-")) for one in state.unapplied}
    assert {job.id for job in state.jobs} | waiting == {1, 2, 3, 4, 5}
    assert 5 in waiting


async def test_a_replica_that_follows_reads_a_changed_file_at_sighup(
    replicas: Replicas, url: str
) -> None:
    await replicas.start("a", "--intake-only")
    assert await replicas.deliver("a", 1) == [202]
    replicas.change("a", ("acme", "other"))
    replicas.send("a", signal.SIGHUP)
    await replicas.until_logged("a", "following", times=2)
    assert await replicas.deliver("a", 2) == [202]
    replicas.send("a", signal.SIGTERM)
    assert await replicas.ended("a") == 0
    store = await open_leading(url)
    assert [one.id for one in await store.unapplied(9)] == ["d-1"], "2 is of no scope any more"
    await store.close()


async def test_a_follower_that_ends_stores_a_delivery_that_had_begun(
    tmp_path: Path, url: str
) -> None:
    Served(tmp_path, Path("unused.db"))  # writes the files
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(fleet.read_text().replace("sqlite:///unused.db", url))
    options = ReplicaOptions(intake_only=True)
    following = Following(
        load_for_service(fleet, try_store=False), SystemClock(), kept := KeptSockets(), options
    )
    ending = asyncio.create_task(following.until_leading())
    async with asyncio.timeout(PATIENCE):
        while following._unready():  # noqa: ASYNC110 - it connects in a thread
            await asyncio.sleep(0.01)
    request = delivery(7, padding=100)
    reader, writer = await asyncio.open_connection("127.0.0.1", following._serving.address.port)
    writer.write(request[:-1])
    await asyncio.sleep(0.01)
    ending.cancel()
    await asyncio.sleep(0)  # it ends now
    writer.write(request[-1:])
    answer = await reader.readline()
    writer.close()
    with pytest.raises(asyncio.CancelledError):
        await ending
    kept.close()
    assert answer == b"HTTP/1.1 202 Accepted\r\n"


async def test_a_replica_of_another_fleet_is_refused(replicas: Replicas, url: str) -> None:
    store = await open_leading(url, Replica("host 9", "http://host-9", "theirs"))
    await store.close()
    await replicas.start("a")
    assert await replicas.ended("a") == 1
    assert "the database has the state of fleet theirs, and this is fleet ci" in replicas.log("a")


@pytest.mark.systems
async def test_a_leader_that_stood_still_follows_the_one_that_took_over(replicas: Replicas) -> None:
    await replicas.start("a")
    await replicas.until_leads("a")
    await replicas.start("b")
    replicas.send("a", signal.SIGSTOP)
    await replicas.until_leads("b")
    replicas.send("a", signal.SIGCONT)
    await replicas.until_logged("a", "following", times=2)
    assert "leadership_ended" in replicas.events("a")
    assert await replicas.deliver("a", 1) == [202]
    assert not await replicas.leads("a")
    assert await replicas.leads("b")


@pytest.mark.systems
async def test_a_replica_that_led_waits_for_a_server_that_refuses_its_user(
    tmp_path: Path, url: str
) -> None:
    """Such as a password that was changed at the server first."""
    change(url, "CREATE ROLE first SUPERUSER LOGIN")
    replicas = Replicas(tmp_path, url.replace("postgres@", "first@"))
    try:
        await replicas.start("a")
        await replicas.until_leads("a")
        change(url, "ALTER ROLE first RENAME TO second")
        change(url, END_SESSIONS)
        await replicas.until_logged("a", "store_not_reached")
        change(url, "ALTER ROLE second RENAME TO first")
        await replicas.until_logged("a", "following", times=2)
        assert await replicas.deliver("a", 1) == [202]
    finally:
        await replicas.close()


@pytest.mark.systems
async def test_replicas_outlive_their_server_and_lead_again(tmp_path: Path) -> None:
    server = PostgresqlServer()
    replicas = Replicas(tmp_path, server.database())
    try:
        await replicas.start("a")
        await replicas.until_leads("a")
        server.kill()
        await replicas.until_logged("a", "leadership_ended")
        server.start()
        await replicas.until_leads("a")
        assert await replicas.deliver("a", 1) == [202]
    finally:
        await replicas.close()
        server.close()
