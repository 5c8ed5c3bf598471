"""What to install as the driver of a machine's GPUs, and with which kernel modules. Pure."""

from __future__ import annotations

import collections
import re

from autoscaler.agent.installing.parts import (
    InstallFailure,
    read_budget,
    read_remote_file,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from autoscaler.agent.installing.local_machine import PciDevice

NVIDIA_VENDOR, AMD_VENDOR = 0x10DE, 0x1002
"""The vendor IDs of NVIDIA's and AMD's PCI devices."""

FIRST_MAXWELL, FIRST_TURING = 0x1340, 0x1E00
"""The lowest device IDs of these generations: GM108 and TU102 (pci.ids). IDs grow with the generations."""

OPEN_ONLY_AFTER = 580
"""The last branch for Maxwell, Pascal and Volta, whose GPUs cannot use the open kernel modules (NVIDIA,
"Driver README", "Open Linux Kernel Modules")."""

SUBNET_MANAGER_GPUS = (0x2901, 0x2941, 0x3182, 0x31C2, 0x31C3)
"""B200, GB200, B300, GB300 (README of NVIDIA/open-gpu-kernel-modules): their NVLink fabric needs NVIDIA's
NVLink Subnet Manager and an OFED driver besides Fabric Manager ("Fabric Manager User Guide")."""

DISPLAY, ACCELERATOR, BRIDGE = 0x03, 0x12, 0x0680
"""PCI classes: those of GPUs (base classes; an MI300X is a processing accelerator), and that of NVSwitches
(base class and subclass)."""

FREE_GIB = 6.0
"""The installer's file, what it unpacks, and what it installs, with a margin."""

Toolkit = collections.namedtuple("Toolkit", ("version", "key", "image"))
"""NVIDIA's container toolkit: its version, the key of its repository, and the image of the test container."""

DriverPlan = collections.namedtuple(
    "DriverPlan", ("vendor", "version", "file", "fabric_manager", "toolkit", "budget")
)
"""What the controller wants installed. `budget`: seconds of the machine for everything."""

AmdPlan = collections.namedtuple(
    "AmdPlan", ("vendor", "version", "rocm", "key", "newest_kernel", "budget")
)
"""The release of AMD's kernel driver, that of ROCm, the key of AMD's repositories, and the newest kernel for
which the driver builds, as "7.1", or nothing if the controller does not say."""


def read_driver_plan(parameters: dict[str, Any]) -> DriverPlan | AmdPlan:
    """Return the controller's parameters `driver`. Raises InstallFailure if they are not usable."""
    vendor, version = parameters.get("vendor"), parameters.get("version")
    budget, file = read_budget(parameters), read_remote_file(parameters)
    rocm = parameters.get("rocm")
    if vendor == "amd":
        file = read_remote_file(parameters.get("key"))
        if not isinstance(rocm, str):
            raise InstallFailure("driver_plan", "rocm is missing")
    if not isinstance(vendor, str) or not isinstance(version, str) or file is None:
        raise InstallFailure("driver_plan", "vendor, version, url or sha256 is missing")
    if budget is None:
        raise InstallFailure("driver_plan", "budget_s is missing")
    if vendor == "amd":
        kernel = parameters.get("newest_kernel")
        return AmdPlan(
            vendor, version, rocm, file, kernel if isinstance(kernel, str) else "", budget
        )
    toolkit = parameters.get("toolkit")
    return DriverPlan(
        vendor,
        version,
        file,
        read_remote_file(parameters.get("fabric_manager")),
        _read_toolkit(toolkit) if isinstance(toolkit, dict) else None,
        budget,
    )


def _read_toolkit(values: dict[str, Any]) -> Toolkit:
    version, key, image = (
        values.get("version"),
        read_remote_file(values.get("key")),
        values.get("image"),
    )
    if not isinstance(version, str) or key is None or not isinstance(image, str):
        raise InstallFailure("driver_plan", "toolkit has no version, key or image")
    return Toolkit(version, key, image)


def nvidia_gpus(devices: Iterable[PciDevice]) -> list[PciDevice]:
    """Return NVIDIA's GPUs among these devices."""
    return [one for one in devices if one.vendor == NVIDIA_VENDOR and one.kind >> 16 == DISPLAY]


def amd_gpus(devices: Iterable[PciDevice]) -> list[PciDevice]:
    """Return AMD's GPUs among these devices."""
    kinds = (DISPLAY, ACCELERATOR)
    return [one for one in devices if one.vendor == AMD_VENDOR and one.kind >> 16 in kinds]


def has_nvswitch(devices: Iterable[PciDevice]) -> bool:
    """Return whether the machine has an NVSwitch, whose fabric Fabric Manager sets up."""
    return any(one.vendor == NVIDIA_VENDOR and one.kind >> 8 == BRIDGE for one in devices)


def check_nvidia_gpus(gpus: Iterable[PciDevice], version: str) -> list[int]:
    """Return the device IDs of these GPUs.

    Raises InstallFailure if a driver of this version cannot run them.
    """
    ids = [gpu.device for gpu in gpus]
    if not ids:
        raise InstallFailure("driver_device", "the machine has no NVIDIA GPU", lasting=True)
    if min(ids) < FIRST_MAXWELL:
        why = f"GPU {min(ids):04x} is older than Maxwell, and {version} does not support it"
        raise InstallFailure("driver_device", why, lasting=True)
    return ids


def kernel_modules(gpus: Iterable[PciDevice], version: str) -> str:
    """Return the kind of kernel modules for these GPUs: `open` since Turing, otherwise `proprietary`.

    Raises InstallFailure if no driver of this version can run them.
    """
    ids = check_nvidia_gpus(gpus, version)
    if not set(ids).isdisjoint(SUBNET_MANAGER_GPUS):
        why = "the fabric of these GPUs needs the NVLink Subnet Manager: use driver: preinstalled"
        raise InstallFailure("driver_device", why, lasting=True)
    if min(ids) >= FIRST_TURING:
        return "open"
    if int(version.partition(".")[0]) > OPEN_ONLY_AFTER:
        why = f"GPU {min(ids):04x} needs branch {OPEN_ONLY_AFTER} or older, and {version} is newer"
        raise InstallFailure("driver_device", why, lasting=True)
    return "proprietary"


def header_release(text: str) -> str:
    """Return the kernel release of `include/generated/utsrelease.h`, or nothing."""
    found = re.search(r'#define\s+UTS_RELEASE\s+"([^"]+)"', text)
    return found.group(1) if found else ""


def kernel_version(release: str) -> tuple[int, ...]:
    """Return (7, 0) for the kernel release 7.0.0-1014-aws, and for 7.0; nothing for a text without numbers."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found.group(1)), int(found.group(2))) if found else ()


def kernel_compiler(text: str) -> str:
    """Return the major version of the compiler in /proc/version, or nothing if it was not GCC."""
    found = re.search(r"gcc(?:-\d+)? \([^)]*\) (\d+)\.", text)
    return found.group(1) if found else ""


def secure_boot(variable: str) -> bool:
    """Return whether UEFI's variable SecureBoot is 1: four bytes of attributes, then the value (efivarfs)."""
    return variable[4:5] == "\x01"
