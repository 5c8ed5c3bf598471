"""One try to install NVIDIA's driver on Linux. Each step does nothing if its result is there already."""

from __future__ import annotations

import contextlib

from autoscaler.agent.driver_machine import DriverMachine
from autoscaler.agent.driver_packages import Packages
from autoscaler.agent.driver_plan import (
    FREE_GIB,
    DriverFailure,
    DriverPlan,
    error_line,
    has_nvswitch,
    header_release,
    kernel_compiler,
    kernel_modules,
    nvidia_gpus,
    secure_boot,
)
from autoscaler.agent.limits import GPU_ANSWER
from autoscaler.agent.nvidia import NvidiaLog, read_nvidia_smi
from autoscaler.agent.programs import NotInstalled, NoUsableAnswer, Output, last_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DRIVER_FOLDER = "/var/lib/runner-agent/driver"
"""Where the downloads are. Only root can open it."""

MODULE_VERSION = "/sys/module/nvidia/version"
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
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


class NvidiaTry:
    """One try. `end` is when it must be over, `report` gets each stage before it begins."""

    def __init__(
        self, plan: DriverPlan, machine: DriverMachine, report: Callable[[str], None], end: float
    ) -> None:
        self._plan = plan
        self._machine = machine
        self._report = report
        self._end = end

    def check_before(self) -> str:
        """Return the kind of kernel modules for the GPUs. Raises DriverFailure if no try can succeed."""
        plan, machine = self._plan, self._machine
        self._report("driver_checks")
        devices = machine.devices()
        modules = kernel_modules(nvidia_gpus(devices), plan.version)
        loaded = machine.read(MODULE_VERSION).strip()
        if loaded not in ("", plan.version):
            why = f"the image already has driver {loaded}: use driver: preinstalled"
            raise DriverFailure("driver_present", why, lasting=True)
        if not loaded and any(machine.exists(path) for path in GRID_FILES):
            why = "the image has a GRID driver, which this agent does not install"
            raise DriverFailure("driver_present", why, lasting=True)
        if secure_boot(machine.read(SECURE_BOOT)) and not loaded:
            why = "Secure Boot is on, so the kernel loads no module that is built here"
            raise DriverFailure("driver_secure_boot", why, lasting=True)
        if machine.free() < FREE_GIB and not loaded:
            why = f"{machine.free():.1f} GiB free, {FREE_GIB:g} wanted"
            raise DriverFailure("driver_space", why, lasting=True)
        if has_nvswitch(devices) and plan.fabric_manager is None:
            why = "NVSwitches need Fabric Manager, whose checksum is not in versions.yaml"
            raise DriverFailure("driver_fabric_manager", why, lasting=True)
        return modules

    def install(self, modules: str) -> None:
        """Install the driver with these kernel modules, and what belongs to it. Raises DriverFailure."""
        if self._machine.read(MODULE_VERSION).strip() != self._plan.version:
            self._install_build_tools()
            self._build(modules)
            self._load()
        self._ask()
        if has_nvswitch(self._machine.devices()):
            self._start_fabric_manager()
        # It only costs time if this fails, and the health checks report it.
        self._run("driver_query", ["nvidia-smi", "-pm", "1"], GPU_ANSWER, check=False)
        if self._plan.toolkit is not None and self._machine.find("docker"):
            self._install_toolkit()

    def reset(self) -> None:
        """Unload the driver and reset the GPUs, before another try."""
        self._report("driver_reset")
        for module in MODULES:
            # A module that a hung process uses cannot be unloaded, and a full disk takes no log. The next try
            # shows whether it works.
            with contextlib.suppress(DriverFailure, OSError):
                self._run("driver_module", ["modprobe", "-r", module], GPU_ANSWER, check=False)
        for gpu in nvidia_gpus(self._machine.devices()):
            reset = f"/sys/bus/pci/devices/{gpu.address}/reset"
            # Some GPUs cannot be reset alone. The next try shows whether they work.
            if self._machine.exists(reset):
                with contextlib.suppress(OSError):
                    self._machine.write(reset, "1")

    def _install_build_tools(self) -> None:
        machine = self._machine
        kernel = machine.kernel()
        header = f"/lib/modules/{kernel}/build/include/generated/utsrelease.h"
        ready = header_release(machine.read(header)) == kernel
        if not ready or not machine.find("gcc") or not machine.find("make"):
            self._report("driver_packages")
            Packages(machine, self._end).install_build_tools()
        found = header_release(machine.read(header))
        if found != kernel:
            why = f"headers of {found or 'no kernel'} in /lib/modules/{kernel}/build"
            raise DriverFailure("driver_headers", why)
        if not machine.find("gcc") or not machine.find("make"):
            raise DriverFailure("driver_compiler", "gcc or make is not installed")

    def _build(self, modules: str) -> None:
        machine, plan = self._machine, self._plan
        self._report("driver_download")
        path = f"{DRIVER_FOLDER}/{plan.file.url.rpartition('/')[2]}"
        machine.fetch(plan.file, path, self._left())
        self._report("driver_build")
        argv = ["sh", machine.path(path), "--silent", "--no-drm", "--skip-module-load"]
        argv.append(f"--kernel-module-type={modules}")
        self._run("driver_build", argv, self._left(), CC=self._compiler())

    def _compiler(self) -> str:
        """Return the compiler of the kernel's version, if there is one, because some options differ."""
        version = kernel_compiler(self._machine.read("/proc/version"))
        return self._machine.find(f"gcc-{version}", f"gcc{version}-gcc", "gcc")

    def _load(self) -> None:
        self._report("driver_load")
        for module in ("nvidia", "nvidia-uvm"):
            self._run("driver_module", ["modprobe", module], GPU_ANSWER)
        loaded = self._machine.read(MODULE_VERSION).strip()
        if loaded != self._plan.version:
            why = f"the kernel has driver {loaded or 'none'}, and {self._plan.version} is wanted"
            raise DriverFailure("driver_module", why)

    def _ask(self) -> None:
        """Ask nvidia-smi for its version and the GPUs' names: its exit status alone proves nothing."""
        log = self._nvidia_log("driver_query", ["nvidia-smi", "-q", "-x"])
        if log.driver != self._plan.version:
            why = f"nvidia-smi shows driver {log.driver}, and {self._plan.version} is wanted"
            raise DriverFailure("driver_query", why)
        if not any(gpu.values.get("product_name") for gpu in log.gpus):
            raise DriverFailure("driver_query", "nvidia-smi shows no GPU with a name")

    def _start_fabric_manager(self) -> None:
        machine, plan, name = self._machine, self._plan, "driver_fabric_manager"
        self._report(name)
        service = FABRIC_MANAGER_FILES[-1][1]
        if not machine.exists(service):
            archive = f"{DRIVER_FOLDER}/fabricmanager.tar.xz"
            machine.fetch(plan.fabric_manager, archive, self._left())
            unpacked = machine.path(DRIVER_FOLDER)
            to = ["-C", unpacked, "--strip-components=1"]
            self._run(name, ["tar", "-xf", machine.path(archive), *to], self._left())
            target = machine.path("/usr/share/nvidia/nvswitch")
            self._run(name, ["mkdir", "-p", target], GPU_ANSWER)
            for part, place in FABRIC_MANAGER_FILES:
                copy = ["cp", "-a", f"{unpacked}/{part}", machine.path(place)]
                self._run(name, copy, GPU_ANSWER)
            self._run(name, ["ldconfig"], GPU_ANSWER)
            self._run(name, ["systemctl", "daemon-reload"], GPU_ANSWER)
        unit = "nvidia-fabricmanager.service"
        self._run(name, ["systemctl", "enable", "--now", unit], GPU_ANSWER)
        self._run(name, ["systemctl", "is-active", unit], GPU_ANSWER)

    def _install_toolkit(self) -> None:
        toolkit, name = self._plan.toolkit, "driver_toolkit"
        self._report(name)
        if not self._machine.find("nvidia-ctk"):
            Packages(self._machine, self._end).install_toolkit(toolkit)
        configure = ["nvidia-ctk", "runtime", "configure", "--runtime=docker"]
        self._run(name, configure, GPU_ANSWER)
        self._run(name, ["systemctl", "restart", "docker"], GPU_ANSWER)
        run = ["docker", "run", "--rm", "--gpus", "all", toolkit.image, "nvidia-smi", "-q", "-x"]
        shown, present = self._nvidia_log(name, run), nvidia_gpus(self._machine.devices())
        if len(shown.gpus) != len(present):
            why = f"a container sees {len(shown.gpus)} GPUs, and the machine has {len(present)}"
            raise DriverFailure(name, why)

    def _nvidia_log(self, name: str, argv: Sequence[str]) -> NvidiaLog:
        try:
            return read_nvidia_smi(self._run(name, argv, self._left(), check=False))
        except NoUsableAnswer as error:
            raise DriverFailure(name, str(error)) from error

    def _run(
        self, name: str, argv: Sequence[str], timeout: float, *, check: bool = True, **how: str
    ) -> Output:
        """Run a program. Raises DriverFailure with this name if it fails, and always if it hangs."""
        try:
            found = self._machine.run(argv, min(timeout, self._left()), **how)
        except (NotInstalled, NoUsableAnswer) as error:
            if check or isinstance(error, NoUsableAnswer):
                raise DriverFailure(name, str(error)) from error
            return Output(127, str(error))
        if check and found.status != 0:
            why = error_line(found.text) or last_line(found.text)
            raise DriverFailure(name, f"{argv[0]} exited with {found.status}: {why}")
        return found

    def _left(self) -> float:
        return max(1.0, self._end - self._machine.now())
