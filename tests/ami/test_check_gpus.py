"""The computation on NVIDIA's GPUs: a healthy GPU passes, and each kind of failure is named.

The driver's library is a stand-in, which computes in Python. `make gpu` runs the program with the real library.
"""

import array
import ctypes
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.agent.real_gpu import check_gpus


@pytest.fixture(scope="module")
def program() -> ModuleType:
    return check_gpus()


class Driver:
    """The functions of libcuda.so.1. `failing` has the statuses of those that fail, on the last GPU only."""

    def __init__(self, results: "array.array[int]", gpus: int = 2, **failing: int) -> None:
        self._results = results
        self._gpus = gpus
        self._failing = failing
        self.calls: list[str] = []
        self.kernels: list[bytes] = []
        self._current = 0

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append(name)
            last = self._current == self._gpus - 1
            if name in self._failing and (last or name == "cuInit"):
                return self._failing[name]
            self._do(name, *arguments)
            return 0

        return call

    def _do(self, name: str, *arguments: Any) -> None:
        match name:
            case "cuGetErrorName":
                arguments[1]._obj.value = f"CUDA_ERROR_{arguments[0]}".encode()
            case "cuDeviceGetCount":
                arguments[0]._obj.value = self._gpus
            case "cuDeviceGet":
                self._current = arguments[1]
            case "cuModuleLoadData":
                self.kernels.append(arguments[1])
            case "cuMemcpyDtoH_v2":
                found = self._results[:]
                if self._current == self._gpus - 1:
                    found[5] += self._failing.get("wrong", 0)
                ctypes.memmove(arguments[0], found.buffer_info()[0], arguments[2].value)


def test_all_gpus_compute_and_their_memory_is_freed(program: ModuleType) -> None:
    driver = Driver(program.expected())
    assert program.check_gpus(driver) == "2 computed correctly"
    assert driver.kernels == [program.KERNEL.encode()] * 2
    for name in ("cuLaunchKernel", "cuMemFree_v2", "cuDevicePrimaryCtxRelease_v2"):
        assert driver.calls.count(name) == 2


def test_the_expected_results_are_those_of_all_steps(program: ModuleType) -> None:
    found = program.expected()
    assert len(found) == program.COUNT
    for index in (0, 1, program.COUNT - 1):
        x = index
        for _ in range(program.STEPS):
            x = (x * program.FACTOR + program.SUMMAND) % 2**32
        assert found[index] == x


@pytest.mark.parametrize(
    ("failing", "line"),
    [
        # What cuInit answers on a machine with NVSwitches without Fabric Manager is 802.
        ({"cuInit": 802}, "cuInit: CUDA_ERROR_802"),
        ({"gpus": 0}, "cuDeviceGetCount: no GPU"),
        ({"cuModuleLoadData": 218}, "GPU 1: cuModuleLoadData: CUDA_ERROR_218"),
        ({"cuMemAlloc_v2": 2}, "GPU 1: cuMemAlloc_v2: CUDA_ERROR_2"),
        ({"cuCtxSynchronize": 700}, "GPU 1: cuCtxSynchronize: CUDA_ERROR_700"),
        ({"wrong": 1}, "GPU 1: 1 of 262144 results are wrong"),
    ],
)
def test_a_broken_gpu_is_named(program: ModuleType, failing: dict[str, int], line: str) -> None:
    with pytest.raises(program.GpuError) as error:
        program.check_gpus(Driver(program.expected(), **failing))
    assert str(error.value) == line


def test_without_a_gpu_it_passes_and_without_the_library_it_fails(
    program: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(str(tmp_path / "nvidia*")) == 0
    (tmp_path / "nvidia0").touch()
    assert program.main(str(tmp_path / "nvidia*"), "libabsent.so.1") == 1
    assert capsys.readouterr().out.splitlines() == [
        "no GPU here",
        "libabsent.so.1: cannot open shared object file: No such file or directory",
    ]
