"""One try to install NVIDIA's driver on Windows. A step whose result is there already does nothing.

PyTorch's CI installs it in the same way (pytorch/builder, windows/internal/driver_update.bat). Windows loads no
module that is not signed, and the installer contains all of them, so nothing is built.
"""

from __future__ import annotations

from autoscaler.agent.checks.nvidia import read_nvidia_smi
from autoscaler.agent.driver.plan import (
    FIRST_MAXWELL,
    FREE_GIB,
    DriverFailure,
    DriverPlan,
    nvidia_gpus,
)
from autoscaler.agent.driver.steps import DriverSteps
from autoscaler.agent.limits import GPU_ANSWER
from autoscaler.agent.programs import NoUsableAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from autoscaler.agent.checks.nvidia import NvidiaLog
    from autoscaler.agent.driver.ports import DriverMachine

INSTALLER = "C:\\ProgramData\\runner-agent\\state\\driver\\driver.exe"
"""Where the download is. Only SYSTEM and administrators can open the folder."""

SILENT = ("-s", "-noreboot")
"""NVIDIA's installer shows nothing and does not restart Windows."""


class NvidiaWindowsTry:
    """One try. `end` is when it must be over, `report` gets each stage before it begins."""

    def __init__(
        self, plan: DriverPlan, machine: DriverMachine, report: Callable[[str], None], end: float
    ) -> None:
        self._plan = plan
        self._machine = machine
        self._steps = DriverSteps(machine, report, end)

    def check_before(self) -> str:
        """Return the kind of driver. Raises DriverFailure if no try can succeed."""
        self._steps.report("driver_checks")
        gpus = nvidia_gpus(self._machine.devices())
        if not gpus:
            raise DriverFailure("driver_device", "the machine has no NVIDIA GPU", lasting=True)
        oldest = min(gpu.device for gpu in gpus)
        if oldest < FIRST_MAXWELL:
            why = f"GPU {oldest:04x} is older than Maxwell, and {self._plan.version} does not support it"
            raise DriverFailure("driver_device", why, lasting=True)
        installed = self._installed()
        if installed not in ("", self._plan.version):
            why = f"the image already has driver {installed}: use driver: preinstalled"
            raise DriverFailure("driver_present", why, lasting=True)
        if not installed:
            self._steps.check_free(FREE_GIB)
        return "signed"

    def install(self, kind: str) -> str:
        """Install the driver and ask nvidia-smi, whatever the installer's exit status. Raises DriverFailure.

        The status is also not 0 if only a restart of Windows is missing.
        """
        status = ""
        if self._installed() != self._plan.version:
            self._steps.report("driver_download")
            self._machine.fetch(self._plan.file, INSTALLER, self._steps.left())
            self._steps.report("driver_build")
            argv = [self._machine.path(INSTALLER), *SILENT]
            done = self._steps.run("driver_build", argv, self._steps.left(), check=False)
            status = f"; the installer exited with {done.status}"
        self._steps.report("driver_load")
        try:
            log = self._ask()
        except NoUsableAnswer as error:
            raise DriverFailure("driver_query", f"{error}{status}") from error
        if log.driver != self._plan.version:
            why = (
                f"nvidia-smi shows driver {log.driver}, and {self._plan.version} is wanted{status}"
            )
            raise DriverFailure("driver_query", why)
        if not _named(log):
            raise DriverFailure("driver_query", f"nvidia-smi shows no GPU with a name{status}")
        return f"NVIDIA {self._plan.version}, {kind}"

    def reset(self) -> None:
        """Report the stage. Nothing is loaded that another run of the installer would not replace."""
        self._steps.report("driver_reset")

    def _installed(self) -> str:
        """Return the version of the driver that works now, or nothing."""
        try:
            log = self._ask()
        except (NoUsableAnswer, DriverFailure):
            return ""
        return str(log.driver) if _named(log) else ""

    def _ask(self) -> NvidiaLog:
        """Ask nvidia-smi, which may print an error and exit with 0. Raises NoUsableAnswer, DriverFailure."""
        argv = ["nvidia-smi", "-q", "-x"]
        return read_nvidia_smi(self._steps.run("driver_query", argv, GPU_ANSWER, check=False))


def _named(log: NvidiaLog) -> bool:
    return any(gpu.values.get("product_name") for gpu in log.gpus)
