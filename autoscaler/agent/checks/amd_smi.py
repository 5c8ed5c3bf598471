"""Checks what amd-smi reports about AMD's GPUs: ECC errors, temperatures, bad pages. Pure.

The forms are those of ROCm/amdsmi, amdsmi_cli (subcommands metric, static and bad-pages with --json) of ROCm
6.1 to 7: a list of GPUs, since amdsmi 7 within `gpu_data`. What a GPU or a virtual machine cannot report is
`N/A`, or the program refuses the option. That never fails a check.
"""

from __future__ import annotations

import json

from autoscaler.agent.checks.devices import HOTTEST
from autoscaler.agent.programs import Output, last_line
from autoscaler.agent.verdicts import Check, verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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
