"""Installs AMD's driver and ROCm's runtime on Ubuntu.

The steps are those of AMD's page (ROCm installation, "Ubuntu native installation"): AMD's repositories, the
package amdgpu-dkms, which builds the kernel module, and ROCm's packages.
"""

from __future__ import annotations

import re

from autoscaler.agent.checks.amd import DRIVER, read_gpus, read_rocminfo
from autoscaler.agent.driver.packages import Packages
from autoscaler.agent.driver.plan import amd_gpus, kernel_version
from autoscaler.agent.driver.steps import DriverTry
from autoscaler.agent.installing.parts import InstallFailure
from autoscaler.agent.limits import GPU_ANSWER
from autoscaler.agent.programs import NoUsableAnswer

AMD_FREE_GIB = 20.0
"""A margin for the packages, what they contain and the build. AMD publishes no figure for the runtime."""

AMD_SUITES = ("jammy", "noble")
"""The Ubuntu releases for which ROCm 7.2 has packages that this agent installs."""

UDEV_RULES = "/etc/udev/rules.d/70-amdgpu.rules"
UDEV_TEXT = 'KERNEL=="kfd", MODE="0666"\nSUBSYSTEM=="drm", KERNEL=="renderD*", MODE="0666"\n'
"""Lets the user of the runner open the devices, without the groups render and video."""


class AmdTry(DriverTry):
    """One try on Ubuntu. The kind of driver is the release of Ubuntu."""

    def check_before(self) -> str:
        """Return the release of Ubuntu. Raises InstallFailure if no try can succeed."""
        self.report("driver_checks")
        if not amd_gpus(self.machine.devices()):
            raise InstallFailure("driver_device", "the machine has no AMD GPU", lasting=True)
        found = re.search(
            r'^VERSION_CODENAME="?(\w+)', self.machine.read("/etc/os-release"), re.MULTILINE
        )
        suite = found.group(1) if found else ""
        if suite not in AMD_SUITES or not self.machine.find("apt-get"):
            why = f"AMD's packages are installed on Ubuntu {' and '.join(AMD_SUITES)} only"
            raise InstallFailure("driver_packages", why, lasting=True)
        loaded = self._loaded()
        if loaded and self._release() != self.plan.version:
            self.refuse_other(loaded, "", "amdgpu")
        if not loaded:
            self._check_kernel()
            self.check_room(AMD_FREE_GIB)
        return suite

    def _check_kernel(self) -> None:
        """Check that the driver builds for the running kernel. Raises InstallFailure.

        The kernel on which a release of the driver is based is the newest that it supports
        (ROCm/legacy-rocm-build#6193).
        """
        kernel, newest = self.machine.kernel(), self.plan.newest_kernel
        if newest and kernel_version(kernel) > kernel_version(newest):
            why = f"amdgpu {self.plan.version} builds for kernels up to {newest}, and this is {kernel}: "
            why += "take a newer amdgpu-driver in versions.yaml, or an image with an older kernel"
            raise InstallFailure("driver_build", why, lasting=True)

    def install(self, kind: str) -> str:
        """Install the driver and ROCm's runtime for this release of Ubuntu. Raises InstallFailure."""
        if not self._loaded():
            self.install_build_tools()
            self.report("driver_build")
            Packages(self.machine, self.end).install_amdgpu(self.plan, kind)
            self._require("amdgpu-dkms", self.plan.version, self._release())
            self._load()
        if self._rocm() != self.plan.rocm:
            self.report("driver_packages")
            Packages(self.machine, self.end).install_rocm(self.plan, kind)
            self._require("ROCm", self.plan.rocm, self._rocm())
        architectures = self._ask()
        return f"amdgpu {self.plan.version}, ROCm {self.plan.rocm}, {', '.join(architectures)}"

    def reset(self) -> None:
        """Unload the driver before another try.

        The GPUs are not reset over PCI: that this is safe for GPUs that share a fabric (XGMI) is not verified.
        """
        self.report("driver_reset")
        self.unload(["amdgpu"])

    def _loaded(self) -> str:
        """Return the version of AMD's loaded module, or nothing: the one of the kernel's source has none."""
        return self.machine.read(DRIVER).strip()

    def _release(self) -> str:
        """Return the release of the package amdgpu-dkms, as AMD's repository names it.

        30.30.3 for 1:6.16.13.30300300-2327507.22.04, and 31.50 for 1:7.1.3.31500000-2390945.24.04.
        """
        argv = ["dpkg-query", "-W", "-f", "${Version}", "amdgpu-dkms"]
        found = self.run("driver_present", argv, GPU_ANSWER, check=False)
        digits = re.search(r"\.(\d\d)(\d\d)(\d\d)\d\d-", found.text)
        if digits is None:
            return ""
        return ".".join(str(int(part)) for part in digits.groups()).removesuffix(".0")

    def _rocm(self) -> str:
        """Return the version of ROCm, 7.2.4 for 7.2.4-93, or nothing."""
        return self.machine.read("/opt/rocm/.info/version").strip().partition("-")[0]

    def _require(self, what: str, wanted: str, found: str) -> None:
        """Check what APT chose: another source may have the package, too. Raises InstallFailure."""
        if found != wanted:
            why = f"APT installed {what} {found or 'of an unknown version'}, and {wanted} is wanted"
            raise InstallFailure("driver_packages", why, lasting=True)

    def _load(self) -> None:
        self.report("driver_load")
        self.machine.write(UDEV_RULES, UDEV_TEXT)
        reload = ["udevadm", "control", "--reload-rules"]
        self.run("driver_module", reload, GPU_ANSWER, check=False)
        self.unload(["amdgpu"])
        self.run("driver_module", ["modprobe", "amdgpu"], GPU_ANSWER)
        if not self._loaded():
            why = "the kernel has its own amdgpu, and that of amdgpu-dkms is wanted"
            raise InstallFailure("driver_module", why)

    def _ask(self) -> list[str]:
        """Ask rocminfo and amd-smi; return the architectures. An exit status alone proves nothing."""
        name, rocm = "driver_query", self.machine.path("/opt/rocm/bin/")
        try:
            _, gpus = read_rocminfo(self.run(name, [f"{rocm}rocminfo"], GPU_ANSWER, check=False))
        except NoUsableAnswer as error:
            raise InstallFailure(name, str(error)) from error
        present = len(amd_gpus(self.machine.devices()))
        if len(gpus) < present:
            raise InstallFailure(
                name, f"rocminfo shows {len(gpus)} GPUs, and the machine has {present}"
            )
        argv = [f"{rocm}amd-smi", "static", "--asic", "--json"]
        shown = read_asics(self.run(name, argv, GPU_ANSWER, check=False).text)
        known = sorted({gpu.model for gpu in gpus})
        if len(shown) < present or not set(shown) <= set(known):
            why = f"amd-smi shows {', '.join(shown) or 'no GPU'}, and rocminfo {', '.join(known)}"
            raise InstallFailure(name, why)
        return known


def read_asics(text: str) -> list[str]:
    """Return the architecture of each GPU of `amd-smi static --asic --json`; nothing if it is no answer."""
    asics = [gpu.get("asic") for gpu in read_gpus(text) or []]
    return [str(asic.get("target_graphics_version")) for asic in asics if isinstance(asic, dict)]
