"""The agent's health checks, and the computation of the images for NVIDIA, on the GPUs of this host.

Run: `make gpu`, on a machine with a healthy NVIDIA GPU, its driver and Python 3.10. It needs nothing else, and
The suites leave it out.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import unittest
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from autoscaler.agent.checks.accelerators import check_accelerators
from autoscaler.agent.clock import Clock
from autoscaler.agent.host import Host
from autoscaler.agent.verdicts import Check

PROGRAM = Path(__file__).parents[2] / "ami" / "linux" / "files" / "check_gpus.py"
NOBODY = 65534  # Debian's user and group `nobody`


def gpus_of_this_host() -> list[list[str]]:
    """Return the name, MiB of memory and driver of each GPU, from a list instead of the agent's XML."""
    fields = "--query-gpu=name,memory.total,driver_version"
    words = ["nvidia-smi", fields, "--format=csv,noheader,nounits"]
    text = subprocess.run(words, check=True, capture_output=True, text=True, timeout=120).stdout
    return [line.split(", ") for line in text.splitlines()]


def check_gpus() -> ModuleType:
    """Return the program of the images as a module of its own."""
    spec = spec_from_file_location("check_gpus", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def setUpModule() -> None:
    """Say what is missing on a host without a GPU."""
    assert shutil.which("nvidia-smi"), (
        "this host has no nvidia-smi: run this on a machine with a GPU"
    )


class HealthChecks(unittest.TestCase):
    """GPUs as `skus.<name>.accelerator` asks for them pass, and each unmet requirement fails its own check."""

    def setUp(self) -> None:
        self.gpus = gpus_of_this_host()
        name, memory, driver = self.gpus[0]
        self.wanted: dict[str, Any] = {
            "vendor": "nvidia",
            "count": len(self.gpus),
            "models": [name],
            "memory_gb": int(memory) // 1024,
            "driver_version": driver.partition(".")[0],
        }

    def checks(self, **other: Any) -> list[Check]:
        return check_accelerators({"accelerator": self.wanted | other}, Host({}), Clock(1.0))

    def failed(self, **other: Any) -> list[str]:
        return [one.name for one in self.checks(**other) if not one.ok]

    def test_these_gpus_pass(self) -> None:
        checks = self.checks()
        for one in checks:
            print(f"    {one.name:<16} {one.detail}")  # noqa: T201 - for the person who runs it
        assert [one for one in checks if not one.ok] == []
        assert len(checks) >= 10

    def test_each_unmet_requirement_fails_its_own_check(self) -> None:
        assert self.failed(count=len(self.gpus) + 1) == ["gpu_count"]
        assert self.failed(models=["NVIDIA GeForce 256"]) == ["gpu_model"]
        assert self.failed(memory_gb=self.wanted["memory_gb"] + 8) == ["gpu_memory"]
        assert self.failed(driver_version="1") == ["gpu_driver"]


class Computation(unittest.TestCase):
    """The program of the images computes on every GPU, and names what fails."""

    def run_program(self, **how: Any) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-IS", str(PROGRAM)],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            **how,
        )
        return done.returncode, done.stdout + done.stderr

    def test_every_gpu_computes(self) -> None:
        status, said = self.run_program()
        assert (status, said) == (0, f"{len(gpus_of_this_host())} computed correctly\n")

    def test_a_variable_hides_no_gpu(self) -> None:
        status, said = self.run_program(env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})
        assert (status, said) == (0, f"{len(gpus_of_this_host())} computed correctly\n")

    @unittest.skipUnless(os.geteuid() == 0, "only root can become another user")
    def test_a_user_without_rights_can_compute(self) -> None:
        done = subprocess.run(
            [sys.executable, "-IS", "-"],
            input=PROGRAM.read_bytes(),
            capture_output=True,
            check=False,
            timeout=300,
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def test_wrong_results_and_a_kernel_that_cannot_run_are_named(self) -> None:
        program, library = check_gpus(), ctypes.CDLL("libcuda.so.1")
        right = program.KERNEL
        for kernel, words in (
            (right.replace(str(program.FACTOR), "3"), "GPU 0: .* results are wrong"),
            (
                right.replace("mad.lo", "mad.none"),
                "GPU 0: cuModuleLoadData: CUDA_ERROR_INVALID_PTX",
            ),
        ):
            assert kernel != right
            vars(program)["KERNEL"] = kernel
            with self.assertRaisesRegex(program.GpuError, words):  # noqa: PT027 - without pytest
                program.check_gpus(library)


if __name__ == "__main__":
    unittest.main(verbosity=2)
