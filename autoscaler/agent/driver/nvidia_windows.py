"""Installs NVIDIA's driver on Windows.

PyTorch's CI installs it in the same way (pytorch/builder, windows/internal/driver_update.bat). Windows loads no
module that is not signed, and the installer contains all of them, so nothing is built.
"""

from __future__ import annotations

from autoscaler.agent.driver.plan import (
    FREE_GIB,
    DriverFailure,
    check_nvidia_gpus,
    nvidia_gpus,
)
from autoscaler.agent.driver.steps import NvidiaTry, has_named_gpu
from autoscaler.agent.limits import GPU_ANSWER

INSTALLER = "C:\\ProgramData\\runner-agent\\state\\driver\\driver.exe"
"""Where the download is. Only SYSTEM and administrators can open the folder."""

SILENT = ("-s", "-noreboot")
"""NVIDIA's installer shows nothing and does not restart Windows."""


class NvidiaWindowsTry(NvidiaTry):
    """One try on Windows."""

    def check_before(self) -> str:
        """Return the kind of driver. Raises DriverFailure if no try can succeed."""
        self.report("driver_checks")
        check_nvidia_gpus(nvidia_gpus(self.machine.devices()), self.plan.version)
        installed = self._installed()
        self.refuse_other(installed, self.plan.version)
        if not installed:
            self.check_free(FREE_GIB)
        return "signed"

    def install(self, kind: str) -> str:
        """Install the driver and ask nvidia-smi, whatever the installer's exit status. Raises DriverFailure.

        The status is also not 0 if only a restart of Windows is missing.
        """
        status = ""
        if self._installed() != self.plan.version:
            self.report("driver_download")
            self.machine.fetch(self.plan.file, INSTALLER, self.left())
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
        except DriverFailure:
            return ""
        return str(log.driver) if has_named_gpu(log) else ""
