"""Windows itself: no updates at boot, long paths, no virus scan of what jobs write."""

import ctypes
import platform

from library import (
    RUNNER,
    TOOLS,
    StepError,
    get_value,
    need_free_gb,
    need_programs,
    note,
    set_value,
    windows_version,
)

UPDATES = "SOFTWARE\\Policies\\Microsoft\\Windows\\WindowsUpdate\\AU"
FILES = "SYSTEM\\CurrentControlSet\\Control\\FileSystem"
DEFENDER = "SOFTWARE\\Policies\\Microsoft\\Windows Defender\\Exclusions"

VALUES = (
    # An update can restart a machine during a job. Its images are built again each week.
    (UPDATES, "NoAutoUpdate", 1),
    # Builds have paths of more than 260 characters.
    (FILES, "LongPathsEnabled", 1),
    # Defender's own policy, "Path Exclusions". It reads each file that a build writes.
    (DEFENDER, "Exclusions_Paths", 1),
    (f"{DEFENDER}\\Paths", f"{RUNNER}\\_work", "0"),
    (f"{DEFENDER}\\Paths", str(TOOLS), "0"),
)


def before() -> None:
    """Check rights, space, and Windows' own programs."""
    if not ctypes.windll.shell32.IsUserAnAdmin():
        raise StepError("run this as administrator")
    need_programs("icacls", "net", "sc", "schtasks")
    need_free_gb(12)


def apply() -> None:
    """Set the values of the registry."""
    for key, name, content in VALUES:
        set_value(key, name, content)


def after() -> None:
    """Check that the values are there."""
    for key, name, content in VALUES:
        if get_value(key, name) != content:
            raise StepError(f"HKLM\\{key} has no {name} = {content}")
    note("windows", windows_version())
    note("python", platform.python_version())
