"""One build of the image for Linux, of which all tests of its content read the result."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from autoscaler.providers.ec2.tags import PUBLISHED
from lab.ec2.images import Image
from lab.ec2.instances import Instance
from tests.ami.account import RECIPES, Place, bake_all, place, printed_by, start_bake


def make_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """Return a new folder that the users of the machines can open."""
    folder = factory.mktemp(name)
    folder.chmod(0o755)
    return folder


@dataclass(frozen=True)
class Built:
    """A build that has ended: the image, what the command printed, the folder with what it changed."""

    image: Image
    output: str
    seconds: float
    snapshot_tags: dict[str, str]
    disk: Path
    machines_left: list[Instance]
    published: str
    """What `autoscaler images publish` printed."""

    def read(self, path: str) -> str:
        return (self.disk / path.lstrip("/")).read_text()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def account(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """An account with nothing but a stock image."""
    async with place(make_folder(tmp_path_factory, "ami")) as at:
        yield at


async def bake(account: Place, recipe: str) -> Built:
    """Build the image of a recipe with Packer, on a machine of the lab."""
    began = time.monotonic()
    process = start_bake(account, recipe)
    printed, error = await printed_by(process)
    output = printed + error
    assert process.returncode == 0, output
    [image] = account.ec2.images.named(f"autoscaler/{recipe}-x64-*")
    return Built(
        image,
        output,
        time.monotonic() - began,
        dict(account.ec2.images.snapshots.find(image.snapshot_id).tags),
        account.host.disk(image.source_instance),
        [one for one in account.ec2.machines_left() if one.ended_at is None],
        next(line for line in printed.splitlines() if ": published after " in line),
    )


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def built(account: Place) -> Built:
    """The image for Linux without a driver."""
    return await bake(account, "linux-cpu")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def gpu_images(account: Place) -> dict[str, Built]:
    """The images with a driver, by recipe, built at the same time."""
    return await bake_all(bake, account, RECIPES[1:])


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def serving(account: Place, built: Built) -> None:
    """Start `autoscaler serve`. There is a newer image that was not tested."""
    tags = {key: value for key, value in built.image.tags.items() if key != PUBLISHED}
    account.ec2.images.publish(built.image, "autoscaler/linux-cpu-x64-29991231-000000", tags)
    await account.lab.start_controller()
