"""A host of Windows machines, and the user data that they get."""

import hashlib
import platform
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from autoscaler.app.agent_file import build_agent
from autoscaler.model.catalogue import OperatingSystem
from autoscaler.providers.ec2.user_data import render_user_data
from lab.windows.host import WindowsHost
from lab.windows.parts import Parts, find
from tests.lab.machines.world import World

AGENT = build_agent()

Hosts = Callable[..., WindowsHost]


@pytest.fixture(scope="session", autouse=True)
def parts() -> Parts:
    """The parts that `make test-systems PARTS=windows` brings. Wine runs x64 programs on x64 only."""
    if platform.machine() != "x86_64":
        pytest.skip("Wine runs Windows programs for x64 on x64 only")
    return find()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that lab machines can use."""
    folder = Path(tempfile.mkdtemp(prefix="lab-windows-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
async def make_host(open_folder: Path, parts: Parts) -> AsyncIterator[Hosts]:
    """Return a host for a time scale and an agent. It keeps the disks of its machines."""
    made: list[WindowsHost] = []

    def make(scale: float, agent: bytes = AGENT) -> WindowsHost:
        made.append(WindowsHost(open_folder, agent, parts, scale, keep=True))
        return made[-1]

    yield make
    for host in made:
        await host.close()
        assert host.wrong == []


def user_data(world: World, boot_script: str | None = None) -> str:
    """Return the real user data for a world."""
    digest = hashlib.sha256(AGENT).hexdigest()
    return render_user_data(
        OperatingSystem.WINDOWS, world.url, "lab", digest, boot_script=boot_script
    )
