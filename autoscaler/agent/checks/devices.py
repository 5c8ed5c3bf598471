"""The accelerators that a SKU's machines must have, compared with those that a machine shows. Pure."""

from __future__ import annotations

import collections

from autoscaler.agent.verdicts import Check, verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

HOTTEST = 95.0
"""Degrees Celsius at which a GPU without a threshold of its own counts as too hot."""

Wanted = collections.namedtuple(
    "Wanted", ("vendor", "count", "models", "memory_gb", "driver_version", "image_driver")
)
"""The parameters of the check. Without a `driver_version`, `models` or `memory_gb`, any will do.

`image_driver` is the version of the driver with which the image was built, or nothing."""

Device = collections.namedtuple("Device", ("place", "model", "memory_gib"))
"""One accelerator. `place` names it for people, and `model` is empty if it does not answer."""


def read_wanted(parameters: dict[str, Any], image_driver: str = "") -> Wanted:
    """Return the controller's parameters (docs/bootstrap.md). Values of another type are not checked."""
    count, models = parameters.get("count"), parameters.get("models")
    memory, driver = parameters.get("memory_gb"), parameters.get("driver_version")
    return Wanted(
        parameters.get("vendor"),
        count if isinstance(count, int) else 1,
        [one for one in models if isinstance(one, str)] if isinstance(models, list) else [],
        memory if isinstance(memory, (int, float)) else 0,
        driver if isinstance(driver, str) else "",
        image_driver,
    )


def check_devices(devices: Sequence[Device], driver: str, wanted: Wanted) -> list[Check]:
    """Return the checks of the driver's version, and of the number, models and memory of the devices."""
    return [
        _check_driver(driver, wanted),
        _check_count(devices, wanted.count),
        *_check_kind([device for device in devices if device.model], wanted),
    ]


def _check_driver(driver: str, wanted: Wanted) -> Check:
    """A wanted version is a whole one, or the beginning of one: 580 stands for every 580.x."""
    shown, version, built = driver or "unknown", wanted.driver_version, wanted.image_driver
    problems = []
    if version and driver != version and not driver.startswith(version + "."):
        problems.append(f"{shown}, and {version} is wanted")
    if built and driver != built:
        problems.append(f"{shown}, and the image was built with {built}")
    return verdict("gpu_driver", problems, shown)


def _check_count(devices: Sequence[Device], wanted: int) -> Check:
    problems = [f"{device.place} does not answer" for device in devices if not device.model]
    found = len(devices) - len(problems)
    if found != wanted:
        problems.insert(0, f"{found} found, and {wanted} wanted")
    return verdict("gpu_count", problems, str(found))


def _check_kind(devices: Sequence[Device], wanted: Wanted) -> list[Check]:
    known = [name.lower() for name in wanted.models]
    others = [
        f"{device.place} is {device.model}"
        for device in devices
        if known and device.model.lower() not in known
    ]
    if others:
        others.append(f"wanted: {', '.join(wanted.models)}")
    small = [
        f"{device.place} has {device.memory_gib:.1f} GiB, and {wanted.memory_gb:g} are wanted"
        for device in devices
        if device.memory_gib < wanted.memory_gb
    ]
    models = ", ".join(sorted({device.model for device in devices}))
    least = min((device.memory_gib for device in devices), default=0.0)
    return [
        verdict("gpu_model", others, models or "none"),
        verdict("gpu_memory", small, f"at least {least:.1f} GiB"),
    ]
