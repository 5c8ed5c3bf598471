"""Installs the packages that a driver needs."""

from __future__ import annotations

from autoscaler.agent.driver.plan import AmdPlan, Toolkit, kernel_version
from autoscaler.agent.installing.package_manager import PackageManager

KEYRING = "/etc/apt/keyrings/nvidia-container-toolkit.asc"
RPM_KEY = "/etc/pki/rpm-gpg/RPM-GPG-KEY-nvidia-container-toolkit"
APT_LIST = "/etc/apt/sources.list.d/nvidia-container-toolkit.list"
DNF_REPOSITORY = "/etc/yum.repos.d/nvidia-container-toolkit.repo"

TOOLKIT_PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
"""With their dependencies of the same version (NVIDIA Container Toolkit, "Installation")."""

AMD_KEYRING = "/etc/apt/keyrings/rocm.asc"
AMD_LIST = "/etc/apt/sources.list.d/runner-agent-amd.list"
AMD_PIN = "/etc/apt/preferences.d/runner-agent-amd"
ONE_MODULES_PACKAGE = (7, 0)
"""The first version of Ubuntu's kernels that need no linux-modules-extra."""
ROCM_PACKAGES = ("rocm-hip-runtime", "rocminfo", "amd-smi-lib")


class Packages(PackageManager):
    """The packages of a driver."""

    name = "driver_packages"

    def install_build_tools(self) -> None:
        """Install the headers of the running kernel, and a compiler. Raises InstallFailure."""
        kernel = self.machine.kernel()
        if self.manager == "apt-get":
            self.install([f"linux-headers-{kernel}", "gcc", "make", "libc6-dev"])
        else:
            # Each kernel's headers provide this, whatever their package is called (Fedora's kernel.spec).
            self.install([f"kernel-devel-uname-r == {kernel}", "gcc", "make"])

    def install_toolkit(self, toolkit: Toolkit) -> None:
        """Install NVIDIA's container toolkit from NVIDIA's repository. Raises InstallFailure."""
        machine = self.machine
        folder = toolkit.key.url.rpartition("/")[0]
        apt = self.manager == "apt-get"
        key = KEYRING if apt else RPM_KEY
        machine.fetch(toolkit.key, key, self.left(), name="driver_download")
        if apt:
            signed = f"deb [signed-by={machine.path(KEYRING)}]"
            machine.write(APT_LIST, f"{signed} {folder}/stable/deb/$(ARCH) /\n")
            self.install([f"{name}={toolkit.version}-1" for name in TOOLKIT_PACKAGES])
            return
        lines = [
            "[nvidia-container-toolkit]",
            "name=nvidia-container-toolkit",
            f"baseurl={folder}/stable/rpm/$basearch",
            "repo_gpgcheck=1",
            "gpgcheck=0",
            f"gpgkey=file://{machine.path(RPM_KEY)}",
        ]
        machine.write(DNF_REPOSITORY, "\n".join(lines) + "\n")
        self.install([f"{name}-{toolkit.version}-1" for name in TOOLKIT_PACKAGES])

    def install_amdgpu(self, plan: AmdPlan, suite: str) -> None:
        """Install amdgpu-dkms, which builds the module for the running kernel. Raises InstallFailure."""
        self._write_amd_sources(plan, suite)
        self.refresh()
        kernel = self.machine.kernel()
        # The module needs others of the kernel, which Ubuntu has in this package (AMD's "Prerequisites"). Most
        # kernels since 7.0 have all modules in linux-modules (ROCm/gpu-operator#631).
        extra = f"linux-modules-extra-{kernel}"
        before = () < kernel_version(kernel) < ONE_MODULES_PACKAGE
        if before or self.output(["apt-cache", "show", extra]).status == 0:
            self.get([extra, "amdgpu-dkms"])
        else:
            self.get(["amdgpu-dkms"])

    def install_rocm(self, plan: AmdPlan, suite: str) -> None:
        """Install what runs HIP programs, and ROCm's tools. Raises InstallFailure."""
        self._write_amd_sources(plan, suite)
        self.install(ROCM_PACKAGES)

    def _write_amd_sources(self, plan: AmdPlan, suite: str) -> None:
        """Name AMD's repositories, beside that of the key: .../rocm/rocm.gpg.key belongs to .../amdgpu, too."""
        machine, rocm = self.machine, plan.key.url.rpartition("/")[0]
        machine.fetch(plan.key, AMD_KEYRING, self.left(), name="driver_download")
        signed = f"deb [arch=amd64 signed-by={machine.path(AMD_KEYRING)}]"
        amdgpu = f"{rocm.rpartition('/')[0]}/amdgpu/{plan.version}/ubuntu"
        lines = f"{signed} {amdgpu} {suite} main\n{signed} {rocm}/apt/{plan.rocm} {suite} main\n"
        machine.write(AMD_LIST, lines)
        pin = "Package: *\nPin: release o=repo.radeon.com\nPin-Priority: 600\n"
        machine.write(AMD_PIN, pin)
