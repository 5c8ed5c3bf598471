"""The installation of NVIDIA's driver on Windows: what a good machine does, and what each failure is called.

tests/windows runs it under Wine.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from autoscaler.agent.installing.local_machine import LIST_DEVICES, read_devices
from lab.machines.gpus import nvidia_gpu, nvidia_log
from tests.agent.driver_machine import SHA256, FakeMachine
from tests.powershell import mistakes

VERSION = "582.78"
INSTALLER = "C:\\ProgramData\\runner-agent\\state\\driver\\driver.exe"
PLAN: dict[str, Any] = {
    "vendor": "nvidia",
    "version": VERSION,
    "url": "https://us.download.nvidia.com/tesla/582.78/driver.exe",
    "sha256": SHA256,
    "budget_s": 2430,
}
T4, GTX_680 = 0x1EB8, 0x1180
DISK = "PCI\\VEN_1D0F&DEV_8061&SUBSYS_00001D0F&REV_00\\3&11583659&0&20 PCI\\VEN_1D0F&CC_010802"
ID = "PCI\\VEN_10DE&DEV_1EB8&SUBSYS_12A210DE&REV_A1\\4&5D18F2DF&0&00F0"
GPU = f"{ID} PCI\\VEN_10DE&DEV_1EB8 PCI\\VEN_10DE&CC_030200 PCI\\CC_030200"


def shown(version: str = VERSION, gpus: int = 1) -> str:
    return nvidia_log([nvidia_gpu(number) for number in range(gpus)], version)


class WindowsMachine(FakeMachine):
    """A machine with a T4 and no driver, on which everything goes well. `log`: what nvidia-smi then prints."""

    def __init__(self, agent: ModuleType) -> None:
        super().__init__(agent, (T4,))
        self.log = shown()
        self.installed = False

    def _usual(self, command: str) -> str:
        self.installed = self.installed or command.startswith(INSTALLER)
        return super()._usual(command) if self.installed else "not recognized as a command"


def install(agent: ModuleType, machine: WindowsMachine) -> tuple[Any, list[str]]:
    stages: list[str] = []
    plan = agent.read_driver_plan(PLAN)
    return agent.install_driver(plan, machine, stages.append, agent.WINDOWS_VENDORS), stages


def test_a_machine_without_a_driver_gets_one(agent: ModuleType) -> None:
    machine = WindowsMachine(agent)
    check, stages = install(agent, machine)
    assert (check.ok, check.detail) == (True, f"NVIDIA {VERSION}, signed, try 1, 4 s")
    assert stages == ["driver_checks", "driver_download", "driver_build", "driver_load"]
    assert machine.fetched == [PLAN["url"]]
    assert f"{INSTALLER} -s -noreboot" in machine.ran


def test_a_driver_that_is_there_is_not_installed_again(agent: ModuleType) -> None:
    machine = WindowsMachine(agent)
    machine.installed, machine.space = True, 0.0
    check, _ = install(agent, machine)
    assert check.ok
    assert (machine.fetched, set(machine.ran)) == ([], {"nvidia-smi -q -x"})


def test_the_installers_status_decides_nothing(agent: ModuleType) -> None:
    machine = WindowsMachine(agent)

    def restart_needed() -> tuple[int, str]:
        machine.installed = True
        return 1, ""

    machine.answers[INSTALLER] = restart_needed
    check, _ = install(agent, machine)
    assert (check.ok, ", try 1, " in check.detail) == (True, True)


def no_device(machine: WindowsMachine) -> None:
    machine.gpus = ()


def old_device(machine: WindowsMachine) -> None:
    machine.gpus = (GTX_680,)


def another_driver(machine: WindowsMachine) -> None:
    machine.installed, machine.log = True, shown("474.64")


def full_disk(machine: WindowsMachine) -> None:
    machine.space = 1.0


FINAL = [
    (no_device, "driver_device", "the machine has no NVIDIA GPU"),
    (old_device, "driver_device", "GPU 1180 is older than Maxwell"),
    (another_driver, "driver_present", "already has driver 474.64"),
    (full_disk, "driver_space", "1.0 GiB free, 6 wanted"),
]


@pytest.mark.parametrize(("plant", "name", "why"), FINAL)
def test_what_no_try_can_mend_is_found_before_the_installer_runs(
    agent: ModuleType, plant: Callable[[WindowsMachine], None], name: str, why: str
) -> None:
    machine = WindowsMachine(agent)
    plant(machine)
    check, _ = install(agent, machine)
    assert (check.ok, check.name) == (False, name)
    assert why in check.detail
    assert machine.fetched == []


def lying_installer(machine: WindowsMachine) -> None:
    machine.answers[INSTALLER] = lambda: (0, "")


def error_and_status_0(machine: WindowsMachine) -> None:
    machine.log = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver"


def older_version(machine: WindowsMachine) -> None:
    machine.log = shown("474.64")


def no_gpu_shown(machine: WindowsMachine) -> None:
    machine.log = shown(gpus=0)


def hanging_installer(machine: WindowsMachine) -> None:
    machine.takes[INSTALLER] = 3600.0


TRIED = [
    (lying_installer, "driver_query", "; the installer exited with 0 (try 3)"),
    (error_and_status_0, "driver_query", "couldn't communicate with the NVIDIA driver"),
    (older_version, "driver_query", "nvidia-smi shows driver 474.64, and 582.78 is wanted"),
    (no_gpu_shown, "driver_query", "nvidia-smi shows no GPU with a name"),
    (hanging_installer, "driver_build", "did not end within"),
]


@pytest.mark.parametrize(("plant", "name", "why"), TRIED)
def test_a_failure_is_named_after_three_tries(
    agent: ModuleType, plant: Callable[[WindowsMachine], None], name: str, why: str
) -> None:
    machine = WindowsMachine(agent)
    plant(machine)
    check, stages = install(agent, machine)
    assert (check.ok, check.name) == (False, name)
    assert why in check.detail
    assert stages.count("driver_build") == 3
    assert stages.count("driver_reset") == 2
    assert machine.time <= PLAN["budget_s"]


def test_a_second_try_that_works_is_enough(agent: ModuleType) -> None:
    machine = WindowsMachine(agent)
    tries = iter([False, True])

    def later() -> tuple[int, str]:
        machine.installed = next(tries)
        return 0, ""

    machine.answers[INSTALLER] = later
    check, _ = install(agent, machine)
    assert (check.ok, ", try 2, " in check.detail) == (True, True)


def test_amds_driver_is_not_installed_on_windows(agent: ModuleType) -> None:
    plan = {**PLAN, "vendor": "amd", "rocm": "7.2.4", "key": {"url": "u", "sha256": "s"}}
    read = agent.read_driver_plan(plan)
    check = agent.install_driver(read, WindowsMachine(agent), print, agent.WINDOWS_VENDORS)
    assert (check.ok, check.name) == (False, "driver_plan")


def test_the_powershell_that_lists_devices_has_no_syntax_error() -> None:
    assert mistakes(LIST_DEVICES) == []


def test_devices_are_read_between_other_lines() -> None:
    """The form of the lines: Microsoft, "Identifiers for PCI Devices". Lines without a class are skipped."""
    text = "\r\n".join(["Get-CimInstance : Access denied", DISK, GPU, ID, ""])
    assert [(one.vendor, one.device, one.kind) for one in read_devices(text)] == [
        (0x1D0F, 0x8061, 0x010802),
        (0x10DE, 0x1EB8, 0x030200),
    ]
