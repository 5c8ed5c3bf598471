"""Machines that boot during an upgrade or a downgrade get the agent that they request."""

import hashlib
import os
from pathlib import Path

import pytest

from autoscaler.app.process import keep_agent_beside
from autoscaler.controller.ports.replicas import MOST_AGENTS
from autoscaler.server.machines.agents import keep_agent
from tests.server.fakes import AGENT, Backstage, running

OLD, OLDER = b"print('old')\n", b"print('older')\n"


def sha(agent: bytes) -> str:
    return hashlib.sha256(agent).hexdigest()


def age(folder: Path, agent: bytes, seconds: int) -> None:
    os.utime(folder / f"{sha(agent)}.py", (seconds, seconds))


def test_every_start_finds_the_agents_of_earlier_starts(tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    assert keep_agent(folder, OLDER) == ()
    age(folder, OLDER, 1)
    assert keep_agent(folder, OLD) == (OLDER,)
    age(folder, OLD, 2)
    assert keep_agent(folder, AGENT) == (OLD, OLDER)
    assert keep_agent(folder, OLD) == (AGENT, OLDER), "the way back"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_only_the_latest_agents_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    many = [b"%d" % number for number in range(MOST_AGENTS + 3)]
    for number, agent in enumerate(many):
        keep_agent(folder, agent)
        age(folder, agent, number + 1)
    assert keep_agent(folder, many[-1]) == tuple(reversed(many[-MOST_AGENTS:-1]))
    assert len(list(folder.iterdir())) == MOST_AGENTS


def test_an_agent_file_that_was_changed_on_disk_is_not_served(tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    keep_agent(folder, OLD)
    (folder / f"{sha(OLD)}.py").write_bytes(b"import evil\n")
    (folder / "README").write_bytes(b"left here by a person")
    assert keep_agent(folder, AGENT) == ()


@pytest.mark.parametrize(("size", "served"), [(1 << 20, True), ((1 << 20) + 1, False)])
def test_an_agent_of_more_than_a_mebibyte_is_not_served(
    tmp_path: Path, size: int, served: bool
) -> None:
    folder, large = tmp_path / "agents", b"#" * size
    keep_agent(folder, large)
    assert keep_agent(folder, AGENT) == ((large,) if served else ())


@pytest.mark.parametrize("there", [True, False])
def test_an_unusable_agent_folder_does_not_prevent_the_start(tmp_path: Path, there: bool) -> None:
    store = tmp_path / "state.db"
    if there:
        (tmp_path / "state.db.agents").write_text("a file")
    assert keep_agent_beside(store if there else None, AGENT) == ()
    assert keep_agent_beside(tmp_path / "other.db", OLD) == ()
    assert keep_agent_beside(tmp_path / "other.db", AGENT) == (OLD,)


@pytest.mark.case(
    "a machine that boots during an upgrade gets the agent with the hash in its user data",
    topic="EC2's machines",
    source="EC2: user data",
)
async def test_an_agent_is_served_by_its_hash() -> None:
    async with running(Backstage(earlier=(OLD,))) as caller:
        for agent in (AGENT, OLD):
            reply = await caller.get("/bootstrap/agent.py", params={"sha256": sha(agent)})
            assert (reply.status, reply.body) == (200, agent)
            assert reply.headers["ETag"] == f'"{sha(agent)}"'
        assert (await caller.get("/bootstrap/agent.py")).body == AGENT
        for unknown in (sha(OLDER), "", "../../etc/passwd"):
            reply = await caller.get("/bootstrap/agent.py", params={"sha256": unknown})
            assert (reply.status, reply.json) == (404, {"error": "not_kept"})
        assert caller.behind.telemetry.steps["agent", "not_kept"] == 3
