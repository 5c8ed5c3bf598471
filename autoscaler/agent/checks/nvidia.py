"""Checks what nvidia-smi reports about NVIDIA's GPUs. Pure.

`nvidia-smi -q -x` prints the same XML with every driver (nvsmi_device_v11.dtd to v13), but newer ones rename
elements. A list of fields (--query-gpu) fails as a whole if the driver does not know one of them. The exit
status alone proves nothing: it is also 0 if a GPU has crashed.
"""

from __future__ import annotations

import collections

from autoscaler.agent.checks.devices import HOTTEST, Device, Wanted, check_devices
from autoscaler.agent.programs import NoUsableAnswer, Output, last_line
from autoscaler.agent.verdicts import Check, verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

INFOROM_CORRUPTED = 14
"""nvidia-smi's exit status for a corrupted infoROM, with a warning. The GPU works (nvidia-smi(1))."""

NvidiaLog = collections.namedtuple("NvidiaLog", ("driver", "gpus"))
NvidiaGpu = collections.namedtuple("NvidiaGpu", ("place", "values", "partitions"))
"""One GPU: `values` has each element's text by its path, `partitions` the MiB of each MIG device, or is None
without MIG."""

_START, _END = "<nvidia_smi_log>", "</nvidia_smi_log>"

_SLOWDOWNS = (
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "sw_thermal_slowdown",
)
"""The clock event reasons of a GPU that is too hot, or whose power supply asks it to slow down.

`sw_thermal_slowdown`: it is hotter than its maximum operating temperature. The others are normal: idleness,
settings (`applications_clocks_setting`, `display_clocks_setting`, `sync_boost`), the power limit
(`sw_power_cap`), and the limits of a card at its highest clock (`board_limit`, `reliability`).
Source: `nvidia-smi --help-query-gpu`.
"""

_UNCORRECTABLE = (
    "double_bit/total",  # before Ampere
    "sram_uncorrectable",
    "sram_uncorrectable_parity",
    "sram_uncorrectable_secded",
    "dram_uncorrectable",
)

_REPAIRS = (
    ("retired_pages/pending_retirement", "a page waits for its retirement"),
    ("retired_pages/pending_blacklist", "a page waits for its retirement"),
    ("remapped_rows/remapped_row_pending", "a row waits for its remapping"),
    ("remapped_rows/remapped_row_failure", "a row could not be remapped"),
    ("ecc_errors/channel_repair_pending", "a memory channel waits for its repair"),
    ("ecc_errors/tpc_repair_pending", "a processing cluster waits for its repair"),
    ("ecc_errors/unrepairable_memory", "the memory cannot be repaired"),
    ("ecc_errors/aggregate/sram_threshold_exceeded", "too many SRAM errors"),
    ("gpu_reset_status/reset_required", "it needs a reset"),
)

_SILENT = ("", "N/A", "ERR!", "Unknown Error", "[Unknown Error]", "GPU is lost", "[GPU is lost]")


def read_nvidia_smi(output: Output) -> NvidiaLog:
    """Return the answer of `nvidia-smi -q -x`. Raises NoUsableAnswer with the line that says why not."""
    begin, end = output.text.find(_START), output.text.rfind(_END)
    if begin < 0 or end < begin:
        raise NoUsableAnswer(f"nvidia-smi exited with {output.status}: {last_line(output.text)}")
    if output.status not in (0, INFOROM_CORRUPTED):
        rest = last_line(output.text[end + len(_END) :])
        raise NoUsableAnswer(f"nvidia-smi exited with {output.status}: {rest}")
    import xml.etree.ElementTree  # slow to import

    try:
        root = xml.etree.ElementTree.fromstring(output.text[begin : end + len(_END)])  # noqa: S314 - the image's program
    except xml.etree.ElementTree.ParseError as error:
        raise NoUsableAnswer(f"nvidia-smi's answer is not XML: {error}") from error
    gpus = []
    for number, gpu in enumerate(root.findall("gpu")):
        values: dict[str, str] = {}
        for path, text in _leaves(gpu, ""):
            values.setdefault(path, text)
        place = f"GPU {number} ({gpu.get('id', '')})"
        partitions = [
            _number(one.findtext("fb_memory_usage/total", ""))
            for one in gpu.findall("mig_devices/mig_device")
        ]
        has_mig = values.get("mig_mode/current_mig") == "Enabled"
        gpus.append(NvidiaGpu(place, values, partitions if has_mig else None))
    return NvidiaLog(root.findtext("driver_version", "").strip(), gpus)


def check_nvidia_log(log: NvidiaLog, wanted: Wanted) -> list[Check]:
    """Return all checks of this answer."""
    devices = [device for gpu in log.gpus for device in _devices(gpu)]
    answer = [gpu for gpu in log.gpus if _model(gpu)]
    return [
        *check_devices(devices, log.driver, wanted),
        verdict("gpu_errors", _each(answer, _errors), "no uncorrectable error"),
        verdict("gpu_repair", _each(answer, _repairs), "none is pending"),
        verdict("gpu_temperature", _each(answer, _heat), "no slowdown"),
        verdict("gpu_fabric", _each(answer, _fabric), _fabric_states(answer)),
    ]


def without_persistence(log: NvidiaLog) -> int:
    """Return how many GPUs have persistence mode off. Windows has no such mode.

    Without it, the driver starts again for each process. That costs time, and it resets the volatile ECC
    counters (nvml.h, nvmlEccCounterType_t).
    """
    return sum(gpu.values.get("persistence_mode") == "Disabled" for gpu in log.gpus)


def check_persistence(log: NvidiaLog, answer: str, promised: bool) -> Check:
    """Return the check of persistence mode. It fails only if the image promised the mode.

    `answer` is what `nvidia-smi -pm 1` wrote, or empty if it was not needed.
    """
    off = without_persistence(log)
    if not off:
        return Check("gpu_persistence", True, "turned on" if answer else "not off")
    return Check("gpu_persistence", not promised, f"off on {off} GPUs: {last_line(answer)}")


def slowed_down(log: NvidiaLog) -> bool:
    """Return whether a GPU names a slowdown among its clock event reasons."""
    return any(True for gpu in log.gpus for _ in _slowdowns(gpu.values))


def fabric_pending(log: NvidiaLog) -> bool:
    """Return whether a GPU still registers with its NVLink fabric, which Fabric Manager does after the boot."""
    states = {gpu.values.get("fabric/state") for gpu in log.gpus if gpu.partitions is None}
    return not states.isdisjoint(("Not Started", "In Progress"))


def has_nvlink(log: NvidiaLog) -> bool:
    """Return whether all NVLinks of the GPUs have to work, as on A100 and later behind an NVSwitch."""
    return bool(log.gpus) and all(
        gpu.partitions is None
        and ("A100-SXM" in _model(gpu) or gpu.values.get("fabric/state") == "Completed")
        for gpu in log.gpus
    )


def check_nvlinks(text: str, count: int) -> Check:
    """Return the check of `nvidia-smi nvlink --status` for so many GPUs.

    No link may be inactive (NVIDIA Health Validation, "NVLink Active Links").
    """
    links: list[list[bool]] = []
    for line in text.splitlines():
        if line.startswith("GPU "):
            links.append([])
        elif line.strip().startswith("Link ") and links:
            links[-1].append("<inactive>" not in line)
    problems = [
        f"GPU {number}: {one.count(False) or 'all'} NVLinks are inactive"
        for number, one in enumerate(links)
        if not one or not all(one)
    ]
    if len(links) < count:
        problems.append(f"nvidia-smi shows the NVLinks of {len(links)} GPUs: {last_line(text)}")
    return verdict("gpu_nvlink", problems, "no link is inactive")


def _leaves(element: Iterable[Any], path: str) -> Iterator[tuple[str, str]]:
    for child in element:
        name = path + child.tag
        yield name, (child.text or "").strip()
        yield from _leaves(child, name + "/")


def _model(gpu: NvidiaGpu) -> str:
    """Return the product's name, or nothing if the GPU does not answer: a lost one still has an entry."""
    silent = any(gpu.values.get(key, "") in _SILENT for key in ("product_name", "uuid"))
    return "" if silent else gpu.values["product_name"]


def _devices(gpu: NvidiaGpu) -> list[Device]:
    """Return the GPU itself or, with MIG, its devices, which are what a job can use."""
    if gpu.partitions is None:
        whole = _number(gpu.values.get("fb_memory_usage/total", ""))
        return [Device(gpu.place, _model(gpu), whole / 1024)]
    return [
        Device(f"{gpu.place} MIG {number}", _model(gpu), mib / 1024)
        for number, mib in enumerate(gpu.partitions)
    ]


def _each(gpus: list[NvidiaGpu], find: Callable[[Mapping[str, str]], Iterator[str]]) -> list[str]:
    return [f"{gpu.place}: {problem}" for gpu in gpus for problem in find(gpu.values)]


def _errors(values: Mapping[str, str]) -> Iterator[str]:
    """Count the errors since the driver was loaded: since the machine's boot, or that of a pod's node."""
    count = sum(_number(values.get(f"ecc_errors/volatile/{key}", "")) for key in _UNCORRECTABLE)
    if count > 0:
        yield f"{count:g} uncorrectable ECC errors"


def _repairs(values: Mapping[str, str]) -> Iterator[str]:
    # A dictionary, because drivers report a pending page under two names.
    yield from dict.fromkeys(what for key, what in _REPAIRS if values.get(key) == "Yes")
    action = values.get("gpu_recovery_action", "None")
    if action not in ("None", "N/A"):
        yield f"the driver asks for: {action}"


def _slowdowns(values: Mapping[str, str]) -> Iterator[str]:
    for reason in _SLOWDOWNS:
        # `event` since driver 535.
        for word in ("event", "throttle"):
            if values.get(f"clocks_{word}_reasons/clocks_{word}_reason_{reason}") == "Active":
                yield reason


def _heat(values: Mapping[str, str]) -> Iterator[str]:
    yield from _slowdowns(values)
    heat = _known(values.get("temperature/gpu_temp", ""))
    limit = _known(values.get("temperature/gpu_temp_slow_threshold", ""))
    if heat is not None and heat >= (HOTTEST if limit is None else limit):
        yield f"{heat:g} C"
    # Since Hopper: how far the GPU is from its limit, and at which distance it slows down.
    left = _known(values.get("temperature/gpu_temp_tlimit", ""))
    slow = _known(values.get("temperature/gpu_temp_slow_tlimit_threshold", ""))
    if left is not None and slow is not None and left <= slow:
        yield f"{left:g} C below its limit"


def _fabric(values: Mapping[str, str]) -> Iterator[str]:
    """Only GPUs behind an NVSwitch have a state. A single GPU of such a machine says N/A (gpud#1140)."""
    state, status = values.get("fabric/state", "N/A"), values.get("fabric/status", "N/A")
    if values.get("mig_mode/current_mig") == "Enabled" or state in ("N/A", "Not Supported"):
        return
    if state != "Completed":
        yield f"fabric state {state}: does Fabric Manager run?"
    elif status not in ("Success", "N/A"):
        yield f"fabric status {status}"
    if values.get("fabric/health/summary") == "Unhealthy":
        yield "the fabric is unhealthy"


def _fabric_states(gpus: list[NvidiaGpu]) -> str:
    return ", ".join(sorted({gpu.values.get("fabric/state", "N/A") for gpu in gpus})) or "N/A"


def _known(text: str) -> float | None:
    """Return the number before the unit, or None: `27 C`, `N/A`."""
    try:
        return float(text.partition(" ")[0])
    except ValueError:
        return None


def _number(text: str) -> float:
    return _known(text) or 0.0
