"""One try to install a driver: the steps that vendors and operating systems share."""

from __future__ import annotations

import contextlib

from autoscaler.agent.checks.nvidia import NvidiaLog, read_nvidia_smi
from autoscaler.agent.driver.packages import Packages
from autoscaler.agent.driver.plan import (
    header_release,
    kernel_compiler,
    secure_boot,
)
from autoscaler.agent.installing.local_machine import LocalMachine
from autoscaler.agent.installing.parts import InstallFailure, error_line
from autoscaler.agent.limits import GPU_ANSWER
from autoscaler.agent.programs import NotInstalled, NoUsableAnswer, Output, last_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from autoscaler.agent.installing.local_machine import PciDevice

SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


class DriverTry:
    """One try. `end` is when it must be over, `report` gets each stage before it begins."""

    def __init__(
        self, plan: Any, machine: LocalMachine, report: Callable[[str], None], end: float
    ) -> None:
        self.plan = plan
        self.machine = machine
        self.report = report
        self.end = end

    def check_before(self) -> str:
        """Return the kind of driver for the GPUs. Raises InstallFailure if no try can succeed."""
        raise NotImplementedError

    def install(self, kind: str) -> str:
        """Install this kind of driver and check it; return what it is. Raises InstallFailure, OSError.

        A step whose result is there already does nothing.
        """
        raise NotImplementedError

    def reset(self) -> None:
        """Undo what may prevent another try from succeeding."""
        raise NotImplementedError

    def left(self) -> float:
        """Return the seconds that the try has left, at least one."""
        return max(1.0, self.end - self.machine.now())

    def run(
        self, name: str, argv: Sequence[str], timeout: float, *, check: bool = True, **how: str
    ) -> Output:
        """Run a program. Raises InstallFailure with this name if it fails, and always if it hangs."""
        try:
            found = self.machine.run(argv, min(timeout, self.left()), **how)
        except (NotInstalled, NoUsableAnswer) as error:
            if check or isinstance(error, NoUsableAnswer):
                raise InstallFailure(name, str(error)) from error
            return Output(127, str(error))
        if check and found.status != 0:
            why = error_line(found.text) or last_line(found.text)
            raise InstallFailure(name, f"{argv[0]} exited with {found.status}: {why}")
        return found

    def refuse_other(self, found: str, wanted: str, name: str = "driver") -> None:
        """Refuse an image that has another driver. Raises InstallFailure."""
        if found not in ("", wanted):
            why = f"the image already has {name} {found}: use driver: preinstalled"
            raise InstallFailure("driver_present", why, lasting=True)

    def check_room(self, free_gib: float) -> None:
        """Check that modules can be built here and loaded. Raises InstallFailure."""
        if secure_boot(self.machine.read(SECURE_BOOT)):
            why = "Secure Boot is on, so the kernel loads no module that is built here"
            raise InstallFailure("driver_secure_boot", why, lasting=True)
        self.check_free(free_gib)

    def check_free(self, free_gib: float) -> None:
        """Check the free space. Raises InstallFailure."""
        free = self.machine.free()
        if free < free_gib:
            why = f"{free:.1f} GiB free, {free_gib:g} wanted"
            raise InstallFailure("driver_space", why, lasting=True)

    def install_build_tools(self) -> None:
        """Install what builds modules for the running kernel, unless it is there. Raises InstallFailure."""
        machine = self.machine
        kernel = machine.kernel()
        header = f"/lib/modules/{kernel}/build/include/generated/utsrelease.h"
        ready = header_release(machine.read(header)) == kernel
        if not ready or not machine.find("gcc") or not machine.find("make"):
            self.report("driver_packages")
            Packages(machine, self.end).install_build_tools()
        found = header_release(machine.read(header))
        if found != kernel:
            why = f"headers of {found or 'no kernel'} in /lib/modules/{kernel}/build"
            raise InstallFailure("driver_headers", why)
        if not machine.find("gcc") or not machine.find("make"):
            raise InstallFailure("driver_compiler", "gcc or make is not installed")

    def compiler(self) -> str:
        """Return the compiler of the kernel's version, if there is one, because some options differ."""
        version = kernel_compiler(self.machine.read("/proc/version"))
        return self.machine.find(f"gcc-{version}", f"gcc{version}-gcc", "gcc")

    def unload(self, modules: Iterable[str]) -> None:
        """Unload these kernel modules if the kernel allows it.

        A module that a hung process uses cannot be unloaded, and a full disk takes no log. The next try shows
        whether it works.
        """
        for module in modules:
            with contextlib.suppress(InstallFailure, OSError):
                self.run("driver_module", ["modprobe", "-r", module], GPU_ANSWER, check=False)

    def reset_gpus(self, gpus: Iterable[PciDevice]) -> None:
        """Reset these GPUs over PCI. Some cannot be reset alone: the next try shows whether they work."""
        for gpu in gpus:
            path = f"/sys/bus/pci/devices/{gpu.address}/reset"
            if self.machine.exists(path):
                with contextlib.suppress(OSError):
                    self.machine.write(path, "1")


class NvidiaTry(DriverTry):
    """One try to install NVIDIA's driver, on any operating system."""

    def ask_nvidia_smi(self, timeout: float, but: str = "") -> NvidiaLog:
        """Return what nvidia-smi shows: the wanted version, and a GPU with a name. Raises InstallFailure.

        Its exit status alone proves nothing. `but` is appended to the reason of a failure.
        """
        log = self.nvidia_log("driver_query", timeout, but=but)
        if log.driver != self.plan.version:
            why = f"nvidia-smi shows driver {log.driver}, and {self.plan.version} is wanted{but}"
            raise InstallFailure("driver_query", why)
        if not has_named_gpu(log):
            raise InstallFailure("driver_query", f"nvidia-smi shows no GPU with a name{but}")
        return log

    def nvidia_log(
        self, name: str, timeout: float, within: Sequence[str] = (), but: str = ""
    ) -> NvidiaLog:
        """Return the answer of nvidia-smi, which runs `within` another program. Raises InstallFailure."""
        argv = [*within, "nvidia-smi", "-q", "-x"]
        try:
            return read_nvidia_smi(self.run(name, argv, timeout, check=False))
        except NoUsableAnswer as error:
            raise InstallFailure(name, f"{error}{but}") from error


def has_named_gpu(log: NvidiaLog) -> bool:
    """Return whether nvidia-smi shows a GPU with a name: without its driver it may show one without."""
    return any(gpu.values.get("product_name") for gpu in log.gpus)
