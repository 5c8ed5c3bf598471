"""Checks what ROCm, the kernel and amd-smi report about AMD's GPUs. Pure, but for reading the topology.

`rocminfo` opens the devices, as a job does. An image without ROCm (jobs may run in containers with it) still
shows the kernel's topology, from which rocminfo's own library reads.

The forms of amd-smi are those of ROCm/amdsmi, amdsmi_cli (subcommands metric, static and bad-pages with --json)
of ROCm 6.1 to 7: a list of GPUs, since amdsmi 7 within `gpu_data`. What a GPU or a virtual machine cannot
report is `N/A`, or the program refuses the option. That never fails a check.
"""

from __future__ import annotations

import json
import os

from autoscaler.agent.checks.devices import HOTTEST, Device
from autoscaler.agent.limits import MOST_BODY
from autoscaler.agent.programs import NoUsableAnswer, Output, last_line
from autoscaler.agent.verdicts import Check, verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"
"""One folder for each processor and GPU (kfd_topology.c). A container cannot read those of other GPUs."""

DRIVER = "/sys/module/amdgpu/version"
"""The version of AMD's own kernel module. The one in the kernel's source has none."""

_VRAM = ("1", "2")
"""The `heap_type` of a GPU's own memory: public and private frame buffer (hsakmttypes.h)."""


def read_rocminfo(output: Output) -> tuple[str, list[Device]]:
    """Return the version of the kernel module, and the GPUs, of `rocminfo`. Raises NoUsableAnswer.

    The version is empty if the module has none.
    """
    if output.status != 0 or "HSA Agents" not in output.text:
        raise NoUsableAnswer(f"rocminfo exited with {output.status}: {last_line(output.text)}")
    driver, _, agents = output.text.partition("HSA Agents")
    words = driver.split()
    at = words.index("version") + 1 if "version" in words[:3] else len(words)
    gpus: list[Device] = []
    for device in agents.split("\nAgent ")[1:]:
        fields = _fields(device)
        if fields.get("Device Type") == "GPU":
            name = f"GPU {len(gpus)} (node {fields.get('Node', '?')})"
            gpus.append(Device(name, fields.get("Name", ""), _largest_pool(device) / 2**20))
    return "".join(words[at : at + 1]), gpus


def read_topology(root: str) -> list[Device]:
    """Return the GPUs that the kernel shows to this process, below `root`. Raises NoUsableAnswer."""
    try:
        nodes = sorted(os.listdir(root + TOPOLOGY), key=lambda name: (len(name), name))
    except OSError as error:
        raise NoUsableAnswer(f"the kernel shows no AMD GPU: {error.strerror}") from error
    gpus: list[Device] = []
    for node in nodes:
        folder = f"{root}{TOPOLOGY}/{node}"
        version = _properties(f"{folder}/properties").get("gfx_target_version", "0")
        if version.isdigit() and int(version) > 0:
            name = f"GPU {len(gpus)} (node {node})"
            gpus.append(Device(name, _architecture(int(version)), _video_memory(folder) / 2**30))
    return gpus


def refuse_closed_devices(root: str) -> None:
    """Raise NoUsableAnswer if this user may not open a GPU's device below `root`, as a job has to.

    Each GPU has a render node in /dev/dri, and /dev/kfd is that of all. A pod has only those of its GPUs.
    """
    folder = root + "/dev/dri"
    nodes = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    render = [f"{folder}/{name}" for name in nodes if name.startswith("renderD")]
    for path in (root + "/dev/kfd", *render):
        if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK):
            group = os.stat(path).st_gid
            raise NoUsableAnswer(
                f"the user {os.geteuid()} may not open {path}: its group is {group}"
            )


def module_version(root: str) -> str:
    """Return the version of the kernel module below `root`, or an empty string."""
    return _read(root + DRIVER).strip()


def _fields(device: str) -> dict[str, str]:
    """Return the fields of one device in rocminfo's output. They are indented by two blanks."""
    found: dict[str, str] = {}
    for line in device.splitlines():
        key, colon, value = line.partition(":")
        if colon and line.startswith("  ") and not line.startswith("   "):
            found.setdefault(key.strip(), value.strip())
    return found


def _largest_pool(device: str) -> int:
    """Return the KB of the largest pool of global memory: `Size: 201310208(0xbffc000) KB`."""
    sizes = [0]
    in_global = False
    for line in device.splitlines():
        key, _, value = line.strip().partition(":")
        if key == "Segment":
            in_global = "GLOBAL" in value
        elif key == "Size" and in_global:
            digits = value.strip().partition("(")[0]
            sizes.append(int(digits) if digits.isdigit() else 0)
    return max(sizes)


def _architecture(version: int) -> str:
    """Return the name for a `gfx_target_version`: gfx942 for 90402, gfx90a for 90010."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _video_memory(folder: str) -> int:
    return sum(
        int(bank.get("size_in_bytes", "0"))
        for bank in _banks(f"{folder}/mem_banks")
        if bank.get("heap_type") in _VRAM
    )


def _banks(folder: str) -> Iterator[dict[str, str]]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        yield _properties(f"{folder}/{name}/properties")


def _properties(path: str) -> dict[str, str]:
    """Return a file of `name value` lines. It is empty for a GPU that belongs to another container (EPERM)."""
    pairs = (line.split() for line in _read(path).splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(MOST_BODY)
    except OSError:
        return ""


_SENSORS = (("edge", ("edge",)), ("hotspot", ("hotspot",)), ("mem", ("mem", "vram")))
"""A temperature's name in `metric`, and the names of its limit in `static`: `slowdown_vram_temperature`."""


def check_amd_errors(output: Output) -> Check:
    """Return the check of `amd-smi metric --ecc --json`. Virtual machines count no errors (amdsmi 6.2.1)."""
    gpus = read_gpus(output.text)
    if gpus is None:
        return Check("gpu_errors", True, f"not known: {last_line(output.text)}")
    problems = []
    for gpu in gpus:
        count = _json_object(gpu.get("ecc")).get("total_uncorrectable_count")
        if isinstance(count, int) and count > 0:
            problems.append(f"GPU {gpu.get('gpu')}: {count} uncorrectable ECC errors")
    return verdict("gpu_errors", problems, "no uncorrectable error")


def check_amd_heat(metric: Output, static: Output) -> Check:
    """Return the check of `amd-smi metric --temperature --json` against the limits of `static --limit --json`.

    At its slowdown temperature a GPU lowers its clocks. Without a limit, `HOTTEST` is one.
    """
    gpus = read_gpus(metric.text)
    if gpus is None:
        return Check("gpu_temperature", True, f"not known: {last_line(metric.text)}")
    static_gpus = read_gpus(static.text) or []
    limits = {gpu.get("gpu"): _json_object(gpu.get("limit")) for gpu in static_gpus}
    problems = []
    for gpu in gpus:
        heat, limit_of = _json_object(gpu.get("temperature")), limits.get(gpu.get("gpu"), {})
        for sensor, names in _SENSORS:
            degrees = _degrees(heat.get(sensor))
            found = [_degrees(limit_of.get(f"slowdown_{name}_temperature")) for name in names]
            limit = next((one for one in found if one), HOTTEST)  # 0 stands for none, too
            if degrees is not None and degrees >= limit:
                problems.append(f"GPU {gpu.get('gpu')}: {degrees:g} C ({sensor})")
    return verdict("gpu_temperature", problems, "below the slowdown temperatures")


def check_amd_pages(output: Output) -> Check:
    """Return the check of `amd-smi bad-pages --json`.

    The driver has taken a retired page out of use, so it does not matter. A pending page is bad and still in
    use, and one that is not reservable stays in use (amdsmi.h, amdsmi_memory_page_status_t).
    """
    gpus = read_gpus(output.text)
    if gpus is None:
        return Check("gpu_repair", True, f"not known: {last_line(output.text)}")
    problems = []
    for gpu in gpus:
        for key, what in (
            ("pending", "bad pages wait for their retirement"),
            ("un_res", "bad pages cannot be retired"),
        ):
            if count := _pages(gpu.get(key)):
                problems.append(f"GPU {gpu.get('gpu')}: {count} {what}")
    retired = sum(_pages(gpu.get("retired")) for gpu in gpus)
    return verdict("gpu_repair", problems, f"none is pending, {retired} pages are retired")


def read_gpus(text: str) -> list[dict[str, Any]] | None:
    """Return the GPUs of an answer with --json, or None if it is no such answer."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return None
    gpus = answer.get("gpu_data") if isinstance(answer, dict) else answer
    if not isinstance(gpus, list):
        return None
    return [gpu for gpu in gpus if isinstance(gpu, dict)]


def _pages(listed: Any) -> int:
    """Return how many pages are listed. One page stands without a list, and a text stands for none."""
    return len(listed) if isinstance(listed, list) else int(isinstance(listed, dict))


def _degrees(value: Any) -> float | None:
    """Return the degrees Celsius of `{"value": 41, "unit": "C"}` or of a bare number; else None."""
    number = value.get("value") if isinstance(value, dict) else value
    return float(number) if isinstance(number, (int, float)) else None


def _json_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
