"""Drivers' errors in the kernel's log: XIDs of NVIDIA's GPUs, SXIDs of NVSwitches, those of amdgpu."""

from __future__ import annotations

import os
import re

from autoscaler.agent.limits import MOST_KERNEL_LOG
from autoscaler.agent.verdicts import Check, verdict

APPLICATION_XIDS = (13, 31, 43, 45, 68, 109)
"""XIDs that a program can cause on a healthy GPU (k8s-device-plugin, internal/rm/health.go)."""

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): ([0-9]+), ?([^\n\\]*)")
_SXID = re.compile(r"SXid \(PCI:([0-9a-fA-F:.]+)\): ([0-9]+), Fatal,? ?([^\n\\]*)")
_OFF_THE_BUS = "fallen off the bus"

_AMDGPU = re.compile(
    r"ring \S+ timeout, (?!but soft recovered)[^\n\\]*"
    r"|GPU reset\([0-9]+\) failed[^\n\\]*"
    r"|device lost from bus!"
    r"|\b[1-9][0-9]* (?:new )?uncorrectable hardware errors detected in [^\n\\]*"
)
"""amdgpu's errors (drivers/gpu/drm/amd/amdgpu: amdgpu_job.c, amdgpu_device.c, amdgpu_ras.c): a ring that did
not recover, a failed reset, a lost GPU, RAS errors. `no uncorrectable hardware errors detected` is none."""

_PCI_PLACE = re.compile(r"amdgpu ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]): ")


def read_kernel_log(path: str) -> str | None:
    """Return the kernel's messages since the boot, or None if this process may not read them.

    Each read of /dev/kmsg returns one message, and EAGAIN after the last one; EPIPE says that messages were
    overwritten meanwhile (Documentation/ABI/testing/dev-kmsg).
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return None
    parts: list[bytes] = []
    total = 0
    try:
        while total < MOST_KERNEL_LOG:
            try:
                part = os.read(descriptor, 8192)
            except BrokenPipeError:
                continue
            except BlockingIOError:
                break
            except OSError:
                return None
            if not part:
                break
            parts.append(part)
            total += len(part)
    finally:
        os.close(descriptor)
    return b"".join(parts).decode("utf-8", "replace")


def check_xids(log: str | None) -> Check:
    """Return the check of the kernel's log. No job has run on the machine yet, so each XID counts once."""
    if log is None:
        return Check("gpu_xid", True, "the kernel's log is not readable here")
    found: dict[str, str] = {}
    for place, number, text in _XID.findall(log):
        if int(number) not in APPLICATION_XIDS:
            found.setdefault(f"{place} {number}", f"XID {number} on {place}: {text[:80].strip()}")
    for place, number, text in _SXID.findall(log):
        named = f"fatal SXID {number} on NVSwitch {place}: {text[:80].strip()}"
        found.setdefault(f"{place} SXid {number}", named)
    # Newer drivers report a lost GPU without its XID 79 (NVSentinel#155).
    if not found and _OFF_THE_BUS in log:
        found["79"] = "a GPU has fallen off the bus"
    return verdict("gpu_xid", found.values(), "none")


def check_amdgpu_log(log: str | None) -> Check:
    """Return the check of the kernel's log for an error of amdgpu. No job has run on the machine yet."""
    if log is None:
        return Check("gpu_kernel_log", True, "the kernel's log is not readable here")
    found: dict[str, str] = {}
    for line in log.splitlines():
        error = _AMDGPU.search(line) if "amdgpu" in line else None
        if error:
            place = _PCI_PLACE.search(line)
            named = f"{place.group(1)}: " if place else ""
            text = named + error.group()[:80].strip()
            found.setdefault(text, text)
    return verdict("gpu_kernel_log", found.values(), "none")
