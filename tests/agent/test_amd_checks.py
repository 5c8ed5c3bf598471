"""AMD's temperatures, bad pages and kernel log: what fails a machine's health checks, and what does not."""

from pathlib import Path
from types import ModuleType

import pytest

from autoscaler.agent.checks import amd as rocm
from lab.machines import gpus
from lab.machines.gpus import AmdGpu
from tests.agent.test_gpu_checks import TWO_MI300X, Image


@pytest.fixture
def image(agent: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Image:
    return Image(agent, tmp_path, monkeypatch)


def install_amd(image: Image, *shown: AmdGpu) -> None:
    """Install rocminfo and amd-smi, which show these GPUs."""
    image.install("rocminfo", gpus.rocminfo(shown))
    image.install("amd-smi", gpus.amd_smi_ecc(shown), arguments="metric --ecc --json")
    image.install("amd-smi", gpus.amd_smi_heat(shown), arguments="metric --temperature --json")
    image.install("amd-smi", gpus.amd_smi_limit(shown), arguments="static --limit --json")
    image.install("amd-smi", gpus.amd_smi_pages(shown), arguments="bad-pages --json")


def test_healthy_amd_gpus_pass_every_check(image: Image) -> None:
    install_amd(image, AmdGpu(), AmdGpu(retired=3))
    (image.root / "dev" / "kmsg").write_text("6,1,0,-;Linux version 6.8\n")
    checks = image.check(TWO_MI300X)
    assert [check.ok for check in checks.values()] == [True] * len(checks)
    assert checks["gpu_temperature"].detail == "below the slowdown temperatures"
    assert checks["gpu_repair"].detail == "none is pending, 3 pages are retired"
    assert checks["gpu_kernel_log"].detail == "none"


@pytest.mark.parametrize(
    ("heat", "limit", "too_hot"),
    [
        (99, 100, False),
        (100, 100, True),
        (96, 110, False),
        (94, "N/A", False),
        (95, "N/A", True),
        (41, 0, False),
        ("N/A", 100, False),
    ],
)
def test_an_amd_gpu_is_too_hot_at_its_slowdown_temperature(
    image: Image, heat: int | str, limit: int | str, too_hot: bool
) -> None:
    install_amd(image, AmdGpu(), AmdGpu(hotspot=heat, hotspot_limit=limit))
    failed = {"gpu_temperature": f"GPU 1: {heat} C (hotspot)"} if too_hot else {}
    assert image.failed(TWO_MI300X) == failed


@pytest.mark.parametrize("name", ["vram", "mem"])
def test_the_memory_of_an_amd_gpu_has_a_limit_of_its_own(agent: ModuleType, name: str) -> None:
    heat = '[{"gpu": 0, "temperature": {"edge": 30, "hotspot": "N/A", "mem": 97}}]'
    limit = '[{"gpu": 0, "limit": {"slowdown_%s_temperature": {"value": %d, "unit": "C"}}}]'
    for degrees, ok in ((98, True), (97, False)):
        answers = [agent.Output(0, text) for text in (heat, limit % (name, degrees))]
        detail = "below the slowdown temperatures" if ok else "GPU 0: 97 C (mem)"
        assert tuple(agent.check_amd_heat(*answers)) == ("gpu_temperature", ok, detail)


@pytest.mark.parametrize(
    ("gpu", "problem"),
    [
        (AmdGpu(pending=1), "1 bad pages wait for their retirement"),
        (AmdGpu(pending=2, retired=5), "2 bad pages wait for their retirement"),
        (AmdGpu(unreservable=2), "2 bad pages cannot be retired"),
    ],
)
def test_bad_pages_of_an_amd_gpu_that_are_in_use_fail(
    image: Image, gpu: AmdGpu, problem: str
) -> None:
    install_amd(image, AmdGpu(), gpu)
    assert image.failed(TWO_MI300X) == {"gpu_repair": f"GPU 1: {problem}"}


@pytest.mark.parametrize(
    "answer",
    [
        "amd-smi: error: unrecognized arguments: --limit\n",
        '[{"gpu": 0, "temperature": "N/A", "pending": "N/A", "un_res": "N/A"}]',
        '{"gpu_data": 7}',
        "[" * 100_000,
    ],
)
def test_what_amd_smi_does_not_know_fails_nothing(image: Image, answer: str) -> None:
    """A virtual machine shows neither pages nor limits."""
    image.install("rocminfo", gpus.rocminfo([AmdGpu()] * 2))
    image.install("amd-smi", answer)
    assert image.failed(TWO_MI300X) == {}
    assert image.check(TWO_MI300X)["gpu_repair"].ok


@pytest.mark.parametrize(
    ("line", "detail"),
    [
        (
            "3,812,5140900,-;amdgpu 0000:c3:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=7",
            "0000:c3:00.0: ring gfx_0.0.0 timeout, signaled seq=7",
        ),
        (
            "3,812,5140900,-;[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma0 timeout, signaled seq=1",
            "ring sdma0 timeout, signaled seq=1",
        ),
        ("3,1,1,-;amdgpu 0000:c3:00.0: amdgpu: ring comp_1.0.0 timeout, but soft recovered", ""),
        (
            "6,1,1,-;amdgpu 0000:c3:00.0: amdgpu: GPU reset(1) failed",
            "0000:c3:00.0: GPU reset(1) failed",
        ),
        ("6,1,1,-;amdgpu 0000:c3:00.0: amdgpu: GPU reset(1) succeeded!", ""),
        (
            "3,1,1,-;amdgpu 0000:c3:00.0: amdgpu: device lost from bus!",
            "0000:c3:00.0: device lost from bus!",
        ),
        (
            "6,1,1,-;amdgpu 0000:c3:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block",
            "0000:c3:00.0: 2 uncorrectable hardware errors detected in umc block",
        ),
        (
            "6,1,1,-;amdgpu 0000:c3:00.0: amdgpu: socket: 0, die: 0, 1 new uncorrectable hardware errors "
            "detected in gfx block",
            "0000:c3:00.0: 1 new uncorrectable hardware errors detected in gfx block",
        ),
        ("6,1,1,-;amdgpu 0000:c3:00.0: no uncorrectable hardware errors detected in umc block", ""),
        ("6,1,1,-;amdgpu 0000:c3:00.0: 0 uncorrectable hardware errors detected in umc block", ""),
        ("6,1,1,-;amdgpu 0000:c3:00.0: 4 correctable hardware errors detected in umc block", ""),
        ("6,1,1,-;i915 0000:00:02.0: ring gfx timeout, signaled seq=1", ""),
    ],
)
def test_an_error_of_amdgpu_in_the_kernels_log_fails(image: Image, line: str, detail: str) -> None:
    install_amd(image, AmdGpu(), AmdGpu())
    (image.root / "dev" / "kmsg").write_text(f"6,1,0,-;Linux version 6.8\n{line}\n{line}\n")
    assert image.failed(TWO_MI300X) == ({"gpu_kernel_log": detail} if detail else {})


def test_a_version_with_other_characters_is_read(agent: ModuleType, tmp_path: Path) -> None:
    file = Path(f"{tmp_path}{rocm.DRIVER}")
    file.parent.mkdir(parents=True)
    file.write_bytes(b"6.14.14\xff\n")
    assert agent.module_version(str(tmp_path)) == "6.14.14\ufffd"
