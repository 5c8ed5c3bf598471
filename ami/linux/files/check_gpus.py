#!/usr/bin/python3 -IS
"""Computes on each NVIDIA GPU of this machine, and compares the results.

The health check of images for NVIDIA's GPUs: the agent runs it as the user of the runner, before the machine or
pod gets a job. Its line says what it computed, or what failed; then the exit status is 1. It needs only the
driver and Python: the driver compiles the kernel. `nvidia-smi` may show a GPU on which no program runs, for
example if Fabric Manager is missing. Without a GPU the check passes: the agent compares the number of GPUs.
With MIG, CUDA shows a process one MIG device, so only that one is checked.

Source of the functions: CUDA Driver API Reference.
"""

from __future__ import annotations

import array
import ctypes
import glob
import os
import sys
from typing import Any

GPUS = "/dev/nvidia[0-9]*"
"""The devices of GPUs. A container has only those of its own."""

THREADS, BLOCKS = 256, 1024
"""Enough blocks for all multiprocessors of a GPU at once: an H100 has 132 of them."""

COUNT = THREADS * BLOCKS
STEPS = 4096
FACTOR, SUMMAND = 1664525, 1013904223
"""A step of each thread: x -> x * FACTOR + SUMMAND, in 32 bits. Numerical Recipes names these two numbers."""

KERNEL = f"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry advance(.param .u64 results)
{{
    .reg .pred %more;
    .reg .b32 %block, %size, %thread, %index, %x, %step;
    .reg .b64 %base, %offset, %place;
    ld.param.u64 %base, [results];
    cvta.to.global.u64 %base, %base;
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %index, %block, %size, %thread;
    mov.u32 %x, %index;
    mov.u32 %step, 0;
NEXT:
    mad.lo.u32 %x, %x, {FACTOR}, {SUMMAND};
    add.u32 %step, %step, 1;
    setp.lt.u32 %more, %step, {STEPS};
    @%more bra NEXT;
    mul.wide.u32 %offset, %index, 4;
    add.u64 %place, %base, %offset;
    st.global.u32 [%place], %x;
    ret;
}}
"""
"""Each thread begins with its index, and writes what it has after STEPS steps. The oldest GPU is a Maxwell."""


class GpuError(Exception):
    """A function of the driver failed, or a GPU computed wrong results."""


class Cuda:
    """The functions of the driver's library."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call a function. Raises GpuError."""
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(status, ctypes.byref(text))
            raise GpuError(f"{name}: {(text.value or b'').decode() or status}")


def expected() -> array.array[int]:
    """Return the right results. STEPS steps equal one step with another factor and summand."""
    factor, summand = 1, 0
    for _ in range(STEPS):
        factor, summand = factor * FACTOR % 2**32, (summand * FACTOR + SUMMAND) % 2**32
    return array.array("I", ((index * factor + summand) % 2**32 for index in range(COUNT)))


def check_gpus(library: Any) -> str:
    """Compute on all GPUs, and return a line about them. Raises GpuError."""
    cuda, count, right = Cuda(library), ctypes.c_int(), expected()
    cuda("cuInit", 0)
    cuda("cuDeviceGetCount", ctypes.byref(count))
    if count.value == 0:
        raise GpuError("cuDeviceGetCount: no GPU")
    for number in range(count.value):
        try:
            wrong = _wrong_results(cuda, number, right)
        except GpuError as error:
            raise GpuError(f"GPU {number}: {error}") from error
        if wrong:
            raise GpuError(f"GPU {number}: {wrong} of {COUNT} results are wrong")
    return f"{count.value} computed correctly"


def _wrong_results(cuda: Cuda, number: int, right: array.array[int]) -> int:
    """Return how many results of this GPU are wrong."""
    device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    function, memory = ctypes.c_void_p(), ctypes.c_uint64()
    results = array.array("I", bytes(4 * COUNT))
    address, size = results.buffer_info()
    cuda("cuDeviceGet", ctypes.byref(device), number)
    cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    cuda("cuCtxSetCurrent", context)
    cuda("cuModuleLoadData", ctypes.byref(module), KERNEL.encode())
    cuda("cuModuleGetFunction", ctypes.byref(function), module, b"advance")
    cuda("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(4 * size))
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
    shape = (BLOCKS, 1, 1, THREADS, 1, 1)
    cuda("cuLaunchKernel", function, *shape, 0, None, parameters, None)
    cuda("cuCtxSynchronize")
    cuda("cuMemcpyDtoH_v2", ctypes.c_void_p(address), memory, ctypes.c_size_t(4 * size))
    cuda("cuMemFree_v2", memory)
    cuda("cuDevicePrimaryCtxRelease_v2", device)
    return sum(found != wanted for found, wanted in zip(results, right, strict=True))


def main(gpus: str = GPUS, library: str = "libcuda.so.1") -> int:
    """Return the exit status."""
    if not glob.glob(gpus):  # noqa: PTH207 - pathlib is slow to import
        print("no GPU here")  # noqa: T201
        return 0
    # This variable could hide a GPU.
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    # The numbers of nvidia-smi, and no files in the home of the runner.
    os.environ |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_CACHE_DISABLE": "1"}
    try:
        print(check_gpus(ctypes.CDLL(library)))  # noqa: T201
    except (GpuError, OSError) as error:
        print(error)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
