"""Installs NVIDIA's driver, on Linux and on Windows.

PyTorch's CI installs it on Windows in the same way (pytorch/builder, windows/internal/driver_update.bat).
Windows loads no module that is not signed, and the installer contains all of them, so nothing is built.
"""

from __future__ import annotations

from autoscaler.agent.driver.packages import Packages
from autoscaler.agent.driver.plan import (
    FREE_GIB,
    check_nvidia_gpus,
    has_nvswitch,
    kernel_modules,
    nvidia_gpus,
)
from autoscaler.agent.driver.steps import NvidiaTry, has_named_gpu
from autoscaler.agent.installing.parts import InstallFailure
from autoscaler.agent.journal import log_line
from autoscaler.agent.limits import FABRIC_MANAGER_START, GPU_ANSWER, IMAGE_PULL
from autoscaler.agent.programs import last_line

DRIVER_FOLDER = "/var/lib/runner-agent/driver"
"""Where the downloads are. Only root can open it."""

MODULE_VERSION = "/sys/module/nvidia/version"
GRID_FILES = ("/etc/nvidia/gridd.conf", "/etc/nvidia/gridd.conf.template")
"""Files that only drivers of NVIDIA's vGPU software (GRID) have (Virtual GPU Software User Guide)."""

MODULES = ("nvidia-uvm", "nvidia-drm", "nvidia-modeset", "nvidia")
"""The driver's kernel modules, each before those that it uses."""

FABRIC_MANAGER_FILES = (
    ("bin/.", "/usr/bin"),
    ("lib/.", "/usr/lib"),
    ("share/nvidia/nvswitch/.", "/usr/share/nvidia/nvswitch"),
    ("etc/fabricmanager.cfg", "/usr/share/nvidia/nvswitch/fabricmanager.cfg"),
    ("systemd/nvidia-fabricmanager.service", "/etc/systemd/system/nvidia-fabricmanager.service"),
)
"""Where the files of Fabric Manager's archive belong. The archive's own script expects them in one folder, and
knows only Debian and Ubuntu (Azure/aks-gpu, fm_run_package_installer.sh)."""

FABRIC_MANAGER_PAUSE = 10.0
"""Seconds between two starts of Fabric Manager."""


class NvidiaLinuxTry(NvidiaTry):
    """One try on Linux."""

    def check_before(self) -> str:
        """Return the kind of kernel modules for the GPUs. Raises InstallFailure if no try can succeed."""
        plan, machine = self.plan, self.machine
        self.report("driver_checks")
        devices = machine.devices()
        modules = kernel_modules(nvidia_gpus(devices), plan.version)
        loaded = machine.read(MODULE_VERSION).strip()
        self.refuse_other(loaded, plan.version)
        if not loaded and any(machine.exists(path) for path in GRID_FILES):
            why = "the image has a GRID driver, which this agent does not install"
            raise InstallFailure("driver_present", why, lasting=True)
        if not loaded:
            self.check_room(FREE_GIB)
        if has_nvswitch(devices) and plan.fabric_manager is None:
            why = "NVSwitches need Fabric Manager, whose checksum is not in versions.yaml"
            raise InstallFailure("driver_fabric_manager", why, lasting=True)
        return modules

    def install(self, kind: str) -> str:
        """Install the driver with this kind of kernel modules, and what belongs to it.

        Raises InstallFailure.
        """
        if self.machine.read(MODULE_VERSION).strip() != self.plan.version:
            self.install_build_tools()
            self._build(kind)
            self._load()
        gpus = len(self.ask_nvidia_smi(self.left()).gpus)
        installed = f"NVIDIA {self.plan.version}, {kind} modules"
        try:
            return installed + self._set_up(gpus)
        except InstallFailure as failure:
            # Other modules would not help, and Fabric Manager fails again seconds after they are loaded.
            failure.modules_work = True
            raise

    def _set_up(self, gpus: int) -> str:
        """Set up what uses the loaded driver. Return what was not tested. Raises InstallFailure."""
        if has_nvswitch(self.machine.devices()):
            self._install_fabric_manager()
            self._start_fabric_manager()
        # It only costs time if this fails, and the health checks report it.
        self.run("driver_query", ["nvidia-smi", "-pm", "1"], GPU_ANSWER, check=False)
        if self.plan.toolkit is None or not self.machine.find("docker"):
            return ""
        self._install_toolkit()
        if why := self._pull():
            log_line(f"driver: warning: the container toolkit is not tested: {why}")
            return f"; warning: the container toolkit is not tested: {why}"
        self._test_toolkit(gpus)
        return ""

    def reset(self) -> None:
        """Unload the driver and reset the GPUs, before another try."""
        self.report("driver_reset")
        self.unload(MODULES)
        self.reset_gpus(nvidia_gpus(self.machine.devices()))

    def _build(self, modules: str) -> None:
        machine, plan = self.machine, self.plan
        self.report("driver_download")
        path = f"{DRIVER_FOLDER}/{plan.file.url.rpartition('/')[2]}"
        machine.fetch(plan.file, path, self.left(), name="driver_download")
        self.report("driver_build")
        argv = ["sh", machine.path(path), "--silent", "--no-drm", "--skip-module-load"]
        argv.append(f"--kernel-module-type={modules}")
        self.run("driver_build", argv, self.left(), CC=self.compiler())

    def _load(self) -> None:
        self.report("driver_load")
        for module in ("nvidia", "nvidia-uvm"):
            self.run("driver_module", ["modprobe", module], GPU_ANSWER)
        loaded = self.machine.read(MODULE_VERSION).strip()
        if loaded != self.plan.version:
            why = f"the kernel has driver {loaded or 'none'}, and {self.plan.version} is wanted"
            raise InstallFailure("driver_module", why)

    def _install_fabric_manager(self) -> None:
        machine, plan, name = self.machine, self.plan, "driver_fabric_manager"
        self.report(name)
        if machine.exists(FABRIC_MANAGER_FILES[-1][1]):
            return
        archive = f"{DRIVER_FOLDER}/fabricmanager.tar.xz"
        machine.fetch(plan.fabric_manager, archive, self.left(), name="driver_download")
        unpacked = machine.path(DRIVER_FOLDER)
        to = ["-C", unpacked, "--strip-components=1"]
        self.run(name, ["tar", "-xf", machine.path(archive), *to], self.left())
        target = machine.path("/usr/share/nvidia/nvswitch")
        self.run(name, ["mkdir", "-p", target], GPU_ANSWER)
        for part, place in FABRIC_MANAGER_FILES:
            copy = ["cp", "-a", f"{unpacked}/{part}", machine.path(place)]
            self.run(name, copy, GPU_ANSWER)
        self.run(name, ["ldconfig"], GPU_ANSWER)
        self.run(name, ["systemctl", "daemon-reload"], GPU_ANSWER)

    def _start_fabric_manager(self) -> None:
        """Start Fabric Manager until it runs. Raises InstallFailure after FABRIC_MANAGER_START seconds.

        Seconds after the modules were loaded, the part of the fabric that is in the GPUs is not ready. Fabric
        Manager then waits for 30 s, and exits with an error; a later start succeeds (pytorch/ci-infra#552).
        """
        name, unit = "driver_fabric_manager", "nvidia-fabricmanager.service"
        until = self.machine.now() + FABRIC_MANAGER_START
        self.run(name, ["systemctl", "enable", unit], GPU_ANSWER)
        while True:
            try:
                self.run(name, ["systemctl", "start", unit], GPU_ANSWER)
                self.run(name, ["systemctl", "is-active", unit], GPU_ANSWER)
            except InstallFailure as failure:
                now = self.machine.now()
                failure.lasting = now + FABRIC_MANAGER_PAUSE > until
                if failure.lasting or now + FABRIC_MANAGER_PAUSE > self.end:
                    raise
                log_line(f"driver: Fabric Manager is started again: {failure}")
                self.machine.sleep(FABRIC_MANAGER_PAUSE)
            else:
                return

    def _install_toolkit(self) -> None:
        toolkit, name = self.plan.toolkit, "driver_toolkit"
        self.report(name)
        if not self.machine.find("nvidia-ctk"):
            Packages(self.machine, self.end).install_toolkit(toolkit)
        configure = ["nvidia-ctk", "runtime", "configure", "--runtime=docker"]
        self.run(name, configure, GPU_ANSWER)
        self.run(name, ["systemctl", "restart", "docker"], GPU_ANSWER)

    def _pull(self) -> str:
        """Pull the image of the test unless it is there. Return why there is none, or nothing.

        The machine is not at fault if a registry refuses: Docker Hub, for example, counts the anonymous pulls
        of all machines behind a NAT gateway together.
        """
        image, name = self.plan.toolkit.image, "driver_toolkit"
        present = ["docker", "image", "inspect", "--format", "{{.Id}}", image]
        if self.run(name, present, GPU_ANSWER, check=False).status == 0:
            return ""
        try:
            pulled = self.run(name, ["docker", "pull", "-q", image], IMAGE_PULL, check=False)
        except InstallFailure as failure:
            return f"{image}: {failure}"
        return "" if pulled.status == 0 else f"{image}: {last_line(pulled.text)}"

    def _test_toolkit(self, gpus: int) -> None:
        """Test the container toolkit: a container must see as many GPUs as the machine."""
        name = "driver_toolkit"
        run = ["docker", "run", "--rm", "--gpus", "all", self.plan.toolkit.image]
        shown = len(self.nvidia_log(name, self.left(), run).gpus)
        if shown != gpus:
            why = f"a container sees {shown} GPUs, and the machine has {gpus}"
            raise InstallFailure(name, why)


INSTALLER = "C:\\ProgramData\\runner-agent\\state\\driver\\driver.exe"
"""Where the download is. Only SYSTEM and administrators can open the folder."""

SILENT = ("-s", "-noreboot")
"""NVIDIA's installer shows nothing and does not restart Windows."""


class NvidiaWindowsTry(NvidiaTry):
    """One try on Windows."""

    def check_before(self) -> str:
        """Return the kind of driver. Raises InstallFailure if no try can succeed."""
        self.report("driver_checks")
        check_nvidia_gpus(nvidia_gpus(self.machine.devices()), self.plan.version)
        installed = self._installed()
        self.refuse_other(installed, self.plan.version)
        if not installed:
            self.check_free(FREE_GIB)
        return "signed"

    def install(self, kind: str) -> str:
        """Install the driver and ask nvidia-smi, whatever the installer's exit status. Raises InstallFailure.

        The status is also not 0 if only a restart of Windows is missing.
        """
        status = ""
        if self._installed() != self.plan.version:
            self.report("driver_download")
            self.machine.fetch(self.plan.file, INSTALLER, self.left(), name="driver_download")
            self.report("driver_build")
            argv = [self.machine.path(INSTALLER), *SILENT]
            done = self.run("driver_build", argv, self.left(), check=False)
            status = f"; the installer exited with {done.status}"
        self.report("driver_load")
        self.ask_nvidia_smi(GPU_ANSWER, status)
        return f"NVIDIA {self.plan.version}, {kind}"

    def reset(self) -> None:
        """Report the stage. Nothing is loaded that another run of the installer would not replace."""
        self.report("driver_reset")

    def _installed(self) -> str:
        """Return the version of the driver that works now, or nothing."""
        try:
            log = self.nvidia_log("driver_query", GPU_ANSWER)
        except InstallFailure:
            return ""
        return str(log.driver) if has_named_gpu(log) else ""
