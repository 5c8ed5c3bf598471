"""The script that checks the accelerators in a job's own pod."""

import subprocess
from pathlib import Path

import pytest

from autoscaler.config.settings.sku import Accelerator
from autoscaler.providers.kubernetes.manifest.accelerator_script import check_command
from tests.providers.kubernetes_pods import wanted

SHELLS = ("dash", "bash")
"""The shells of Debian's and of Red Hat's images."""

A10G = "580.65.06, 23028, 0, NVIDIA A10G"
ANY = wanted("nvidia")
PROPERTIES = "cpu_cores_count 0\ngfx_target_version {}\n"


def run(
    root: Path, count: int, check: Accelerator, shell: str = "dash"
) -> subprocess.CompletedProcess[str]:
    """Run the check with the programs and files below `root`, as in a container."""
    _, option, script, *arguments = check_command(count, check)
    for path in ("/dev/", "/sys/", "/proc/"):
        script = script.replace(path, f"{root}{path}")
    script = script.replace(f"{root}/dev/null", "/dev/null")
    (root / "dev").mkdir(exist_ok=True)
    env = {"PATH": f"{root}/bin:/usr/bin:/bin"}
    return subprocess.run(
        [shell, option, script, *arguments],
        env=env,
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def nvidia(root: Path, gpus: list[str], listed: str | None = None, status: int = 0) -> None:
    """Put an nvidia-smi that answers with these GPUs below `root`."""
    lines = listed or "".join(
        f"GPU {number}: {one.rpartition(', ')[2]} (UUID: GPU-{number})\n"
        for number, one in enumerate(gpus)
    )
    (root / "bin").mkdir()
    (root / "listed").write_text(lines)
    (root / "queried").write_text("".join(f"{one}\n" for one in gpus))
    program = root / "bin" / "nvidia-smi"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -L ] && cat {root}/listed || cat {root}/queried\nexit {status}\n'
    )
    program.chmod(0o755)


def amd(root: Path, targets: list[int], memory: int = 196608, version: str = "6.16.13") -> None:
    """Write the kernel's files about GPUs of these `gfx_target_version`s, with MiB of memory, below `root`."""
    (root / "dev" / "dri").mkdir(parents=True)
    (root / "dev" / "kfd").touch()
    (root / "sys" / "module" / "amdgpu").mkdir(parents=True)
    (root / "sys" / "module" / "amdgpu" / "version").write_text(f"{version}\n")
    for number, target in enumerate([0, *targets]):
        folder = root / "sys" / "class" / "kfd" / "kfd" / "topology" / "nodes" / str(number)
        (folder / "mem_banks" / "0").mkdir(parents=True)
        (folder / "properties").write_text(PROPERTIES.format(target))
        bank = f"heap_type 1\nsize_in_bytes {memory * 2**20}\nflags 0\n"
        (folder / "mem_banks" / "0" / "properties").write_text(bank)
        if target:
            (root / "dev" / "dri" / f"renderD{127 + number}").touch()
    # That of another container: the kernel lets nobody read it.
    other = root / "sys" / "class" / "kfd" / "kfd" / "topology" / "nodes" / "9"
    other.mkdir()
    (other / "properties").write_text("")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "check",
    [
        ANY,
        wanted("nvidia", ("NVIDIA T4", "nvidia a10g"), 22, "580"),
        wanted("nvidia", driver_version="580.65.06"),
    ],
)
def test_nvidias_gpus_pass(tmp_path: Path, check: Accelerator, shell: str) -> None:
    nvidia(tmp_path, [A10G, A10G])
    done = run(tmp_path, 2, check, shell)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("gpus", "check", "words"),
    [
        ([A10G], ANY, "1 found, and 2 wanted"),
        ([A10G] * 3, ANY, "3 found, and 2 wanted"),
        ([A10G, A10G.replace(" 0,", " 4,")], ANY, "GPU 1 has 4 uncorrectable ECC errors"),
        (
            [A10G, "[GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]"],
            ANY,
            "GPU 1 does not answer",
        ),
        ([A10G, A10G], wanted("nvidia", ("NVIDIA T4",)), "GPU 0 is NVIDIA A10G"),
        (
            [A10G, A10G],
            wanted("nvidia", memory_gb=24),
            "23028 MiB, and 24 GiB are wanted",
        ),
        (
            [A10G, A10G],
            wanted("nvidia", driver_version="58"),
            "driver 580.65.06, and 58 is",
        ),
    ],
)
def test_other_gpus_of_nvidia_fail(
    tmp_path: Path, gpus: list[str], check: Accelerator, words: str, shell: str
) -> None:
    nvidia(tmp_path, gpus)
    done = run(tmp_path, 2, check, shell)
    assert done.returncode == 1
    assert words in done.stderr
    # Kubelet shows it in the pod's status.
    assert words in (tmp_path / "dev" / "termination-log").read_text()


def test_a_gpu_that_is_listed_and_not_answered_for_fails(tmp_path: Path) -> None:
    nvidia(tmp_path, [A10G], "GPU 0: A (UUID: GPU-0)\nGPU 1: A (UUID: GPU-1)\n")
    assert "1 of 2 GPUs answer" in run(tmp_path, 2, ANY).stderr


def test_a_driver_that_does_not_answer_fails(tmp_path: Path) -> None:
    nvidia(tmp_path, [], "Failed to initialize NVML: Driver/library version mismatch\n", 18)
    assert "exited with 18: Failed to initialize NVML" in run(tmp_path, 1, ANY).stderr


def test_a_corrupted_inforom_fails_no_gpu(tmp_path: Path) -> None:
    nvidia(tmp_path, [A10G], status=14)
    assert run(tmp_path, 1, ANY).returncode == 0


def test_an_image_without_nvidia_smi_fails(tmp_path: Path) -> None:
    done = run(tmp_path, 1, ANY)
    assert done.returncode == 1
    assert "exited with 127" in done.stderr


def test_mig_devices_count_instead_of_their_gpu(tmp_path: Path) -> None:
    listed = (
        "GPU 0: NVIDIA H100 (UUID: GPU-0)\n"
        "  MIG 1g.10gb     Device  0: (UUID: MIG-0)\n"
        "  MIG 1g.10gb     Device  1: (UUID: MIG-1)\n"
    )
    nvidia(tmp_path, ["580.65.06, [Insufficient Permissions], [N/A], NVIDIA H100"], listed)
    check = wanted("nvidia", ("NVIDIA H100",), 9)
    assert run(tmp_path, 2, check).returncode == 0
    assert "2 found, and 1 wanted" in run(tmp_path, 1, check).stderr


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "check",
    [wanted("amd"), wanted("amd", ("gfx90a", "GFX942"), 192, "6.16")],
)
def test_amds_gpus_pass(tmp_path: Path, check: Accelerator, shell: str) -> None:
    amd(tmp_path, [90402, 90402])
    done = run(tmp_path, 2, check, shell)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("targets", "check", "words"),
    [
        ([90402], wanted("amd"), "1 found, and 2 wanted"),
        ([90402, 90010], wanted("amd", ("gfx942",)), "GPU 1 is gfx90a"),
        ([90402] * 2, wanted("amd", memory_gb=193), "and 193 GiB are wanted"),
        ([90402] * 2, wanted("amd", driver_version="6.1"), "driver 6.16.13, and 6.1 is"),
    ],
)
def test_other_gpus_of_amd_fail(
    tmp_path: Path, targets: list[int], check: Accelerator, words: str, shell: str
) -> None:
    amd(tmp_path, targets)
    done = run(tmp_path, 2, check, shell)
    assert done.returncode == 1
    assert words in done.stderr


@pytest.mark.parametrize("missing", ["kfd", "dri/renderD128"])
def test_a_device_that_the_job_may_not_open_fails(tmp_path: Path, missing: str) -> None:
    amd(tmp_path, [90402])
    (tmp_path / "dev" / missing).unlink()
    done = run(tmp_path, 1, wanted("amd"))
    assert done.returncode == 1
    assert "may not open" in done.stderr


def test_properties_that_cannot_be_read_are_those_of_others(tmp_path: Path) -> None:
    """The kernel answers EPERM, also to root. Here a folder cannot be read."""
    amd(tmp_path, [90402, 90402])
    nodes = tmp_path / "sys" / "class" / "kfd" / "kfd" / "topology" / "nodes"
    (nodes / "2" / "properties").unlink()
    (nodes / "2" / "properties").mkdir()
    assert run(tmp_path, 1, wanted("amd")).returncode == 0


def test_a_model_is_data_and_no_command(tmp_path: Path) -> None:
    nvidia(tmp_path, [A10G])
    check = ANY.model_copy(update={"models": ("`touch x` $(touch x) '",)})
    done = run(tmp_path, 1, check)
    assert done.returncode == 1
    assert not (tmp_path / "x").exists()
