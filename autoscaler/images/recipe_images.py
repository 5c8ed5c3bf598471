"""Which recipe of ami/ makes the image for an instance type. Pure."""

from autoscaler.model.catalogue import Architecture, OperatingSystem

_WITHOUT_DRIVER = ("", "gaudi-hl-205")
_AMD = "radeon-pro-v520"


def recipe_image(gpu_name: str, os: OperatingSystem, arch: Architecture) -> str:
    """Return the newest image of the recipe that fits, as `name|owner`.

    `gpu_name` is the GPU's name in the table of instance types. No recipe has a driver for Gaudi, nor one for
    GPUs of AMD on Windows: these types get the image without a driver.
    """
    windows = os is OperatingSystem.WINDOWS
    if gpu_name in _WITHOUT_DRIVER or (windows and gpu_name == _AMD):
        recipe = "windows" if windows else "linux-cpu"
    elif gpu_name == _AMD:
        recipe = "linux-rocm"
    else:
        recipe = f"{os}-gpu"
    return f"autoscaler/{recipe}-{arch}-*|self"
