"""The plan of a driver's installation, from versions.yaml: what a machine with `driver: install` gets."""

import re
from typing import Any

from autoscaler.config.problems import ConfigurationError
from autoscaler.config.settings.sku import AcceleratorVendor
from autoscaler.images.load import VersionsFile
from autoscaler.images.values import read_values
from autoscaler.model.catalogue import Architecture, OperatingSystem

_NVIDIA = "programs.nvidia-driver"
_NVIDIA_WINDOWS = "programs.nvidia-driver-windows"
_FABRIC_MANAGER = "programs.nvidia-fabric-manager"
_TOOLKIT = "programs.nvidia-container-toolkit"

_AMD = "programs.amdgpu-driver"

_ECR_PUBLIC = "public.ecr.aws/docker/library"
"""Where Amazon ECR Public has Docker's official images, with the same digests. It limits the data of anonymous
pulls (500 GB a month, "Amazon ECR Public service quotas"). Docker Hub limits the number of pulls for each IPv4
address ("Docker Hub usage and limits"): for all machines behind a NAT gateway together."""

_LICENSED = re.compile("grid|vgpu|gaming", re.IGNORECASE)
"""In the addresses of NVIDIA's other drivers on EC2 (EC2 User Guide, "NVIDIA drivers": the buckets
ec2-linux-nvidia-drivers/grid-... and nvidia-gaming)."""


class NotBuiltError(Exception):
    """No agent installs the driver of this vendor on such a machine. The text says why."""


def driver_plan(
    file: VersionsFile,
    platform: OperatingSystem,
    architecture: Architecture,
    vendor: AcceleratorVendor,
    test_image: str | None = None,
) -> dict[str, Any]:
    """Return the plan, as docs/bootstrap.md describes it, without its time budget.

    `test_image`: the container image for the test of NVIDIA's toolkit; default: the file's Ubuntu.

    Raises ConfigurationError for a value that is null or missing and for a driver that is not NVIDIA's
    data-center driver, and NotBuiltError.
    """
    amd = vendor is AcceleratorVendor.AMD
    if platform is OperatingSystem.WINDOWS and amd:
        raise NotBuiltError(f"the agent installs no driver of AMD on {platform}")
    if amd and architecture is not Architecture.X64:
        raise NotBuiltError(
            f"AMD publishes its driver and ROCm for x64 only, not for {architecture}"
        )
    if amd:
        return _amd_plan(file)
    place = f"{platform}-{architecture}"
    entry = _NVIDIA_WINDOWS if platform is OperatingSystem.WINDOWS else _NVIDIA
    found = read_values(file, {"version": f"{entry}.version", **_file(entry, place)})
    _refuse_licensed(file, entry, place, found["url"])
    if platform is OperatingSystem.WINDOWS:
        return {"vendor": vendor.value, **found, "fabric_manager": None, "toolkit": None}
    return {
        "vendor": vendor.value,
        **found,
        "fabric_manager": _fabric_manager(file, place, found["version"]),
        "toolkit": _toolkit(file, test_image),
    }


def _amd_plan(file: VersionsFile) -> dict[str, Any]:
    places = {name: f"{_AMD}.{name}" for name in ("version", "newest_kernel")}
    places["rocm"] = "programs.rocm.version"
    found = read_values(file, {**places, **_file(_AMD, "repository-key")})
    key = {name: found.pop(name) for name in ("url", "sha256")}
    return {"vendor": "amd", **found, "key": key}


def _refuse_licensed(file: VersionsFile, entry: str, place: str, url: str) -> None:
    if _LICENSED.search(url):
        what = "is a GRID, vGPU or gaming driver, which the agent does not install"
        fix = "name NVIDIA's data-center driver, or build an image and write driver: preinstalled"
        path = (*entry.split("."), "files", place, "url")
        raise ConfigurationError([file.document.problem(path, what, fix)])


def _fabric_manager(file: VersionsFile, place: str, version: str) -> dict[str, str] | None:
    """Return Fabric Manager's file, or None if the file has no checksum of it.

    Only machines with NVSwitches need it, and they refuse to start without it. Raises ConfigurationError if it
    is of another version than the driver, with which it would not run.
    """
    try:
        found = read_values(
            file, {"version": f"{_FABRIC_MANAGER}.version", **_file(_FABRIC_MANAGER, place)}
        )
    except ConfigurationError:
        return None
    if found["version"] != version:
        what = f"is {found['version']}, and the driver is {version}"
        path = ("programs", "nvidia-fabric-manager", "version")
        raise ConfigurationError([file.document.problem(path, what, "write the driver's version")])
    return {"url": found["url"], "sha256": found["sha256"]}


def _toolkit(file: VersionsFile, test_image: str | None) -> dict[str, Any] | None:
    """Return the container toolkit, or None if the file does not have the entry."""
    if "nvidia-container-toolkit" not in file.versions.programs:
        return None
    found = read_values(
        file,
        {
            "version": f"{_TOOLKIT}.version",
            "image": "container_images.ubuntu",
            **_file(_TOOLKIT, "repository-key"),
        },
    )
    key = {"url": found["url"], "sha256": found["sha256"]}
    image = found["image"]
    if "/" not in image:  # the short name of one of Docker's official images
        image = f"{_ECR_PUBLIC}/{image}"
    return {"version": found["version"], "key": key, "image": test_image or image}


def _file(entry: str, name: str) -> dict[str, str]:
    return {key: f"{entry}.files.{name}.{key}" for key in ("url", "sha256")}
