"""Planted failures of AMD's driver and GPUs, through the whole agent: each is named, and none gets a job.

The programs of the image are stand-ins, each a real process. What amd-smi prints is written from its source.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lab.machines import gpus
from lab.machines.gpus import AmdGpu
from tests.agent.driver_machine import define_release
from tests.agent.test_agent_timers import Stage
from tests.agent.test_amd_driver import PLAN, asics
from tests.agent.test_planted_driver_failures import ShortClock

KERNEL = os.uname().release
KEY = b"the key of AMD's repositories\n"
PAIR = [AmdGpu(), AmdGpu()]


class Planted:
    """A stock Ubuntu with two MI300X, on which everything works until a test changes it."""

    def __init__(self, agent: ModuleType, folder: Path) -> None:
        self.root = folder
        self.stage = Stage(agent, folder)
        self.clock = ShortClock()
        self.stage.agent = agent.Agent(
            self.stage.host, self.clock, self.stage.controller, lambda _: self.stage.runner
        )
        self.module = folder / "sys/module/amdgpu/version"
        self.header = folder / f"lib/modules/{KERNEL}/build/include/generated/utsrelease.h"
        self.key = folder / agent.AMD_KEYRING.lstrip("/")
        self.write("etc/os-release", "ID=ubuntu\nVERSION_CODENAME=noble\n")
        self.write("dev/kmsg", "6,1,0,-;Linux version 6.8\n")
        self.write(str(self.header.relative_to(folder)), define_release(KERNEL))
        self.write(str(self.key.relative_to(folder)), KEY.decode())
        for number in (1, 2):
            for name, value in (("vendor", 0x1002), ("device", 0x74A1), ("class", 0x120000)):
                self.write(f"sys/bus/pci/devices/0000:0{number}:00.0/{name}", f"0x{value:04x}\n")
        for name in ("dpkg", "gcc", "make", "udevadm"):
            self.program(name, "")
        self.program("dpkg-query", "printf 1:6.16.13.30300300-2327507.24.04")
        version = folder / "opt/rocm/.info/version"
        version.parent.mkdir(parents=True)
        self.program("apt-get", f"case $* in *rocm-hip-runtime*) echo 7.2.4-93 > {version} ;; esac")
        load = f"mkdir -p {self.module.parent}; echo 6.16.13 > {self.module}"
        self.program("modprobe", f'case "$1" in -r) rm -f {self.module} ;; *) {load} ;; esac')
        self.show(PAIR)
        sha256 = hashlib.sha256(KEY).hexdigest()
        url = "http://127.0.0.1:1/rocm/rocm.gpg.key"
        self.plan: dict[str, Any] = {
            **PLAN,
            "newest_kernel": ".".join(KERNEL.split(".")[:2]),
            "key": {"url": url, "sha256": sha256},
        }

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def program(self, name: str, text: str, folder: str = "bin") -> None:
        self.write(f"{folder}/{name}", f"#!/bin/sh\n{text}\n")
        (self.root / folder / name).chmod(0o755)

    def show(self, shown: list[AmdGpu]) -> None:
        """Let rocminfo and amd-smi show these GPUs."""
        answers = {
            "static --asic --json": asics(*(gpu.architecture for gpu in shown)),
            "metric --ecc --json": gpus.amd_smi_ecc(shown),
            "metric --temperature --json": gpus.amd_smi_heat(shown),
            "static --limit --json": gpus.amd_smi_limit(shown),
            "bad-pages --json": gpus.amd_smi_pages(shown),
        }
        cases = []
        for number, (words, text) in enumerate(answers.items()):
            self.write(f"answers/{number}", text)
            cases.append(f'"{words}") cat {self.root}/answers/{number} ;;')
        self.program("amd-smi", f'case "$*" in {" ".join(cases)} esac', "opt/rocm/bin")
        self.write("answers/rocminfo", gpus.rocminfo(shown))
        self.program("rocminfo", f"cat {self.root}/answers/rocminfo", "opt/rocm/bin")

    def live(self) -> dict[str, str]:
        """Run the agent; return the details of the failed checks, by name."""
        self.stage.controller.health_checks = {
            **({"driver": self.plan} if self.plan else {}),
            "accelerator": {"vendor": "amd", "count": 2, "models": ["gfx942"], "memory_gb": 190},
        }
        self.stage.assignment()
        self.stage.runner.script = {1: {"exited": 0}}
        reason = self.stage.live()
        checks = self.stage.controller.bodies["health-checks"]["checks"]
        failed = {one["name"]: one["detail"] for one in checks if not one["ok"]}
        assert not failed or reason == f"the health checks failed: {', '.join(failed)}"
        return failed

    @property
    def assigned(self) -> bool:
        asked = {step for _, step in self.stage.controller.asked}
        return bool(asked & {"poll", "acknowledge"}) or self.stage.runner.started_with is not None


@pytest.fixture
def planted(agent: ModuleType, open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Planted:
    made = Planted(agent, open_folder)
    monkeypatch.setenv("PATH", f"{open_folder}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return made


@pytest.mark.systems
def test_without_a_failure_the_machine_gets_its_assignment(planted: Planted) -> None:
    assert planted.live() == {}
    assert planted.assigned


def test_an_image_with_the_driver_needs_no_installation(planted: Planted) -> None:
    planted.plan = {}
    assert planted.live() == {}
    assert planted.assigned
    assert not planted.module.exists()


def test_a_gpu_that_an_image_with_the_driver_lacks_is_counted(planted: Planted) -> None:
    planted.plan = {}
    planted.show(PAIR[:1])
    assert planted.live() == {"gpu_count": "1 found, and 2 wanted"}
    assert not planted.assigned


def wrong_headers(planted: Planted) -> None:
    planted.header.write_text(define_release("5.10.0-1-cloud"))


def half_installed_package(planted: Planted) -> None:
    planted.program("dpkg", "echo dpkg: error processing package amdgpu-dkms; exit 1")


def apt_lock(planted: Planted) -> None:
    lock = "/var/lib/dpkg/lock-frontend. It is held by process 812 (apt-get)"
    planted.program("apt-get", f"echo 'E: Could not get lock {lock}'; exit 100")


def key_lost(planted: Planted) -> None:
    planted.key.unlink()


def module_not_loadable(planted: Planted) -> None:
    planted.program("modprobe", "echo modprobe: ERROR: Exec format error; exit 1")


def kernels_own_module(planted: Planted) -> None:
    planted.program("modprobe", "")


def rocminfo_error_with_status_0(planted: Planted) -> None:
    planted.program("rocminfo", "echo hsa api call failure: HSA_STATUS_ERROR", "opt/rocm/bin")


def amd_smi_without_answer(planted: Planted) -> None:
    planted.program("amd-smi", "echo AttributeError: amdsmi", "opt/rocm/bin")


def one_gpu_missing(planted: Planted) -> None:
    planted.show(PAIR[:1])


def installer_hangs(planted: Planted) -> None:
    planted.program("apt-get", "exec sleep 600")
    planted.clock.patience = 0.2


def with_second(**changes: Any) -> Callable[[Planted], None]:
    """Return what changes the second GPU in this way."""

    def plant(planted: Planted) -> None:
        planted.show([AmdGpu(), replace(AmdGpu(), **changes)])

    plant.__name__ = "_".join(changes)
    return plant


def kernel_logged(message: str, name: str) -> Callable[[Planted], None]:
    def plant(planted: Planted) -> None:
        planted.write("dev/kmsg", f"3,1,1,-;amdgpu 0000:02:00.0: amdgpu: {message}\n")

    plant.__name__ = name
    return plant


RAS = "1 new uncorrectable hardware errors detected in umc block"


@pytest.mark.systems
@pytest.mark.parametrize(
    ("plant", "name", "detail"),
    [
        (wrong_headers, "driver_headers", "headers of 5.10.0-1-cloud in "),
        (half_installed_package, "driver_packages", "dpkg: error processing package amdgpu-dkms"),
        (apt_lock, "driver_packages", "E: Could not get lock /var/lib/dpkg/lock-frontend"),
        (key_lost, "driver_download", "Connection refused"),
        (module_not_loadable, "driver_module", "Exec format error"),
        (kernels_own_module, "driver_module", "the kernel has its own amdgpu"),
        (rocminfo_error_with_status_0, "driver_query", "rocminfo exited with 0: hsa api call"),
        (amd_smi_without_answer, "driver_query", "amd-smi shows no GPU"),
        (one_gpu_missing, "driver_query", "rocminfo shows 1 GPUs, and the machine has 2"),
        (installer_hangs, "driver_packages", "apt-get did not end within"),
        (with_second(architecture="gfx90a"), "gpu_model", "GPU 1 (node 2) is gfx90a"),
        (with_second(memory_kb=100655104), "gpu_memory", "GPU 1 (node 2) has 96.0 GiB"),
        (with_second(uncorrectable=2), "gpu_errors", "GPU 1: 2 uncorrectable ECC errors"),
        (with_second(pending=1), "gpu_repair", "GPU 1: 1 bad pages wait for their retirement"),
        (with_second(unreservable=1), "gpu_repair", "GPU 1: 1 bad pages cannot be retired"),
        (with_second(hotspot=104), "gpu_temperature", "GPU 1: 104 C (hotspot)"),
        (
            kernel_logged("ring comp_1.0.0 timeout, signaled seq=7, emitted seq=9", "ring_timeout"),
            "gpu_kernel_log",
            "0000:02:00.0: ring comp_1.0.0 timeout",
        ),
        (
            kernel_logged(f"socket: 0, die: 0, {RAS}", "ras"),
            "gpu_kernel_log",
            f"0000:02:00.0: {RAS}",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_planted_failure_is_named_and_gets_no_assignment(
    planted: Planted, plant: Any, name: str, detail: str
) -> None:
    plant(planted)
    failed = planted.live()
    assert list(failed) == [name]
    assert detail in failed[name]
    assert not planted.assigned
