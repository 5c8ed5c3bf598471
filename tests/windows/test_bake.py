"""`autoscaler images bake windows` and `windows-gpu`: real Packer, a real sshd, and the recipes under Wine."""

import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from lab.ec2.images import Image
from lab.ec2.lifecycle import BY_ITSELF
from lab.laboratory import LabFleet, Laboratory
from lab.ports import free_ports
from lab.windows.disk import WindowsDisk
from lab.windows.parts import Parts
from tests.ami.account import Account, bake_all, key_pair, printed_by, start_bake
from tests.ami.repository import sha256
from tests.lab.system.harness import SKU_TAG, at_rest, job
from tests.lab.system.pace import PATIENCE
from tests.windows.image_build import publishers
from tests.windows.image_machines import ImageHost
from tests.windows.stock import DRIVER, RUNNER, make_stock

RECIPES = ("windows", "windows-gpu")
SESSION = pytest.mark.asyncio(loop_scope="module")
FLEET = LabFleet(
    "acme",
    ("widgets",),
    {
        "baked": {
            "on": [{"provider": "lab", "instance_types": ["m7i.xlarge"]}],
            "os": "windows",
            "image": {"name": "autoscaler/windows-x64-*", "owner": "self"},
        }
    },
    scale=1.0,
)


@dataclass(frozen=True)
class WindowsAccount(Account):
    """An account whose machines run Windows under Wine."""

    host: ImageHost


@dataclass(frozen=True)
class Baked:
    """A build that has ended: the image, what the command printed, and the disk."""

    image: Image
    output: str
    disk: WindowsDisk


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that lab machines can use."""
    made = Path(tempfile.mkdtemp(prefix="lab-windows-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def account(folder: Path, parts: Parts) -> AsyncIterator[WindowsAccount]:
    """An account with nothing but a stock image of Windows."""
    private, public = key_pair()
    key, versions = folder / "key", folder / "versions.yaml"
    key.write_bytes(private)
    key.chmod(0o600)
    ports = dict(zip(RECIPES, free_ports(len(RECIPES)), strict=True))
    with publishers(folder, parts) as at:
        versions.write_text(at.downloads.versions(at.url))
        stock = make_stock(folder / "stock", parts, at.certificate)
        host = ImageHost(folder / "machines", stock.prefix, ports, public, parts)
        async with Laboratory(FLEET, machines=host) as lab:
            host.ec2 = lab.ec2
            lab.ec2.images.imaging = 0.5
            lab.ec2.images.add(
                "windows-1", platform="windows", root_device="/dev/sda1", snapshot_gb=30
            )
            fleet = yaml.safe_load((lab.folder / "fleet.yaml").read_text())
            variables = {
                "source_name": "windows-1",
                "source_owner": "self",
                "region": lab.ec2.region,
                "subnet_id": fleet["providers"]["lab"]["ec2"]["subnets"][0],
                "endpoint": lab.ec2.endpoint_url,
                "source_cidrs": ["127.0.0.1/32"],
                "ssh_host": "127.0.0.1",
                "ssh_private_key_file": str(key),
                "poll_seconds": 1,
            }
            yield WindowsAccount(lab, ports, versions, variables, host)


async def bake(account: WindowsAccount, recipe: str) -> Baked:
    """Build, test and publish an image."""
    process = start_bake(account, recipe)
    printed, error = await printed_by(process)
    logs = [account.host.log(one.id) for one in account.ec2.instances]
    assert process.returncode == 0, "\n".join([printed, error, *logs])
    [image] = account.ec2.images.named(f"autoscaler/{recipe}-x64-*")
    return Baked(image, printed + error, account.host.disk(image.source_instance))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def images(account: WindowsAccount) -> dict[str, Baked]:
    """The images by recipe, built at the same time."""
    return await bake_all(bake, account, RECIPES)


@SESSION
@pytest.mark.parametrize("recipe", RECIPES)
async def test_an_image_is_built_over_ssh_tested_on_its_own_machine_and_published(
    images: dict[str, Baked], recipe: str
) -> None:
    baked = images[recipe]
    versions = json.loads(baked.disk.path("C:\\runner-agent\\image.json").read_text())["versions"]
    line = next(one for one in baked.output.splitlines() if ": published after " in one)
    assert json.loads(line.partition(" s: ")[2]) == versions
    assert versions["runner"] == RUNNER
    assert versions.get("driver") == (DRIVER if recipe == "windows-gpu" else None)
    tags = baked.image.tags
    assert (baked.image.platform, tags["autoscaler:image-recipe"]) == ("windows", recipe)
    assert tags["autoscaler:image-agent"] == versions["agent"]
    assert tags["autoscaler:published"]
    assert 'image: {name: "autoscaler/' + recipe + '-x64-*", owner: self}' in baked.output


@SESSION
@pytest.mark.usefixtures("images")
async def test_the_builds_leave_no_machine(account: WindowsAccount) -> None:
    assert [one for one in account.ec2.machines_left() if one.ended_at is None] == []


@SESSION
async def test_a_machine_of_a_baked_image_runs_a_job_and_powers_off(
    account: WindowsAccount, images: dict[str, Baked]
) -> None:
    """From an account with a stock image to a job: `images bake`, and `serve` with the image's pattern."""
    await account.lab.start_controller()
    [done] = account.lab.github.push([job("first", "baked", 1.0)])
    await at_rest(account.lab, PATIENCE)
    assert (done.conclusion, done.stepped, len(done.starts)) == ("success", True, 1)
    [instance] = [one for one in account.ec2.instances if SKU_TAG in one.tags]
    assert instance.specification.image.id == images["windows"].image.id
    assert instance.reason is not None
    assert instance.reason[0] == BY_ITSELF[0]
    disk = account.host.disk(instance.id)
    # The image's own agent, and its own runner.
    assert (
        sha256(disk.path("C:\\runner-agent\\agent.py"))
        == images["windows"].image.tags["autoscaler:image-agent"]
    )
    assert disk.path("C:\\actions-runner\\warmed-up").exists()
