"""Installs the driver of a machine's GPUs at boot, or into an image, within a time budget.

Three tries of ten minutes, with a reset of the GPUs between them: PyTorch's CI found that a second try often
works (pytorch/test-infra, .github/actions/setup-nvidia).
"""

from __future__ import annotations

from autoscaler.agent.clock import Clock
from autoscaler.agent.driver.amd_linux import AmdTry
from autoscaler.agent.driver.nvidia import NvidiaLinuxTry, NvidiaWindowsTry
from autoscaler.agent.driver.plan import AmdPlan, DriverPlan, read_driver_plan
from autoscaler.agent.driver.steps import DriverTry
from autoscaler.agent.host import WINDOWS, Host, read_trusted
from autoscaler.agent.installing.local_machine import LocalMachine
from autoscaler.agent.installing.parts import InstallFailure
from autoscaler.agent.journal import log_line
from autoscaler.agent.limits import DRIVER_TRY, GPU_ANSWER
from autoscaler.agent.verdicts import MOST_DETAIL, Check

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    NewTry = type[DriverTry]

TRIES = 3

LINUX_VENDORS: dict[str, NewTry] = {"nvidia": NvidiaLinuxTry, "amd": AmdTry}
WINDOWS_VENDORS: dict[str, NewTry] = {"nvidia": NvidiaWindowsTry}
"""The installation of each vendor's driver, by operating system."""


def install_wanted_driver(
    health_checks: dict[str, Any],
    host: Host,
    clock: Clock,
    report: Callable[[str], None],
    spent: float = 0.0,
) -> list[Check]:
    """Install the driver that the controller's parameters name. Without any: no checks.

    `report` gets each stage before it begins. `spent`: seconds of the budget that are already over.
    """
    parameters = health_checks.get("driver")
    if not isinstance(parameters, dict):
        return []
    try:
        plan = read_driver_plan(parameters)
        machine = LocalMachine(host, clock)
    except InstallFailure as failure:
        return [Check(failure.name, False, str(failure))]
    except OSError as error:
        return [Check("driver_space", False, f"{host.install_log}: {error.strerror}")]
    vendors = WINDOWS_VENDORS if WINDOWS else LINUX_VENDORS
    return [install_driver(plan._replace(budget=plan.budget - spent), machine, report, vendors)]


def install_driver(
    plan: DriverPlan | AmdPlan,
    machine: LocalMachine,
    report: Callable[[str], None],
    vendors: dict[str, NewTry] = LINUX_VENDORS,
) -> Check:
    """Install the driver; return the check `driver`, or the one that failed."""
    began = machine.now()
    end = began + plan.budget
    new_try = vendors.get(plan.vendor)
    if new_try is None:
        return Check("driver_plan", False, "this agent does not know the vendor")
    try:
        kind = new_try(plan, machine, report, end).check_before()
    except (InstallFailure, OSError) as error:
        return _failed(error, 1)
    for number in range(1, TRIES + 1):
        try:
            until = min(end, machine.now() + DRIVER_TRY)
            installed = new_try(plan, machine, report, until).install(kind)
        except (InstallFailure, OSError) as error:
            lasting = isinstance(error, InstallFailure) and error.lasting
            if lasting or number == TRIES or machine.now() >= end:
                return _failed(error, number)
            log_line(f"driver, try {number}: {error}")
            if isinstance(error, InstallFailure) and error.modules_work:
                continue
            # The try may have used up its own time.
            new_try(plan, machine, report, min(end, machine.now() + GPU_ANSWER)).reset()
        else:
            took = machine.now() - began
            return Check("driver", True, f"{installed}, try {number}, {took:.0f} s")
    raise AssertionError("the last try returns")


def _failed(error: InstallFailure | OSError, number: int) -> Check:
    """Return the failed check of the last try. An OSError means that the disk takes no log."""
    name = error.name if isinstance(error, InstallFailure) else "driver_space"
    log_line(f"driver, try {number}: {name}: {error}")
    tries = "" if number == 1 else f" (try {number})"
    return Check(name, False, f"{error}"[:MOST_DETAIL] + tries)


def install_from_file(path: str, host_file: str) -> int:
    """Install the driver of a plan, for the build of an image. Return the exit status.

    The file is what `autoscaler images driver` prints. Raises BadSettings.
    """
    host = Host(read_trusted(host_file) or {})
    found = install_wanted_driver(
        {"driver": read_trusted(path)}, host, Clock(host.time_scale), log_line
    )
    if not found:
        log_line(f"{path}: absent")
        return 1
    log_line(f"{found[0].name}: {found[0].detail}")
    return 0 if found[0].ok else 1
