"""The settings of the machine, from files that only root can write."""

from __future__ import annotations

import json
import os
import stat
import sys

from autoscaler.agent.actions import BadSettings, PowerOff
from autoscaler.agent.limits import MOST_SETTINGS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WINDOWS = sys.platform == "win32"


def read_trusted(path: str) -> dict[str, Any] | None:
    """Read a JSON object from a file that only root, or the agent's user, can write; None if absent.

    Raises BadSettings.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadSettings(f"{path}: {error.strerror}") from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)  # os.fdopen refuses a directory with an error of its own
        raise BadSettings(f"{path}: not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        if not WINDOWS and (found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022):
            raise BadSettings(f"{path}: others could have written it")
        text = file.read(MOST_SETTINGS + 1)
    if len(text) > MOST_SETTINGS:
        raise BadSettings(f"{path}: too long")
    try:
        value = json.loads(text)
    except ValueError as error:
        raise BadSettings(f"{path}: not JSON") from error
    if not isinstance(value, dict):
        raise BadSettings(f"{path}: not a JSON object")
    return value


class Host:
    """The settings of the host file, with the defaults of an EC2 machine.

    `root` is a prefix of the agent's own paths. `power_off` and `disarm` (which cancels the shutdown
    that the user data scheduled) are argument lists. `time_scale` is seconds of this machine per
    real second. `runner_user` None runs the runner as the agent's own user, which must not be root.
    `hooks` is the folder of the job hooks. `has_accelerators` is False if a job runs in a pod of its own, which
    has the SKU's accelerators.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self.root = self._text(values, "root", "")
        self.metadata = self._text(values, "metadata", "http://169.254.169.254").rstrip("/")
        linux_off, windows_off = ["shutdown", "-P", "now"], ["shutdown", "/s", "/f", "/t", "0"]
        self.power_off = self._argv(values, "power_off", windows_off if WINDOWS else linux_off)
        self.disarm = self._argv(values, "disarm", ["shutdown", "/a" if WINDOWS else "-c"])
        scale = values.get("time_scale", 1.0)
        if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not scale > 0:
            raise BadSettings("host file: time_scale must be a number above 0")
        self.time_scale = float(scale)
        user = values.get("runner_user", "runner")
        self.runner_user = None if user is None else self._text(values, "runner_user", "runner")
        default = "C:\\actions-runner" if WINDOWS else "/opt/actions-runner"
        self.runner_directory = self._text(values, "runner_directory", default)
        self.runner_task = self._text(values, "runner_task", "actions-runner")
        windows = "C:\\ProgramData\\runner-agent"
        self.state = windows + "\\state" if WINDOWS else self.root + "/var/lib/runner-agent"
        self.hooks = windows + "\\handover" if WINDOWS else self.root + "/run/runner-agent"
        self.has_accelerators = True

    @property
    def marker(self) -> str:
        """The file that marks that a runner was started on this machine."""
        return os.path.join(self.state, "started")

    @property
    def image_manifest(self) -> str:
        """The file that says what the image contains, if a recipe of this project built it."""
        if WINDOWS:
            return "C:\\runner-agent\\image.json"
        return self.root + "/opt/runner-agent/image.json"

    @property
    def install_log(self) -> str:
        """The file that keeps the output of what the agent installs."""
        if WINDOWS:
            return os.path.join(self.state, "install.log")
        return self.root + "/var/log/runner-agent/install.log"

    @staticmethod
    def _text(values: dict[str, Any], key: str, default: str) -> str:
        value = values.get(key, default)
        if not isinstance(value, str):
            raise BadSettings(f"host file: {key} must be text")
        return value

    @staticmethod
    def _argv(values: dict[str, Any], key: str, default: list[str]) -> list[str]:
        value = values.get(key, default)
        if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
            raise BadSettings(f"host file: {key} must be a list of text")
        return value


def refuse_second_boot(host: Host) -> None:
    """Raise PowerOff if a runner was started before: a machine runs one runner."""
    if os.path.lexists(host.marker):
        raise PowerOff("a runner was started on this machine before")


def free_bytes(path: str) -> int:
    """Return the free space of the file system that has this path."""
    if WINDOWS:
        import shutil  # slow to import, and Linux has statvfs

        return shutil.disk_usage(path).free
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize
