"""What a real nvidia-smi answered about an H100 at full load, and that answer with one value of a broken GPU.

samples/nvidia-smi-580.159.04-h100.xml is the answer of `nvidia-smi -q -x`, with other serial numbers.
"""

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SAMPLE = Path(__file__).parent / "samples" / "nvidia-smi-580.159.04-h100.xml"
H100 = {
    "vendor": "nvidia",
    "count": 1,
    "models": ["NVIDIA H100 80GB HBM3"],
    "memory_gb": 79,
    "driver_version": "580",
}


def checks(agent: ModuleType, text: str) -> dict[str, Any]:
    """Return the checks of an answer, by name."""
    log = agent.read_nvidia_smi(agent.Output(0, text))
    found = agent.check_nvidia_log(log, agent.read_wanted(H100))
    return {one.name: one for one in [*found, agent.check_persistence(log, "", True)]}


def test_a_real_gpu_at_its_power_limit_passes(agent: ModuleType) -> None:
    text = SAMPLE.read_text()
    found = checks(agent, text)
    assert [one.ok for one in found.values()] == [True] * len(found)
    assert found["gpu_driver"].detail == "580.159.04"
    assert found["gpu_memory"].detail == "at least 79.6 GiB"
    log = agent.read_nvidia_smi(agent.Output(0, text))
    # It is alone behind its NVSwitches, so that no Fabric Manager and no link is expected.
    assert not agent.has_nvlink(log)
    assert not agent.fabric_pending(log)
    assert not agent.slowed_down(log)


@pytest.mark.parametrize(
    ("element", "broken", "name"),
    [
        ("product_name", "NVIDIA H100 PCIe", "gpu_model"),
        ("uuid", "GPU is lost", "gpu_count"),
        ("persistence_mode", "Disabled", "gpu_persistence"),
        ("fb_memory_usage/total", "40960 MiB", "gpu_memory"),
        ("ecc_errors/volatile/sram_uncorrectable_parity", "1", "gpu_errors"),
        ("ecc_errors/volatile/sram_uncorrectable_secded", "1", "gpu_errors"),
        ("ecc_errors/volatile/dram_uncorrectable", "1", "gpu_errors"),
        ("ecc_errors/aggregate/sram_threshold_exceeded", "Yes", "gpu_repair"),
        ("ecc_errors/channel_repair_pending", "Yes", "gpu_repair"),
        ("ecc_errors/tpc_repair_pending", "Yes", "gpu_repair"),
        ("ecc_errors/unrepairable_memory", "Yes", "gpu_repair"),
        ("remapped_rows/remapped_row_pending", "Yes", "gpu_repair"),
        ("remapped_rows/remapped_row_failure", "Yes", "gpu_repair"),
        ("gpu_recovery_action", "Reset", "gpu_repair"),
        ("clocks_event_reasons/clocks_event_reason_hw_slowdown", "Active", "gpu_temperature"),
        (
            "clocks_event_reasons/clocks_event_reason_hw_thermal_slowdown",
            "Active",
            "gpu_temperature",
        ),
        (
            "clocks_event_reasons/clocks_event_reason_hw_power_brake_slowdown",
            "Active",
            "gpu_temperature",
        ),
        (
            "clocks_event_reasons/clocks_event_reason_sw_thermal_slowdown",
            "Active",
            "gpu_temperature",
        ),
        ("temperature/gpu_temp_tlimit", "-2 C", "gpu_temperature"),
        ("fabric/state", "In Progress", "gpu_fabric"),
    ],
)
def test_each_value_of_a_broken_gpu_is_found_where_the_driver_writes_it(
    agent: ModuleType, element: str, broken: str, name: str
) -> None:
    found = checks(agent, replaced(SAMPLE.read_text(), element, broken))
    assert [one.name for one in found.values() if not one.ok] == [name]


def replaced(text: str, element: str, value: str) -> str:
    """Return the answer with another text of an element, which is named by its path below `gpu`."""
    *outer, inner = element.split("/")
    start = 0
    for name in outer:
        start = text.index(f"<{name}>", start)
    changed, count = re.subn(rf"(<{inner}>)[^<]+", rf"\g<1>{value}", text[start:], count=1)
    assert count == 1
    return text[:start] + changed
