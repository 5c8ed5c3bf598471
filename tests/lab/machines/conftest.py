"""Hosts of both kinds, and the user data that their machines run."""

import hashlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from autoscaler.app.agent_file import build_agent
from autoscaler.model.catalogue import OperatingSystem
from autoscaler.providers.ec2.user_data import render_user_data
from lab.machine_host import MachineHost
from lab.machines.crowd import CrowdHost
from lab.machines.process import ProcessHost
from tests.lab.machines.world import World

AGENT = build_agent()

UserData = Callable[..., str]
Hosts = Callable[..., MachineHost]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may enter: pytest's own are closed to them."""
    folder = Path(tempfile.mkdtemp(prefix="lab-machines-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def user_data() -> UserData:
    """The real user data for a world."""

    def render(world: World, system: OperatingSystem = OperatingSystem.LINUX) -> str:
        return render_user_data(system, world.url, "lab", hashlib.sha256(AGENT).hexdigest())

    return render


@pytest.fixture(params=["process", "crowd"])
async def make_host(request: pytest.FixtureRequest, open_folder: Path) -> AsyncIterator[Hosts]:
    """A host of either kind for a time scale."""
    made: list[MachineHost] = []

    def make(scale: float) -> MachineHost:
        if request.param == "process":
            made.append(ProcessHost(open_folder, AGENT, scale, keep=True))
        else:
            made.append(CrowdHost(scale))
        return made[-1]

    yield make
    for host in made:
        await host.close()
