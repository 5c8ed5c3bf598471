"""The health checks of accelerators: what each planted failure is called, and that a healthy machine passes."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lab.machines import gpus
from lab.machines.gpus import AmdGpu, nvidia_gpu, nvidia_log, nvlink_status
from tests.agent.doubles import VirtualClock
from tests.python_programs import first_line

EIGHT_H100 = {"vendor": "nvidia", "count": 8, "models": ["NVIDIA H100 80GB HBM3"]}
ONE_A10G = {"vendor": "nvidia", "count": 1, "models": ["NVIDIA L4", "nvidia a10g"], "memory_gb": 22}
TWO_MI300X = {"vendor": "amd", "count": 2, "models": ["gfx942"], "memory_gb": 190}


class Image:
    """A folder of stand-ins for the programs of an image, which alone is on the PATH."""

    def __init__(self, agent: ModuleType, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.agent = agent
        self.root = root
        self.clock = VirtualClock()
        (root / "bin").mkdir()
        (root / "dev").mkdir()
        monkeypatch.setenv("PATH", str(root / "bin"))

    def install(self, name: str, text: str, *, arguments: str = "", status: int = 0) -> None:
        """Add an answer of a program to these arguments, or to all if there are none."""
        program = self.root / "bin" / name
        written = program.read_text() if program.exists() else f"{first_line('-ISs')}import sys\n"
        condition = f"sys.argv[1:] == {arguments.split()!r}" if arguments else "True"
        written += f"if {condition}:\n    sys.stdout.write({text!r})\n    sys.exit({status})\n"
        program.write_text(written)
        program.chmod(0o755)

    def install_nvidia(self, *changes: Mapping[str, str], driver: str = gpus.DRIVER) -> None:
        """Install nvidia-smi, which shows a GPU for each of the changes."""
        shown = [nvidia_gpu(number, values) for number, values in enumerate(changes)]
        self.install("nvidia-smi", nvidia_log(shown, driver), arguments="-q -x")

    def check(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        host = self.agent.Host({"root": str(self.root)})
        found = self.agent.check_accelerators({"accelerator": wanted}, host, self.clock)
        return {check.name: check for check in found}

    def failed(self, wanted: Mapping[str, Any]) -> dict[str, str]:
        """Return the details of the failed checks, by name."""
        return {name: one.detail for name, one in self.check(wanted).items() if not one.ok}


@pytest.fixture
def image(agent: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Image:
    return Image(agent, tmp_path, monkeypatch)


def h100(number: int = 8, **changed: Mapping[str, str]) -> list[dict[str, str]]:
    """The GPUs of an HGX H100. `changed` replaces values of GPUs by their number: `_3={...}`."""
    return [{**gpus.BEHIND_NVSWITCH, **changed.get(f"_{one}", {})} for one in range(number)]


def test_a_machine_without_accelerators_has_no_such_checks(agent: ModuleType) -> None:
    assert agent.check_accelerators({"disk_gb": 1}, agent.Host({}), VirtualClock()) == []


def test_healthy_nvidia_gpus_pass(image: Image) -> None:
    image.install_nvidia({})
    checks = image.check({**ONE_A10G, "driver_version": "580"})
    assert [check.ok for check in checks.values()] == [True] * len(checks)
    assert checks["gpu_query"].detail == "nvidia-smi answered"
    assert checks["gpu_driver"].detail == "580.95.05"
    assert checks["gpu_model"].detail == "NVIDIA A10G"
    assert checks["gpu_memory"].detail == "at least 22.5 GiB"
    assert checks["gpu_xid"].detail == "the kernel's log is not readable here"
    assert checks["gpu_errors"].detail == "no uncorrectable error"
    assert checks["gpu_fabric"].detail == "N/A"


def test_every_state_of_the_fabric_is_shown(image: Image) -> None:
    image.install_nvidia(*h100(_5={"fabric/state": "N/A", "fabric/status": "N/A"}))
    assert image.check(EIGHT_H100)["gpu_fabric"].detail == "Completed, N/A"


def test_a_healthy_machine_with_nvswitches_passes(image: Image) -> None:
    image.install_nvidia(*h100())
    image.install("nvidia-smi", nvlink_status([0] * 8), arguments="nvlink --status")
    checks = image.check(EIGHT_H100)
    assert [check.ok for check in checks.values()] == [True] * len(checks)
    assert checks["gpu_fabric"].detail == "Completed"
    assert checks["gpu_nvlink"].detail == "no link is inactive"


@pytest.mark.case(
    "nvidia-smi prints an error and exits with status 0: the machine is not used",
    topic="Accelerators",
    source="NVIDIA/dcgm-exporter#604; JosephKJ/OWOD#81",
)
@pytest.mark.parametrize(
    ("text", "status", "detail"),
    [
        (
            "Unable to determine the device handle for GPU 0000:BA:80.0: Unknown Error\n",
            0,
            "nvidia-smi exited with 0: Unable to determine the device handle for GPU 0000:BA:80.0: "
            "Unknown Error",
        ),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure "
            "that the latest NVIDIA driver is installed and running.\n\n",
            9,
            "nvidia-smi exited with 9: NVIDIA-SMI has failed because it couldn't communicate with the "
            "NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.",
        ),
        ("", 0, "nvidia-smi exited with 0: no output"),
        (
            nvidia_log([nvidia_gpu(0)]) + "GPU is lost.  Reboot the system to recover this GPU\n",
            15,
            "nvidia-smi exited with 15: GPU is lost. Reboot the system to recover this GPU",
        ),
        ("<nvidia_smi_log><gpu></nvidia_smi_log>", 0, "nvidia-smi's answer is not XML"),
    ],
)
def test_an_error_of_nvidia_smi_fails(image: Image, text: str, status: int, detail: str) -> None:
    image.install("nvidia-smi", text, status=status)
    found = image.failed(ONE_A10G)
    assert list(found) == ["gpu_query"]
    assert found["gpu_query"].startswith(detail)


def test_a_corrupted_inforom_does_not_fail(image: Image) -> None:
    text = nvidia_log([nvidia_gpu(0)]) + "WARNING: infoROM is corrupted at gpu 0000:00:1E.0\n"
    image.install("nvidia-smi", text, status=14)
    assert image.failed(ONE_A10G) == {}


def test_a_missing_nvidia_smi_fails(image: Image) -> None:
    assert image.failed(ONE_A10G) == {"gpu_query": "nvidia-smi is not installed"}
    (image.root / "bin" / "nvidia-smi").write_text("no program")
    (image.root / "bin" / "nvidia-smi").chmod(0o755)
    assert image.failed(ONE_A10G) == {"gpu_query": "nvidia-smi does not start: Exec format error"}


@pytest.mark.case(
    "nvidia-smi hangs on a broken GPU: the check ends after its time, and the machine is not used",
    topic="Accelerators",
    source="NVIDIA/nvidia-docker#1553",
)
def test_a_nvidia_smi_that_hangs_fails(image: Image, agent: ModuleType) -> None:
    program = image.root / "bin" / "nvidia-smi"
    program.write_text(f"{first_line('-ISs')}import time\ntime.sleep(5)\n")
    program.chmod(0o755)
    asked: list[float] = []

    def short(seconds: float) -> float:
        asked.append(seconds)
        return 0.1

    image.clock.real_timeout = short  # type: ignore[method-assign]
    assert image.failed(ONE_A10G) == {"gpu_query": "nvidia-smi did not answer in time"}
    assert asked == [agent.GPU_ANSWER]


@pytest.mark.case(
    "one of eight GPUs is missing or lost: the machine is not used",
    topic="Accelerators",
    source="NVIDIA/NVSentinel#155; JosephKJ/OWOD#81",
)
def test_a_missing_gpu_fails(image: Image) -> None:
    image.install_nvidia(*h100(7))
    image.install("nvidia-smi", nvlink_status([0] * 7), arguments="nvlink --status")
    assert image.failed(EIGHT_H100) == {"gpu_count": "7 found, and 8 wanted"}


@pytest.mark.parametrize("text", ["GPU is lost", "[Unknown Error]", "ERR!", ""])
def test_a_lost_gpu_fails_although_it_is_listed(image: Image, text: str) -> None:
    image.install_nvidia(*h100(_5={"product_name": text, "uuid": text, "fabric/state": text}))
    [(name, detail)] = image.failed(EIGHT_H100).items()
    assert name == "gpu_count"
    assert detail == "7 found, and 8 wanted; GPU 5 (00000000:1C:00.0) does not answer"


def test_without_a_gpu_that_answers_each_detail_says_so(image: Image) -> None:
    image.install_nvidia({"product_name": "GPU is lost", "uuid": "GPU is lost"})
    checks = image.check(ONE_A10G)
    assert not checks["gpu_count"].ok
    assert checks["gpu_model"].detail == "none"
    assert checks["gpu_fabric"].detail == "N/A"


def test_more_gpus_than_wanted_fail(image: Image) -> None:
    image.install_nvidia({}, {})
    assert image.failed(ONE_A10G) == {"gpu_count": "2 found, and 1 wanted"}


def test_another_model_fails(image: Image) -> None:
    image.install_nvidia({"product_name": "Tesla T4", "fb_memory_usage/total": "15360 MiB"})
    assert image.failed(ONE_A10G) == {
        "gpu_model": "GPU 0 (00000000:17:00.0) is Tesla T4; wanted: NVIDIA L4, nvidia a10g",
        "gpu_memory": "GPU 0 (00000000:17:00.0) has 15.0 GiB, and 22 are wanted",
    }


@pytest.mark.parametrize("wanted", ["570", "58", "580.95.0", "580.95.05.1", "580.126.09"])
def test_another_driver_fails(image: Image, wanted: str) -> None:
    image.install_nvidia({})
    detail = f"580.95.05, and {wanted} is wanted"
    assert image.failed({**ONE_A10G, "driver_version": wanted}) == {"gpu_driver": detail}


@pytest.mark.parametrize(
    ("manifest", "failed"),
    [
        ('{"versions": {"driver": "580.95.05"}}', {}),
        (
            '{"versions": {"driver": "580.178.04"}}',
            {"gpu_driver": "580.95.05, and the image was built with 580.178.04"},
        ),
        ('{"versions": {"runner": "2.338.0"}}', {}),
        ('{"versions": {"driver": 580}}', {}),
        ('{"versions": null}', {}),
        ("{", {}),
    ],
)
def test_the_driver_is_the_one_in_the_manifest_of_the_image(
    image: Image, manifest: str, failed: dict[str, str]
) -> None:
    image.install_nvidia({})
    file = image.root / "opt/runner-agent/image.json"
    file.parent.mkdir(parents=True)
    file.write_text(manifest)
    assert image.failed(ONE_A10G) == failed


def test_an_installed_driver_is_not_compared_with_the_manifest(
    image: Image, agent: ModuleType
) -> None:
    image.install_nvidia({})
    file = image.root / "opt/runner-agent/image.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"versions": {"driver": "580.178.04"}}')
    host = agent.Host({"root": str(image.root)})
    parameters = {"accelerator": ONE_A10G, "driver": {}}
    found = agent.check_accelerators(parameters, host, image.clock)
    assert {one.name: one.ok for one in found}["gpu_driver"]


@pytest.mark.case(
    "a GPU has uncorrectable ECC errors, or a page or row that waits for its repair: the machine is not used",
    topic="Accelerators",
    source="NVIDIA: GPU Memory Error Management",
)
@pytest.mark.parametrize(
    ("path", "text", "name", "detail"),
    [
        ("ecc_errors/volatile/dram_uncorrectable", "2", "gpu_errors", "2 uncorrectable ECC errors"),
        ("ecc_errors/volatile/sram_uncorrectable", "1", "gpu_errors", "1 uncorrectable ECC errors"),
        (
            "ecc_errors/volatile/sram_uncorrectable_parity",
            "1",
            "gpu_errors",
            "1 uncorrectable ECC errors",
        ),
        ("ecc_errors/volatile/double_bit/total", "3", "gpu_errors", "3 uncorrectable ECC errors"),
        (
            "retired_pages/pending_retirement",
            "Yes",
            "gpu_repair",
            "a page waits for its retirement",
        ),
        (
            "retired_pages/pending_blacklist",
            "Yes",
            "gpu_repair",
            "a page waits for its retirement",
        ),
        (
            "remapped_rows/remapped_row_pending",
            "Yes",
            "gpu_repair",
            "a row waits for its remapping",
        ),
        (
            "remapped_rows/remapped_row_failure",
            "Yes",
            "gpu_repair",
            "a row could not be remapped",
        ),
        ("gpu_reset_status/reset_required", "Yes", "gpu_repair", "it needs a reset"),
        ("gpu_recovery_action", "Reboot", "gpu_repair", "the driver asks for: Reboot"),
        (
            "clocks_event_reasons/clocks_event_reason_hw_thermal_slowdown",
            "Active",
            "gpu_temperature",
            "hw_thermal_slowdown",
        ),
        (
            "clocks_throttle_reasons/clocks_throttle_reason_hw_slowdown",
            "Active",
            "gpu_temperature",
            "hw_slowdown",
        ),
        ("temperature/gpu_temp", "95 C", "gpu_temperature", "95 C"),
        ("temperature/gpu_temp_tlimit", "-3 C", "gpu_temperature", "-3 C below its limit"),
        ("fabric/health/summary", "Unhealthy", "gpu_fabric", "the fabric is unhealthy"),
        (
            "fabric/status",
            "Unknown Error",
            "gpu_fabric",
            "fabric status Unknown Error",
        ),
    ],
)
def test_a_broken_gpu_fails(image: Image, path: str, text: str, name: str, detail: str) -> None:
    image.install_nvidia(*h100(_3={path: text}))
    image.install("nvidia-smi", nvlink_status([0] * 8), arguments="nvlink --status")
    assert image.failed(EIGHT_H100) == {name: f"GPU 3 (00000000:1A:00.0): {detail}"}


def test_a_hot_gpu_with_a_slowdown_of_its_hardware_is_named_once(image: Image) -> None:
    hot = {
        "temperature/gpu_temp": "97 C",
        "clocks_event_reasons/clocks_event_reason_hw_slowdown": "Active",
    }
    image.install_nvidia(hot)
    assert image.failed(ONE_A10G) == {
        "gpu_temperature": ("GPU 0 (00000000:17:00.0): hw_slowdown; GPU 0 (00000000:17:00.0): 97 C")
    }


@pytest.mark.parametrize(
    ("heat", "threshold", "too_hot"),
    [("89 C", "90 C", False), ("90 C", "90 C", True), ("96 C", "98 C", False), ("95 C", "", True)],
)
def test_a_gpu_is_too_hot_at_its_own_threshold(
    image: Image, heat: str, threshold: str, too_hot: bool
) -> None:
    image.install_nvidia(
        {"temperature/gpu_temp": heat, "temperature/gpu_temp_slow_threshold": threshold}
    )
    detail = f"GPU 0 (00000000:17:00.0): {heat}"
    assert image.failed(ONE_A10G) == ({"gpu_temperature": detail} if too_hot else {})


def test_correctable_errors_do_not_fail(image: Image) -> None:
    image.install_nvidia(
        {
            "ecc_errors/volatile/dram_correctable": "12",
            "ecc_errors/aggregate/dram_uncorrectable": "1",  # repaired at an earlier boot
            "remapped_rows/remapped_row_unc": "1",
        }
    )
    assert image.failed(ONE_A10G) == {}


@pytest.mark.case(
    "Fabric Manager does not run on a machine with NVSwitches: the machine is not used",
    topic="Accelerators",
    source="aws-samples/aws-deep-learning-ami-ubuntu-dcv-desktop#33; NVIDIA/NVSentinel#883",
)
@pytest.mark.parametrize("state", ["Not Started", "In Progress"])
def test_an_absent_fabric_manager_fails_after_a_wait(
    image: Image, agent: ModuleType, state: str
) -> None:
    changed = {"fabric/state": state, "fabric/status": "N/A"}
    image.install_nvidia(*h100(2, _0=changed, _1=changed))
    began = image.clock.now()
    found = image.failed({**EIGHT_H100, "count": 2})
    assert list(found) == ["gpu_fabric"]
    assert found["gpu_fabric"].startswith(
        f"GPU 0 (00000000:17:00.0): fabric state {state}: does Fabric Manager run?"
    )
    assert agent.FABRIC_WAIT <= image.clock.now() - began <= agent.FABRIC_WAIT + agent.FABRIC_POLL


def test_the_check_waits_for_fabric_manager_at_the_boot(image: Image) -> None:
    pending = {"fabric/state": "In Progress", "fabric/status": "N/A"}
    image.install_nvidia(*h100(1, _0=pending))
    sleep = image.clock.sleep

    def registers(seconds: float) -> None:
        sleep(seconds)
        (image.root / "bin" / "nvidia-smi").unlink()
        image.install_nvidia(*h100(1))
        image.install("nvidia-smi", nvlink_status([0]), arguments="nvlink --status")

    image.clock.sleep = registers  # type: ignore[method-assign]
    assert image.failed({**EIGHT_H100, "count": 1}) == {}


@pytest.mark.parametrize(
    ("values", "absent"),
    [
        ({}, "<fabric><state>N/A</state><status>N/A</status></fabric>"),
        ({"fabric/state": "Completed", "fabric/status": "N/A"}, "<status>N/A</status>"),
    ],
)
def test_a_driver_that_shows_no_fabric_or_no_status_of_it_passes(
    image: Image, values: dict[str, str], absent: str
) -> None:
    """Drivers of earlier branches have fewer elements."""
    shown = nvidia_gpu(0, values)
    assert shown.count(absent) == 1
    image.install("nvidia-smi", nvidia_log([shown.replace(absent, "")]), arguments="-q -x")
    image.install("nvidia-smi", nvlink_status([0]), arguments="nvlink --status")
    assert image.failed(ONE_A10G) == {}


@pytest.mark.parametrize(
    ("links", "detail"),
    [
        (nvlink_status([0, 1]), "GPU 1: 1 NVLinks are inactive"),
        (
            "GPU 0: NVIDIA H100\nGPU 1: NVIDIA H100\n\t Link 0: 26.562 GB/s\n",
            "GPU 0: all NVLinks are inactive",
        ),
        (
            "No devices were found\n",
            "nvidia-smi shows the NVLinks of 0 GPUs: No devices were found",
        ),
    ],
)
def test_an_inactive_nvlink_fails(image: Image, links: str, detail: str) -> None:
    image.install_nvidia(*h100(2))
    image.install("nvidia-smi", links, arguments="nvlink --status")
    assert image.failed({**EIGHT_H100, "count": 2}) == {"gpu_nvlink": detail}


def test_mig_devices_count_in_place_of_their_gpu(image: Image) -> None:
    text = nvidia_gpu(
        0,
        {
            **gpus.BEHIND_NVSWITCH,
            "mig_mode/current_mig": "Enabled",
            "mig_devices": "",
            "fabric/state": "In Progress",
        },
    )
    device = "<mig_device><fb_memory_usage><total>9984 MiB</total></fb_memory_usage></mig_device>"
    text = text.replace("<mig_devices />", f"<mig_devices>{device * 2}</mig_devices>")
    image.install("nvidia-smi", nvidia_log([text]), arguments="-q -x")
    assert image.failed({**EIGHT_H100, "count": 2, "memory_gb": 9}) == {}
    assert image.failed({**EIGHT_H100, "count": 2, "memory_gb": 10}) == {
        "gpu_memory": "GPU 0 (00000000:17:00.0) MIG 0 has 9.8 GiB, and 10 are wanted; "
        "GPU 0 (00000000:17:00.0) MIG 1 has 9.8 GiB, and 10 are wanted"
    }


@pytest.mark.case(
    "the kernel logged an XID of the hardware: the machine is not used; those of programs are ignored",
    topic="Accelerators",
    source="NVIDIA/k8s-device-plugin: internal/rm/health.go",
)
@pytest.mark.parametrize(
    ("line", "detail"),
    [
        (
            "4,812,5140900,-;NVRM: Xid (PCI:0000:cb:00): 79, pid='<unknown>', GPU has fallen off the bus.",
            "XID 79 on 0000:cb:00: pid='<unknown>', GPU has fallen off the bus.",
        ),
        (
            "4,813,5140901,-;NVRM: The NVIDIA GPU 0000:b3:00.0\\x0aNVRM: fallen off the bus and is not "
            "responding to commands.",
            "a GPU has fallen off the bus",
        ),
        (
            "4,814,5140902,-;NVRM: Xid (PCI:0000:cb:00): 13, pid=1, name=python3, Graphics Exception",
            "",
        ),
        (
            "3,816,5140904,-;nvidia-nvswitch0: SXid (PCI:0000:59:00.0): 23001, Fatal, Link 12 Always Fatal",
            "fatal SXID 23001 on NVSwitch 0000:59:00.0: Link 12 Always Fatal",
        ),
        (
            "4,817,5140905,-;nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress",
            "",
        ),
        ("6,815,5140903,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module", ""),
    ],
)
def test_an_xid_of_the_hardware_fails(image: Image, line: str, detail: str) -> None:
    image.install_nvidia({})
    (image.root / "dev" / "kmsg").write_text(f"6,1,0,-;Linux version 6.8\n{line}\n{line}\n")
    assert image.failed(ONE_A10G) == ({"gpu_xid": detail} if detail else {})


def test_the_text_of_an_xid_is_cut_after_80_characters(image: Image) -> None:
    image.install_nvidia({})
    (image.root / "dev/kmsg").write_text("NVRM: Xid (PCI:0000:cb:00): 79, " + "x" * 100 + "\n")
    assert image.failed(ONE_A10G) == {"gpu_xid": "XID 79 on 0000:cb:00: " + "x" * 80}


def test_healthy_amd_gpus_pass(image: Image) -> None:
    pair = [AmdGpu(), AmdGpu()]
    image.install("rocminfo", gpus.rocminfo(pair))
    image.install("amd-smi", gpus.amd_smi_ecc(pair), arguments="metric --ecc --json")
    checks = image.check({**TWO_MI300X, "driver_version": "6.12"})
    assert [check.ok for check in checks.values()] == [True] * len(checks)
    assert checks["gpu_driver"].detail == "6.12.12"
    assert checks["gpu_memory"].detail == "at least 192.0 GiB"
    assert checks["gpu_errors"].detail == "no uncorrectable error"


@pytest.mark.case(
    "rocminfo shows too few GPUs, another architecture or too little memory: the machine is not used",
    topic="Accelerators",
    source="ROCm/rocm-examples#187",
)
@pytest.mark.parametrize(
    ("shown", "name", "detail"),
    [
        ([AmdGpu()], "gpu_count", "1 found, and 2 wanted"),
        (
            [AmdGpu(), AmdGpu(architecture="gfx90a")],
            "gpu_model",
            "GPU 1 (node 2) is gfx90a; wanted: gfx942",
        ),
        (
            [AmdGpu(memory_kb=100655104), AmdGpu()],
            "gpu_memory",
            "GPU 0 (node 1) has 96.0 GiB, and 190 are wanted",
        ),
    ],
)
def test_other_amd_gpus_fail(image: Image, shown: list[AmdGpu], name: str, detail: str) -> None:
    image.install("rocminfo", gpus.rocminfo(shown))
    assert image.failed(TWO_MI300X) == {name: detail}


def test_only_the_global_memory_of_an_amd_gpu_counts(image: Image) -> None:
    text = gpus.rocminfo([AmdGpu()] * 2).replace("64(0x40) KB", "999999999(0x3b9ac9ff) KB")
    image.install("rocminfo", text)
    assert image.check(TWO_MI300X)["gpu_memory"].detail == "at least 192.0 GiB"


def test_a_rocminfo_that_cannot_open_the_devices_fails(image: Image) -> None:
    text = "ROCk module is loaded\nUnable to open /dev/kfd read-write: Permission denied\n"
    image.install("rocminfo", text, status=1)
    detail = "rocminfo exited with 1: Unable to open /dev/kfd read-write: Permission denied"
    assert image.failed(TWO_MI300X) == {"gpu_query": detail}
    (image.root / "bin" / "rocminfo").unlink()
    image.install("rocminfo", "ROCk module is NOT loaded, possibly no GPU devices\n")
    assert list(image.failed(TWO_MI300X)) == ["gpu_query"]
    (image.root / "bin" / "rocminfo").unlink()
    image.install("rocminfo", gpus.rocminfo([AmdGpu()] * 2) + "hsa_init failed\n", status=1)
    assert image.failed(TWO_MI300X) == {"gpu_query": "rocminfo exited with 1: hsa_init failed"}


def test_a_driver_without_a_version_fails_only_if_one_is_wanted(image: Image) -> None:
    image.install("rocminfo", gpus.rocminfo([AmdGpu()] * 2, module=""))
    assert image.failed(TWO_MI300X) == {}
    wanted = {**TWO_MI300X, "driver_version": "6.12"}
    assert image.failed(wanted) == {"gpu_driver": "unknown, and 6.12 is wanted"}


@pytest.mark.parametrize(
    ("answer", "failed"),
    [
        (
            gpus.amd_smi_ecc([AmdGpu(), AmdGpu(uncorrectable=4)]),
            "GPU 1: 4 uncorrectable ECC errors",
        ),
        (
            '[{"gpu": 0, "ecc": {"total_uncorrectable_count": 1}}]',
            "GPU 0: 1 uncorrectable ECC errors",
        ),
        (gpus.amd_smi_ecc([AmdGpu(uncorrectable="N/A")]), ""),
        ("amd-smi metric: error: unrecognized arguments: --ecc\n", ""),
    ],
)
def test_ecc_errors_of_amd_gpus_fail(image: Image, answer: str, failed: str) -> None:
    image.install("rocminfo", gpus.rocminfo([AmdGpu()] * 2))
    image.install("amd-smi", answer)
    assert image.failed(TWO_MI300X) == ({"gpu_errors": failed} if failed else {})


def write_topology(root: Path, nodes: list[dict[str, int]]) -> None:
    """Write the kernel's topology: properties of each node, and the banks of its memory by heap type."""
    for index, values in enumerate(nodes):
        node = root / "sys/class/kfd/kfd/topology/nodes" / str(index)
        node.mkdir(parents=True)
        (node / "properties").write_text("".join(f"{k} {v}\n" for k, v in values.items()))
        # Type 0 is the system's memory.
        for number, heap in enumerate([0, 2] if values["gfx_target_version"] else [0]):
            bank = node / "mem_banks" / str(number)
            bank.mkdir(parents=True)
            text = f"heap_type {heap}\nsize_in_bytes {192 * 2**30}\nflags 0\n"
            (bank / "properties").write_text(text)


@pytest.mark.case(
    "a pod's image has no ROCm: the kernel's topology shows the GPUs of the pod",
    topic="Accelerators",
    source="Linux: drivers/gpu/drm/amd/amdkfd/kfd_topology.c",
)
def test_without_rocminfo_the_kernel_is_asked(image: Image) -> None:
    processor, gpu = (
        {"simd_count": 0, "gfx_target_version": 0},
        {"simd_count": 1216, "gfx_target_version": 90402},
    )
    write_topology(image.root, [processor, gpu, gpu])
    checks = image.check(TWO_MI300X)
    assert [check.ok for check in checks.values()] == [True] * len(checks)
    assert checks["gpu_query"].detail == "from the kernel: rocminfo is not installed"
    assert checks["gpu_driver"].detail == "unknown"
    assert checks["gpu_memory"].detail == "at least 192.0 GiB", "without the system's memory"
    # A GPU of another container: its file cannot be read.
    (image.root / "sys/class/kfd/kfd/topology/nodes/2/properties").unlink()
    assert image.failed(TWO_MI300X) == {"gpu_count": "1 found, and 2 wanted"}
    other = image.root / "sys/class/kfd/kfd/topology/nodes/1/properties"
    other.write_text("gfx_target_version 90010\n")
    assert image.failed({**TWO_MI300X, "count": 1}) == {
        "gpu_model": "GPU 0 (node 1) is gfx90a; wanted: gfx942"
    }


@pytest.mark.case(
    "the group of AMD's device has another number on the node than in the image: no job could use the GPU",
    topic="Accelerators",
    source="Linux: drivers/gpu/drm/amd/amdkfd/kfd_topology.c",
)
@pytest.mark.parametrize("closed", ["dev/kfd", "dev/dri/renderD128"])
def test_a_device_that_the_user_of_the_pod_may_not_open_fails(
    agent: ModuleType, open_folder: Path, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    image = Image(agent, open_folder, monkeypatch)
    gpu = {"simd_count": 1216, "gfx_target_version": 90402}
    write_topology(open_folder, [gpu, gpu])
    (open_folder / "dev/dri").mkdir()
    for name in ("dev/kfd", "dev/dri/renderD128", "dev/dri/card0"):
        (open_folder / name).touch()
        (open_folder / name).chmod(0o000 if name in (closed, "dev/dri/card0") else 0o666)
    device = open_folder / closed
    said = as_another_user(lambda: image.failed(TWO_MI300X)["gpu_query"])
    assert said.endswith(f" may not open {device}: its group is {device.stat().st_gid}")
    device.chmod(0o666)
    assert as_another_user(lambda: str(image.failed(TWO_MI300X))) == "{}"


def as_another_user(answer: Callable[[], str]) -> str:
    """Return a text that a child of this process finds, which root starts as the user `nobody`."""
    ours, theirs = os.pipe()
    if (child := os.fork()) == 0:
        status = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            os.write(theirs, answer().encode())
            status = 0
        finally:
            os._exit(status)
    os.close(theirs)
    with os.fdopen(ours, encoding="utf-8") as file:
        said = file.read()
    assert os.waitpid(child, 0)[1] == 0
    return said


def test_a_machine_without_amd_gpus_fails(image: Image) -> None:
    detail = "the kernel shows no AMD GPU: No such file or directory"
    assert image.failed(TWO_MI300X) == {"gpu_query": detail}


def test_the_version_of_the_kernel_module_is_compared_without_rocminfo(image: Image) -> None:
    write_topology(image.root, [{"gfx_target_version": 90402}])
    module = image.root / "sys/module/amdgpu"
    module.mkdir(parents=True)
    (module / "version").write_text("6.12.12\n")
    wanted = {"vendor": "amd", "count": 1, "driver_version": "6.10"}
    assert image.failed(wanted) == {"gpu_driver": "6.12.12, and 6.10 is wanted"}


def test_rocminfo_is_found_beside_the_path(image: Image) -> None:
    image.install("rocminfo", gpus.rocminfo([AmdGpu()] * 2))
    (image.root / "opt/rocm").mkdir(parents=True)
    (image.root / "bin").rename(image.root / "opt/rocm/bin")
    assert image.failed(TWO_MI300X) == {}


def test_an_unknown_vendor_fails(image: Image) -> None:
    assert image.failed({"vendor": "intel", "count": 1}) == {
        "gpu_query": "this agent does not know the vendor"
    }
