"""The health checks of a machine's accelerators, which its SKU names."""

from __future__ import annotations

import contextlib
import json
import os

from autoscaler.agent.checks.amd import (
    check_amd_errors,
    check_amd_heat,
    check_amd_pages,
    module_version,
    read_rocminfo,
    read_topology,
    refuse_closed_devices,
)
from autoscaler.agent.checks.devices import Wanted, check_devices, read_wanted
from autoscaler.agent.checks.kernel_log import check_amdgpu_log, check_xids, read_kernel_log
from autoscaler.agent.checks.nvidia import (
    NvidiaLog,
    check_nvidia_log,
    check_nvlinks,
    check_persistence,
    fabric_pending,
    has_nvlink,
    read_nvidia_smi,
    slowed_down,
    without_persistence,
)
from autoscaler.agent.clock import Clock
from autoscaler.agent.host import WINDOWS, Host
from autoscaler.agent.limits import FABRIC_WAIT, GPU_ANSWER
from autoscaler.agent.programs import NotInstalled, NoUsableAnswer, Output, run_program
from autoscaler.agent.verdicts import Check

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FABRIC_POLL = 5.0
"""Seconds until the agent looks again whether the GPUs have registered with their fabric."""

SLOWDOWN_PAUSE = 5.0
"""Seconds until the agent asks again about a slowdown: a change of clocks may be reported as `hw_slowdown`
(nvml.h, nvmlClocksThrottleReasonHwSlowdown)."""

PERSISTENCE_UNIT = "/etc/systemd/system/runner-gpu.service"
"""Turns persistence mode on at boot. The image recipe `linux-gpu` installs it."""

ROCM = "/opt/rocm/bin/"
"""Where ROCm's programs are if they are not on the PATH."""


def check_accelerators(health_checks: dict[str, Any], host: Host, clock: Clock) -> list[Check]:
    """Run the health checks of the accelerators in the controller's parameters. Without any: no checks."""
    parameters = health_checks.get("accelerator")
    if not isinstance(parameters, dict):
        return []
    wanted = read_wanted(parameters)
    try:
        if wanted.vendor == "nvidia":
            # AMD's programs show the version of the kernel module, and the manifest has that of the release.
            wanted = read_wanted(
                parameters, "" if "driver" in health_checks else image_driver(host)
            )
            promised = "driver" in health_checks or os.path.exists(host.root + PERSISTENCE_UNIT)
            return _check_nvidia(wanted, host, clock, promised)
        if wanted.vendor == "amd":
            return _check_amd(wanted, host, clock)
    except (NotInstalled, NoUsableAnswer) as error:
        return [Check("gpu_query", False, str(error))]
    return [Check("gpu_query", False, "this agent does not know the vendor")]


def image_driver(host: Host) -> str:
    """Return the version of the driver in the manifest of the image; nothing if the image has none."""
    try:
        with open(host.image_manifest, encoding="utf-8") as file:
            found = json.load(file)["versions"]["driver"]
    except (OSError, ValueError, TypeError, KeyError):
        return ""
    return found if isinstance(found, str) else ""


def _check_nvidia(wanted: Wanted, host: Host, clock: Clock, promised: bool) -> list[Check]:
    """Return the checks of NVIDIA's GPUs. `promised`: whether persistence mode has to be on."""
    log, turned_on = _ask_nvidia(clock), ""
    if without_persistence(log):
        turned_on = _run(["nvidia-smi", "-pm", "1"], clock).text
        log = _ask_nvidia(clock)
    end = clock.now() + FABRIC_WAIT
    while fabric_pending(log) and clock.now() < end:
        clock.sleep(FABRIC_POLL)
        log = _ask_nvidia(clock)
    if slowed_down(log):
        clock.sleep(SLOWDOWN_PAUSE)
        log = _ask_nvidia(clock)
    checks = [Check("gpu_query", True, "nvidia-smi answered"), *check_nvidia_log(log, wanted)]
    checks.append(check_persistence(log, turned_on, promised))
    if has_nvlink(log):
        links = _run(["nvidia-smi", "nvlink", "--status"], clock)
        checks.append(check_nvlinks(links.text, len(log.gpus)))
    if not WINDOWS:
        checks.append(check_xids(read_kernel_log(host.root + "/dev/kmsg")))
    return checks


def _ask_nvidia(clock: Clock) -> NvidiaLog:
    return read_nvidia_smi(_run(["nvidia-smi", "-q", "-x"], clock))


def _check_amd(wanted: Wanted, host: Host, clock: Clock) -> list[Check]:
    try:
        driver, gpus = read_rocminfo(_run_rocm(["rocminfo"], host, clock))
        source = "rocminfo answered"
    except NotInstalled:
        if not WINDOWS:
            refuse_closed_devices(host.root)
        driver, gpus = module_version(host.root), read_topology(host.root)
        source = "from the kernel: rocminfo is not installed"
    checks = [Check("gpu_query", True, source), *check_devices(gpus, driver, wanted)]
    with contextlib.suppress(NotInstalled):
        checks += _ask_amd_smi(host, clock)
    if not WINDOWS:
        checks.append(check_amdgpu_log(read_kernel_log(host.root + "/dev/kmsg")))
    return checks


def _ask_amd_smi(host: Host, clock: Clock) -> list[Check]:
    """Return the checks of amd-smi's answers. Raises NotInstalled."""

    def ask(words: str) -> Output:
        return _run_rocm(["amd-smi", *words.split(), "--json"], host, clock)

    return [
        check_amd_errors(ask("metric --ecc")),
        check_amd_heat(ask("metric --temperature"), ask("static --limit")),
        check_amd_pages(ask("bad-pages")),
    ]


def _run_rocm(argv: list[str], host: Host, clock: Clock) -> Output:
    try:
        return _run(argv, clock)
    except NotInstalled:
        return _run([host.root + ROCM + argv[0], *argv[1:]], clock)


def _run(argv: list[str], clock: Clock) -> Output:
    return run_program(argv, clock.real_timeout(GPU_ANSWER))
