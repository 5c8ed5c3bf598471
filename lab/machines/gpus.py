"""The accelerators of the lab's machines: what nvidia-smi, rocminfo and amd-smi print about them.

The forms are those of the real programs: `nvidia-smi -q -x` of drivers 535 and later (nvsmi_device_v12.dtd, as
in influxdata/telegraf, plugins/inputs/nvidia_smi/testdata), `nvidia-smi nvlink --status` of an H100, `rocminfo`
of an MI300X (ROCm/rocm-examples#187). What amd-smi prints is not recorded from a GPU: it is written from the
source (ROCm/amdsmi, amdsmi_cli/amdsmi_commands.py, and CHANGELOG.md). The values are the lab's own, and only
elements by which a broken GPU differs from a healthy one are there.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from autoscaler.providers.ec2.instance_types import instance_types

HEALTHY = {
    "product_name": "NVIDIA A10G",
    "product_architecture": "Ampere",
    "persistence_mode": "Enabled",
    "mig_mode/current_mig": "N/A",
    "mig_devices": "None",
    "uuid": "GPU-00000000-0000-0000-0000-000000000000",
    "gpu_reset_status/reset_required": "No",
    "clocks_event_reasons/clocks_event_reason_gpu_idle": "Active",
    "clocks_event_reasons/clocks_event_reason_hw_slowdown": "Not Active",
    "clocks_event_reasons/clocks_event_reason_hw_thermal_slowdown": "Not Active",
    "clocks_event_reasons/clocks_event_reason_hw_power_brake_slowdown": "Not Active",
    "clocks_event_reasons/clocks_event_reason_sw_thermal_slowdown": "Not Active",
    "fb_memory_usage/total": "23028 MiB",
    "ecc_mode/current_ecc": "Enabled",
    "ecc_errors/volatile/sram_correctable": "0",
    "ecc_errors/volatile/sram_uncorrectable": "0",
    "ecc_errors/volatile/dram_correctable": "0",
    "ecc_errors/volatile/dram_uncorrectable": "0",
    "ecc_errors/aggregate/dram_uncorrectable": "0",
    "retired_pages/pending_blacklist": "N/A",
    "retired_pages/pending_retirement": "N/A",
    "remapped_rows/remapped_row_corr": "0",
    "remapped_rows/remapped_row_unc": "0",
    "remapped_rows/remapped_row_pending": "No",
    "remapped_rows/remapped_row_failure": "No",
    "temperature/gpu_temp": "27 C",
    "temperature/gpu_temp_tlimit": "N/A",
    "temperature/gpu_temp_max_threshold": "98 C",
    "temperature/gpu_temp_slow_threshold": "95 C",
    "fabric/state": "N/A",
    "fabric/status": "N/A",
}
"""The elements of a healthy A10G, by their paths."""

BEHIND_NVSWITCH = {
    "product_name": "NVIDIA H100 80GB HBM3",
    "product_architecture": "Hopper",
    "fb_memory_usage/total": "81559 MiB",
    "temperature/gpu_temp_tlimit": "58 C",
    "temperature/gpu_temp_slow_threshold": "N/A",
    "temperature/gpu_temp_slow_tlimit_threshold": "-2 C",
    "fabric/state": "Completed",
    "fabric/status": "Success",
}
"""What an H100 behind an NVSwitch has instead."""

DRIVER = "580.95.05"
ROCK_MODULE = "6.12.12"
LINKS = 18

NVIDIA_MODELS = {
    "a10g": ("NVIDIA A10G", "23028 MiB"),
    "l4": ("NVIDIA L4", "23034 MiB"),
    "t4": ("Tesla T4", "15360 MiB"),
}
"""Product names and memory, by the names of the GPUs of EC2's instance types."""


def install_gpus_of(root: Path, instance_type: str) -> None:
    """Install the GPUs of an instance type in a machine: NVIDIA's and AMD's, if any."""
    known = instance_types().get(instance_type)
    if known is not None and known.gpu_maker == "nvidia":
        install_nvidia(root, known.gpu_count, known.gpu_name)
    elif known is not None and known.gpu_maker == "amd":
        install_amd(root, known.gpu_count)


def install_nvidia(root: Path, count: int, name: str = "a10g") -> None:
    """Install so many healthy GPUs in a machine or container, if any."""
    if count:
        folder = _folder(root)
        model, memory = NVIDIA_MODELS.get(name, (f"NVIDIA {name.upper()}", "23028 MiB"))
        values = {"product_name": model, "fb_memory_usage/total": memory}
        (folder / "head.xml").write_text(nvidia_head(count=count))
        for number in range(count):
            (folder / f"gpu-{number}.xml").write_text(nvidia_gpu(number, values) + "\n")


def install_amd(root: Path, count: int) -> None:
    """Install so many healthy GPUs in a container, if any."""
    if count:
        (_folder(root) / "rocminfo").write_text(rocminfo([AmdGpu()] * count))


def _folder(root: Path) -> Path:
    folder = root / "opt" / "gpus"
    folder.mkdir(mode=0o755, parents=True)
    return folder


def nvidia_gpu(number: int, values: Mapping[str, str] | None = None) -> str:
    """Return the element of one GPU. `values` replace those of `HEALTHY`, by path."""
    gpu = ElementTree.Element("gpu", id=f"00000000:{number + 0x17:02X}:00.0")
    uuid = f"GPU-00000000-0000-0000-0000-{number:012d}"
    for path, text in {**HEALTHY, "uuid": uuid, **(values or {})}.items():
        node = gpu
        for name in path.split("/"):
            found = node.find(name)
            node = ElementTree.SubElement(node, name) if found is None else found
        node.text = text
    return ElementTree.tostring(gpu, encoding="unicode")


def nvidia_head(driver: str = DRIVER, count: int = 1) -> str:
    """Return what stands before the GPUs."""
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n'
        "<nvidia_smi_log>\n<timestamp>Fri Nov 20 10:00:00 2026</timestamp>\n"
        f"<driver_version>{driver}</driver_version>\n<cuda_version>13.0</cuda_version>\n"
        f"<attached_gpus>{count}</attached_gpus>\n"
    )


def nvidia_log(gpus: Sequence[str], driver: str = DRIVER) -> str:
    """Return a whole answer with these GPUs."""
    return nvidia_head(driver, len(gpus)) + "\n".join(gpus) + "\n</nvidia_smi_log>\n"


def nvlink_status(inactive: Sequence[int]) -> str:
    """Return the links of GPUs, each with so many inactive ones at its end."""
    return "".join(_links(number, count) for number, count in enumerate(inactive))


def _links(number: int, inactive: int) -> str:
    rates = ["26.562 GB/s"] * (LINKS - inactive) + ["<inactive>"] * inactive
    links = (f"\t Link {link}: {rate}\n" for link, rate in enumerate(rates))
    return f"GPU {number}: NVIDIA H100 80GB HBM3 (UUID: GPU-{number})\n" + "".join(links)


@dataclass(frozen=True, slots=True)
class AmdGpu:
    """One GPU of AMD, or one partition of it."""

    architecture: str = "gfx942"
    memory_kb: int = 201310208
    uncorrectable: int | str = 0
    hotspot: int | str = 41
    hotspot_limit: int | str = 100
    memory_limit: int | str = 105
    retired: int = 0
    pending: int = 0
    unreservable: int = 0


def rocminfo(gpus: Sequence[AmdGpu], module: str = ROCK_MODULE) -> str:
    """Return what rocminfo prints: the processor, and these GPUs."""
    agents = [_agent(1, "AMD EPYC 9654 96-Core Processor", "CPU", 0, 528280572)]
    for number, gpu in enumerate(gpus, start=1):
        agents.append(_agent(number + 1, gpu.architecture, "GPU", number, gpu.memory_kb))
    version = f" version {module}" if module else ""
    return (
        f"ROCk module{version} is loaded\n=====================    \nHSA System Attributes    \n"
        "=====================    \nRuntime Version:         1.15\n\n"
        "==========               \nHSA Agents               \n==========               \n"
        + "".join(agents)
        + "*** Done ***             \n"
    )


def _agent(number: int, name: str, kind: str, node: int, kb: int) -> str:
    marketing = name if kind == "CPU" else "AMD Instinct MI300X"
    fields = {"Name": name, "Marketing Name": marketing, "Node": node, "Device Type": kind}
    lines = [
        "*******                  ",
        f"Agent {number}                  ",
        "*******                  ",
        *(f"  {key + ':':<25}{value}                " for key, value in fields.items()),
        "  Cache Info:              ",
        "    L1:                      32(0x20) KB        ",
        "  Pool Info:               ",
        "    Pool 1                   ",
        "      Segment:                 GLOBAL; FLAGS: COARSE GRAINED      ",
        f"      Size:                    {kb}({kb:#x}) KB            ",
        "    Pool 2                   ",
        "      Segment:                 GROUP            ",
        "      Size:                    64(0x40) KB            ",
    ]
    if kind == "GPU":
        lines += [
            "  ISA Info:                ",
            "    ISA 1                    ",
            f"      Name:                    amdgcn-amd-amdhsa--{name}:sramecc+:xnack-",
        ]
    return "\n".join(lines) + "\n"


def amd_smi_ecc(gpus: Sequence[AmdGpu]) -> str:
    """Return what `amd-smi metric --ecc --json` prints."""
    counts = (
        {"total_correctable_count": 0, "total_uncorrectable_count": gpu.uncorrectable}
        for gpu in gpus
    )
    return _amd_smi({"ecc": count} for count in counts)


def amd_smi_heat(gpus: Sequence[AmdGpu]) -> str:
    """Return what `amd-smi metric --temperature --json` prints. An MI300X has no edge sensor."""
    return _amd_smi(
        {"temperature": {"edge": "N/A", "hotspot": _celsius(gpu.hotspot), "mem": _celsius(35)}}
        for gpu in gpus
    )


def amd_smi_limit(gpus: Sequence[AmdGpu]) -> str:
    """Return the temperatures of what `amd-smi static --limit --json` prints."""
    return _amd_smi(
        {
            "limit": {
                "slowdown_edge_temperature": "N/A",
                "slowdown_hotspot_temperature": _celsius(gpu.hotspot_limit),
                "slowdown_vram_temperature": _celsius(gpu.memory_limit),
            }
        }
        for gpu in gpus
    )


def amd_smi_pages(gpus: Sequence[AmdGpu]) -> str:
    """Return what `amd-smi bad-pages --json` prints."""
    return _amd_smi(
        {
            "retired": _bad_pages(gpu.retired, "RESERVED"),
            "pending": _bad_pages(gpu.pending, "PENDING"),
            "un_res": _bad_pages(gpu.unreservable, "UNRESERVABLE"),
        }
        for gpu in gpus
    )


def _amd_smi(values: Iterable[Mapping[str, object]]) -> str:
    numbered = [{"gpu": number, **one} for number, one in enumerate(values)]
    return json.dumps({"gpu_data": numbered}, indent=4)


def _celsius(value: int | str) -> object:
    """Return a temperature of a JSON answer. `N/A` has no unit."""
    return {"value": value, "unit": "C"} if isinstance(value, int) else value


def _bad_pages(count: int, status: str) -> object:
    """Return the pages of one kind: a text if there are none, and one page without its list."""
    pages = [{"page_address": n, "page_size": 4096, "status": status} for n in range(count)]
    if not pages:
        return "No bad pages found."
    return pages[0] if count == 1 else pages
