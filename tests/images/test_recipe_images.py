"""Which recipe makes the image for an instance type."""

import pytest

from autoscaler.images.baking import MACHINE_RECIPES, recipe_image
from autoscaler.model.catalogue import OperatingSystem
from autoscaler.providers.ec2.instance_types import instance_type, instance_types

LINUX, WINDOWS = OperatingSystem.LINUX, OperatingSystem.WINDOWS


@pytest.mark.parametrize(
    ("name", "os", "image"),
    [
        ("c7i.large", LINUX, "autoscaler/linux-cpu-x64-*|self"),
        ("m7g.large", LINUX, "autoscaler/linux-cpu-arm64-*|self"),
        ("g5.xlarge", LINUX, "autoscaler/linux-gpu-x64-*|self"),
        ("g5g.xlarge", LINUX, "autoscaler/linux-gpu-arm64-*|self"),
        ("g4ad.xlarge", LINUX, "autoscaler/linux-rocm-x64-*|self"),
        ("dl1.24xlarge", LINUX, "autoscaler/linux-cpu-x64-*|self"),
        ("c7i.large", WINDOWS, "autoscaler/windows-x64-*|self"),
        ("g5.xlarge", WINDOWS, "autoscaler/windows-gpu-x64-*|self"),
        ("g4ad.xlarge", WINDOWS, "autoscaler/windows-x64-*|self"),
    ],
)
def test_types_get_the_image_of_a_recipe(name: str, os: OperatingSystem, image: str) -> None:
    found = instance_type(name)
    assert recipe_image(found.gpu_maker, os, found.arch) == image


def test_the_driver_of_each_gpu_in_the_table_is_known() -> None:
    """NVIDIA's have a driver in the recipes `gpu`, AMD's only Radeon is that of g4ad, Gaudi's have none."""
    every = {(one.gpu_maker, one.gpu_name) for one in instance_types().values()}
    others = {one for one in every if one[0] != "nvidia"}
    assert others == {("", ""), ("amd", "radeon-pro-v520"), ("habana", "gaudi-hl-205")}
    assert {name for maker, name in every if maker == "nvidia"} == {
        *("a10g", "a100", "b200", "b300", "h100", "h200", "k80", "l4", "l40s", "m60", "t4", "t4g"),
        *("rtx-pro-4500", "rtx-pro-server-6000", "v100"),
    }


def test_each_image_is_that_of_a_recipe_for_the_architecture() -> None:
    made = {
        (one.platform, arch, f"autoscaler/{name}-{arch}-*|self")
        for name, one in MACHINE_RECIPES.items()
        for arch in one.instance_types
    }
    for one in instance_types().values():
        for os in {platform for platform, arch, _ in made if arch is one.arch}:
            assert (os, one.arch, recipe_image(one.gpu_maker, os, one.arch)) in made
