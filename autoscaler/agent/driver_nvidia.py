"""One try to install NVIDIA's driver on Linux. Each step does nothing if its result is there already."""

from __future__ import annotations

from autoscaler.agent.driver_packages import Packages
from autoscaler.agent.driver_plan import (
    FREE_GIB,
    DriverFailure,
    DriverPlan,
    has_nvswitch,
    kernel_modules,
    nvidia_gpus,
)
from autoscaler.agent.driver_steps import DriverSteps
from autoscaler.agent.limits import GPU_ANSWER
from autoscaler.agent.nvidia import NvidiaLog, read_nvidia_smi
from autoscaler.agent.programs import NoUsableAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from autoscaler.agent.driver_ports import DriverMachine

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


class NvidiaTry:
    """One try. `end` is when it must be over, `report` gets each stage before it begins."""

    def __init__(
        self, plan: DriverPlan, machine: DriverMachine, report: Callable[[str], None], end: float
    ) -> None:
        self._plan = plan
        self._machine = machine
        self._steps = DriverSteps(machine, report, end)

    def check_before(self) -> str:
        """Return the kind of kernel modules for the GPUs. Raises DriverFailure if no try can succeed."""
        plan, machine = self._plan, self._machine
        self._steps.report("driver_checks")
        devices = machine.devices()
        modules = kernel_modules(nvidia_gpus(devices), plan.version)
        loaded = machine.read(MODULE_VERSION).strip()
        if loaded not in ("", plan.version):
            why = f"the image already has driver {loaded}: use driver: preinstalled"
            raise DriverFailure("driver_present", why, lasting=True)
        if not loaded and any(machine.exists(path) for path in GRID_FILES):
            why = "the image has a GRID driver, which this agent does not install"
            raise DriverFailure("driver_present", why, lasting=True)
        if not loaded:
            self._steps.check_room(FREE_GIB)
        if has_nvswitch(devices) and plan.fabric_manager is None:
            why = "NVSwitches need Fabric Manager, whose checksum is not in versions.yaml"
            raise DriverFailure("driver_fabric_manager", why, lasting=True)
        return modules

    def install(self, kind: str) -> str:
        """Install the driver with this kind of kernel modules, and what belongs to it. Raises DriverFailure."""
        if self._machine.read(MODULE_VERSION).strip() != self._plan.version:
            self._steps.install_build_tools()
            self._build(kind)
            self._load()
        gpus = self._ask()
        if has_nvswitch(self._machine.devices()):
            self._start_fabric_manager()
        # It only costs time if this fails, and the health checks report it.
        self._steps.run("driver_query", ["nvidia-smi", "-pm", "1"], GPU_ANSWER, check=False)
        if self._plan.toolkit is not None and self._machine.find("docker"):
            self._install_toolkit(gpus)
        return f"NVIDIA {self._plan.version}, {kind} modules"

    def reset(self) -> None:
        """Unload the driver and reset the GPUs, before another try."""
        self._steps.report("driver_reset")
        self._steps.unload(MODULES)
        self._steps.reset(nvidia_gpus(self._machine.devices()))

    def _build(self, modules: str) -> None:
        machine, plan = self._machine, self._plan
        self._steps.report("driver_download")
        path = f"{DRIVER_FOLDER}/{plan.file.url.rpartition('/')[2]}"
        machine.fetch(plan.file, path, self._steps.left())
        self._steps.report("driver_build")
        argv = ["sh", machine.path(path), "--silent", "--no-drm", "--skip-module-load"]
        argv.append(f"--kernel-module-type={modules}")
        self._steps.run("driver_build", argv, self._steps.left(), CC=self._steps.compiler())

    def _load(self) -> None:
        self._steps.report("driver_load")
        for module in ("nvidia", "nvidia-uvm"):
            self._steps.run("driver_module", ["modprobe", module], GPU_ANSWER)
        loaded = self._machine.read(MODULE_VERSION).strip()
        if loaded != self._plan.version:
            why = f"the kernel has driver {loaded or 'none'}, and {self._plan.version} is wanted"
            raise DriverFailure("driver_module", why)

    def _ask(self) -> int:
        """Ask nvidia-smi for its version and the GPUs' names: its exit status alone proves nothing.

        Returns how many GPUs it shows. The health checks report one that is missing.
        """
        log = self._nvidia_log("driver_query", ["nvidia-smi", "-q", "-x"])
        if log.driver != self._plan.version:
            why = f"nvidia-smi shows driver {log.driver}, and {self._plan.version} is wanted"
            raise DriverFailure("driver_query", why)
        if not any(gpu.values.get("product_name") for gpu in log.gpus):
            raise DriverFailure("driver_query", "nvidia-smi shows no GPU with a name")
        return len(log.gpus)

    def _start_fabric_manager(self) -> None:
        machine, plan, name = self._machine, self._plan, "driver_fabric_manager"
        self._steps.report(name)
        service = FABRIC_MANAGER_FILES[-1][1]
        if not machine.exists(service):
            archive = f"{DRIVER_FOLDER}/fabricmanager.tar.xz"
            machine.fetch(plan.fabric_manager, archive, self._steps.left())
            unpacked = machine.path(DRIVER_FOLDER)
            to = ["-C", unpacked, "--strip-components=1"]
            self._steps.run(name, ["tar", "-xf", machine.path(archive), *to], self._steps.left())
            target = machine.path("/usr/share/nvidia/nvswitch")
            self._steps.run(name, ["mkdir", "-p", target], GPU_ANSWER)
            for part, place in FABRIC_MANAGER_FILES:
                copy = ["cp", "-a", f"{unpacked}/{part}", machine.path(place)]
                self._steps.run(name, copy, GPU_ANSWER)
            self._steps.run(name, ["ldconfig"], GPU_ANSWER)
            self._steps.run(name, ["systemctl", "daemon-reload"], GPU_ANSWER)
        unit = "nvidia-fabricmanager.service"
        self._steps.run(name, ["systemctl", "enable", "--now", unit], GPU_ANSWER)
        self._steps.run(name, ["systemctl", "is-active", unit], GPU_ANSWER)

    def _install_toolkit(self, gpus: int) -> None:
        """Install the container toolkit, and test it: a container must see as many GPUs as the machine."""
        toolkit, name = self._plan.toolkit, "driver_toolkit"
        self._steps.report(name)
        if not self._machine.find("nvidia-ctk"):
            Packages(self._machine, self._steps.end).install_toolkit(toolkit)
        configure = ["nvidia-ctk", "runtime", "configure", "--runtime=docker"]
        self._steps.run(name, configure, GPU_ANSWER)
        self._steps.run(name, ["systemctl", "restart", "docker"], GPU_ANSWER)
        run = ["docker", "run", "--rm", "--gpus", "all", toolkit.image, "nvidia-smi", "-q", "-x"]
        shown = len(self._nvidia_log(name, run).gpus)
        if shown != gpus:
            why = f"a container sees {shown} GPUs, and the machine has {gpus}"
            raise DriverFailure(name, why)

    def _nvidia_log(self, name: str, argv: Sequence[str]) -> NvidiaLog:
        try:
            return read_nvidia_smi(self._steps.run(name, argv, self._steps.left(), check=False))
        except NoUsableAnswer as error:
            raise DriverFailure(name, str(error)) from error
