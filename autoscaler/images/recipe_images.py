"""Which recipe of ami/ makes the image for an instance type. Pure."""

from autoscaler.model.catalogue import Architecture, OperatingSystem

NVIDIA = frozenset(
    {
        *("a10g", "a100", "b200", "b300", "h100", "h200", "k80", "l4", "l40s", "m60", "t4", "t4g"),
        *("rtx-pro-4500", "rtx-pro-server-6000", "v100"),
    }
)
AMD = frozenset({"radeon-pro-v520"})
WITHOUT_DRIVER = frozenset({"", "gaudi-hl-205"})
"""The names of GPUs in the table of instance types, by the driver that they need."""


def recipe_image(gpu_name: str, os: OperatingSystem, arch: Architecture) -> str:
    """Return the newest image of the recipe that fits, as `name|owner`.

    `gpu_name` is the GPU's name in the table of instance types. No recipe has a driver for Gaudi, nor one for
    GPUs of AMD on Windows: these types get the image without a driver. docs/images.md names the GPUs of NVIDIA
    that need another image.
    """
    windows = os is OperatingSystem.WINDOWS
    if gpu_name in NVIDIA:
        recipe = f"{os}-gpu"
    elif gpu_name in AMD and not windows:
        recipe = "linux-rocm"
    else:
        recipe = "windows" if windows else "linux-cpu"
    return f"autoscaler/{recipe}-{arch}-*|self"
