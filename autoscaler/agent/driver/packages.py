"""Installs packages of the distribution with APT or DNF, for the driver."""

from __future__ import annotations

from autoscaler.agent.driver.local_machine import LocalMachine
from autoscaler.agent.driver.plan import (
    AmdPlan,
    DriverFailure,
    Toolkit,
    error_line,
    kernel_version,
)
from autoscaler.agent.limits import LOCK_WAIT
from autoscaler.agent.programs import NotInstalled, NoUsableAnswer, Output, last_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

LOCK_POLL = 10.0
"""Seconds until a package manager that found a lock is tried again."""

LOCKED = (
    "Could not get lock",
    "Unable to lock",
    "dpkg frontend lock",
    "is another process using it",
)

APT_GET = ["apt-get", "-q", "-y", "-o", "Acquire::Retries=2"]
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


class Packages:
    """The package manager of a machine. `end` is when all of its programs must have ended."""

    def __init__(self, machine: LocalMachine, end: float) -> None:
        self._machine = machine
        self._end = end
        self._manager = machine.find("apt-get", "dnf")

    def install_build_tools(self) -> None:
        """Install the headers of the running kernel, and a compiler. Raises DriverFailure."""
        kernel = self._machine.kernel()
        if self._manager == "apt-get":
            self._install([f"linux-headers-{kernel}", "gcc", "make", "libc6-dev"])
        else:
            # Each kernel's headers provide this, whatever their package is called (Fedora's kernel.spec).
            self._install([f"kernel-devel-uname-r == {kernel}", "gcc", "make"])

    def install_toolkit(self, toolkit: Toolkit) -> None:
        """Install NVIDIA's container toolkit from NVIDIA's repository. Raises DriverFailure."""
        machine = self._machine
        folder = toolkit.key.url.rpartition("/")[0]
        apt = self._manager == "apt-get"
        key = KEYRING if apt else RPM_KEY
        machine.fetch(toolkit.key, key, self._left())
        if apt:
            signed = f"deb [signed-by={machine.path(KEYRING)}]"
            machine.write(APT_LIST, f"{signed} {folder}/stable/deb/$(ARCH) /\n")
            self._install([f"{name}={toolkit.version}-1" for name in TOOLKIT_PACKAGES])
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
        self._install([f"{name}-{toolkit.version}-1" for name in TOOLKIT_PACKAGES])

    def install_amdgpu(self, plan: AmdPlan, suite: str) -> None:
        """Install amdgpu-dkms, which builds the module for the running kernel. Raises DriverFailure."""
        self._write_amd_sources(plan, suite)
        self._refresh()
        kernel = self._machine.kernel()
        # The module needs others of the kernel, which Ubuntu has in this package (AMD's "Prerequisites"). Most
        # kernels since 7.0 have all modules in linux-modules (ROCm/gpu-operator#631).
        extra = f"linux-modules-extra-{kernel}"
        before = () < kernel_version(kernel) < ONE_MODULES_PACKAGE
        if before or self._output(["apt-cache", "show", extra]).status == 0:
            self._get([extra, "amdgpu-dkms"])
        else:
            self._get(["amdgpu-dkms"])

    def install_rocm(self, plan: AmdPlan, suite: str) -> None:
        """Install what runs HIP programs, and ROCm's tools. Raises DriverFailure."""
        self._write_amd_sources(plan, suite)
        self._install(ROCM_PACKAGES)

    def _write_amd_sources(self, plan: AmdPlan, suite: str) -> None:
        """Name AMD's repositories, beside that of the key: .../rocm/rocm.gpg.key belongs to .../amdgpu, too."""
        machine, rocm = self._machine, plan.key.url.rpartition("/")[0]
        machine.fetch(plan.key, AMD_KEYRING, self._left())
        signed = f"deb [arch=amd64 signed-by={machine.path(AMD_KEYRING)}]"
        amdgpu = f"{rocm.rpartition('/')[0]}/amdgpu/{plan.version}/ubuntu"
        lines = f"{signed} {amdgpu} {suite} main\n{signed} {rocm}/apt/{plan.rocm} {suite} main\n"
        machine.write(AMD_LIST, lines)
        pin = "Package: *\nPin: release o=repo.radeon.com\nPin-Priority: 600\n"
        machine.write(AMD_PIN, pin)

    def _install(self, names: Sequence[str]) -> None:
        if not self._manager:
            raise DriverFailure("driver_packages", "the image has neither apt-get nor dnf")
        if self._manager == "dnf":
            self._run(["dnf", "-y", "install", *names])
            return
        self._refresh()
        self._get(names)

    def _refresh(self) -> None:
        """Let APT read the lists of packages. Raises DriverFailure."""
        # A package that an earlier boot, or an earlier try, left half installed blocks all others.
        self._run(["dpkg", "--configure", "-a"])
        self._run([*APT_GET, "--fix-broken", "install"])
        self._run([*APT_GET, "update"])

    def _get(self, names: Sequence[str]) -> None:
        self._run([*APT_GET, "--no-install-recommends", "install", *names])

    def _run(self, argv: Sequence[str]) -> None:
        """Run a package manager; wait for its lock. Raises DriverFailure."""
        until = min(self._end, self._machine.now() + LOCK_WAIT)
        while True:
            found = self._output(argv)
            if found.status == 0:
                return
            locked = any(text in found.text for text in LOCKED)
            if not locked or self._machine.now() + LOCK_POLL > until:
                why = error_line(found.text) or last_line(found.text)
                raise DriverFailure("driver_packages", why)
            self._machine.sleep(LOCK_POLL)

    def _output(self, argv: Sequence[str]) -> Output:
        try:
            return self._machine.run(argv, self._left())
        except (NotInstalled, NoUsableAnswer) as error:
            raise DriverFailure("driver_packages", str(error)) from error

    def _left(self) -> float:
        return max(1.0, self._end - self._machine.now())
