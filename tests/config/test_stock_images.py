"""`image.stock` in fleet.yaml: what it means, what it changes, and what contradicts it."""

from fnmatch import fnmatchcase

import pytest

from autoscaler import config
from autoscaler.config.settings.sku import StockImage
from autoscaler.images.load import load_versions
from autoscaler.model.catalogue import Architecture
from autoscaler.providers.ec2.stock_images import stock_image
from tests.config.fleet_file import MINIMAL, PODS, Folder

NAMED = '    image: {name: "runner-*"}\n'
STOCK = MINIMAL.replace(NAMED, "    image: {stock: ubuntu-24.04}\n")
PINNED = {StockImage.UBUNTU_24_04: "ubuntu", StockImage.AMAZON_LINUX_2023: "amazon-linux"}


def health_checks(folder: Folder, text: str) -> float:
    settings = folder.load(text).settings
    return config.sku(settings, "gpu", ()).deadlines.health_checks


@pytest.mark.parametrize("stock", StockImage)
@pytest.mark.parametrize("arch", Architecture)
def test_a_stock_image_is_a_newer_one_of_those_in_versions_yaml(
    stock: StockImage, arch: Architecture
) -> None:
    """versions.yaml pins the image that builds start from. Machines start from the newest of the same name."""
    pinned = load_versions().versions.machine_images[PINNED[stock]]
    name, owner = stock_image(stock, arch, "us-east-1")
    assert owner == pinned.owner
    assert fnmatchcase(pinned.names[arch] or "", name)
    other = next(one for one in Architecture if one is not arch)
    assert not fnmatchcase(pinned.names[other] or "", name)


@pytest.mark.parametrize(
    ("region", "owner"),
    [
        ("us-east-1", "099720109477"),
        ("ap-southeast-2", "099720109477"),
        ("us-gov-west-1", "513442679011"),
        ("cn-northwest-1", "837727238323"),
    ],
)
def test_canonical_has_another_account_in_each_partition(region: str, owner: str) -> None:
    assert stock_image(StockImage.UBUNTU_24_04, Architecture.X64, region)[1] == owner


def test_the_deadline_and_the_disk_have_room_for_the_installation(folder: Folder) -> None:
    assert health_checks(folder, MINIMAL) == 600
    assert health_checks(folder, STOCK) == 1200
    driver = "    driver: install\n    accelerator: {vendor: nvidia, count: 1}\n"
    assert health_checks(folder, STOCK + driver) == 3300
    assert health_checks(folder, STOCK + "    deadlines: {health_checks: 7m}\n") == 420
    sku = folder.load(STOCK).settings.skus["gpu"]
    assert (sku.root_disk_gb, sku.disk_gb) == (40, None)
    assert folder.load(STOCK + "    disk_gb: 12\n").settings.skus["gpu"].root_disk_gb == 12
    assert folder.load(MINIMAL).settings.skus["gpu"].root_disk_gb is None


@pytest.mark.parametrize(
    ("image", "more", "key", "what", "fix"),
    [
        ("{stock: ubuntu-24.04, name: x}", "", "image.name", "contradicts stock", "remove one"),
        ("{stock: ubuntu-24.04, owner: self}", "", "image.owner", "contradicts stock", "remove"),
        ("{owner: self}", "", "image", "has no name", "add name, or stock: ubuntu-24.04"),
        ("{stock: debian-12}", "", "image.stock", "ubuntu-24.04 or amazon-linux-2023", "write"),
        ("{stock: windows-server-2022}", "os: windows", "image.stock", "is not built", "images.md"),
        (
            "{stock: amazon-linux-2023}",
            "os: windows",
            "image.stock",
            "amazon-linux-2023 is Linux, and os is windows",
            "write os: linux",
        ),
    ],
)
def test_a_contradiction_is_one_problem(
    folder: Folder, image: str, more: str, key: str, what: str, fix: str
) -> None:
    text = MINIMAL.replace(NAMED, f"    image: {image}\n") + (f"    {more}\n" if more else "")
    [problem] = folder.problems(text)
    assert problem.key == f"skus.gpu.{key}"
    assert what in f"{problem.what} {problem.fix}"
    assert fix in problem.fix


def test_a_pod_gets_no_runner(folder: Folder) -> None:
    [problem] = folder.problems(PODS + "    image: {stock: ubuntu-24.04}\n")
    assert problem.key == "skus.gpu.image.stock"
    assert problem.what == 'the agent installs no runner in a pod, and "cluster" is on Kubernetes'
