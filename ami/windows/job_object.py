"""Lets nothing that the build started outlive it.

A child that goes on keeps Packer's connection open, and works on the disk of the image.
"""

import ctypes
from ctypes import wintypes

KILL_ON_JOB_CLOSE = 0x2000
EXTENDED_LIMITS = 9


class BasicLimits(ctypes.Structure):
    """JOBOBJECT_BASIC_LIMIT_INFORMATION."""

    _fields_ = (
        ("per_process_user_time", ctypes.c_int64),
        ("per_job_user_time", ctypes.c_int64),
        ("flags", wintypes.DWORD),
        ("least_working_set", ctypes.c_size_t),
        ("most_working_set", ctypes.c_size_t),
        ("active_processes", wintypes.DWORD),
        ("affinity", ctypes.c_size_t),
        ("priority", wintypes.DWORD),
        ("scheduling", wintypes.DWORD),
    )


class ExtendedLimits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

    _fields_ = (
        ("basic", BasicLimits),
        ("io_counters", ctypes.c_uint64 * 6),
        ("memory", ctypes.c_size_t * 4),
    )


def end_children_with_this_program() -> None:
    """Put this program into a job object; everything that it starts from now on is in it, too.

    Windows ends all of them when the only handle of the job closes, which is when this program ends in any way
    (Microsoft, "Job Objects"). That includes a child that CreateProcess has made and not started yet: without a
    job, it would wait for its start forever. Raises OSError.
    """
    kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    kernel.CreateJobObjectW.restype = kernel.GetCurrentProcess.restype = wintypes.HANDLE
    job = wintypes.HANDLE(kernel.CreateJobObjectW(None, None))
    limits = ExtendedLimits(BasicLimits(flags=KILL_ON_JOB_CLOSE))
    size = ctypes.sizeof(limits)
    this = wintypes.HANDLE(kernel.GetCurrentProcess())
    if not (
        kernel.SetInformationJobObject(job, EXTENDED_LIMITS, ctypes.byref(limits), size)
        and kernel.AssignProcessToJobObject(job, this)
    ):
        raise ctypes.WinError(ctypes.get_last_error())
