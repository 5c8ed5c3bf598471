"""The machine on which software is installed: its programs, files, devices and downloads."""

from __future__ import annotations

import collections
import contextlib
import os
import re
import shutil
import subprocess

from autoscaler.agent.clock import Clock
from autoscaler.agent.host import WINDOWS, Host, free_bytes
from autoscaler.agent.installing.parts import InstallFailure, RemoteFile
from autoscaler.agent.limits import GPU_ANSWER, MOST_DOWNLOAD, MOST_OUTPUT
from autoscaler.agent.programs import (
    NotInstalled,
    NoUsableAnswer,
    Output,
    end_group,
    start_group,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO, Any

CHUNK = 1 << 20
"""Bytes of a download that are read at once."""

TEMPORARY = (408, 429)
"""Statuses of a server that would answer later."""

QUIET = {
    "DEBIAN_FRONTEND": "noninteractive",
    "NEEDRESTART_SUSPEND": "1",  # Ubuntu's needrestart would restart services, among them the agent
    "LC_ALL": "C",
    "TMPDIR": "/var/tmp",  # noqa: S108 - /tmp is in memory on Amazon Linux, too small for the driver
}
"""Variables of all programs."""


LIST_DEVICES = (
    "Get-CimInstance Win32_PnPEntity -Filter 'Present = TRUE' | Where-Object DeviceID -like 'PCI\\*' |"
    " ForEach-Object { [Console]::Out.WriteLine($_.DeviceID + ' ' + ($_.CompatibleID -join ' ')) }"
)
"""PowerShell that prints a line for each device that is there: its ID and its compatible IDs."""

_DEVICE = re.compile(r"PCI\\VEN_([0-9A-F]{4})&DEV_([0-9A-F]{4})\S*")
_CLASS = re.compile(r"&CC_([0-9A-F]{6})\b")
"""Both forms: Microsoft, "Identifiers for PCI Devices"."""


PciDevice = collections.namedtuple("PciDevice", ("address", "vendor", "device", "kind"))
"""A PCI device: its address, and its vendor, device and class (3 bytes) as numbers."""

_KEYS = ("vendor", "device", "class")
"""The files of a device in sysfs."""


class LocalMachine:
    """The machine of this agent. Its log keeps everything that the programs write."""

    def __init__(self, host: Host, clock: Clock) -> None:
        self._root = host.root
        self._clock = clock
        self._log = host.install_log
        os.makedirs(os.path.dirname(self._log), mode=0o700, exist_ok=True)

    def now(self) -> float:
        """Return the seconds of the agent's clock."""
        return self._clock.now()

    def sleep(self, seconds: float) -> None:
        """Return after these seconds of the agent's clock."""
        self._clock.sleep(seconds)

    def run(self, argv: Sequence[str], timeout: float, **variables: str) -> Output:
        """Run a program, and end it and its children after the timeout. Raises NotInstalled, NoUsableAnswer.

        The output goes through the log, so a daemon that keeps it open does not delay the answer.
        """
        with open(self._log, "ab") as log:
            log.write(f"--- {' '.join(argv)}\n".encode())
            log.flush()
            start = os.fstat(log.fileno()).st_size
            environment = {**os.environ, **QUIET, **variables}
            process, group = start_group(argv, log, env=environment)
        try:
            status = process.wait(self._clock.real_timeout(timeout))
        except subprocess.TimeoutExpired:
            end_group(process, group)
            name = os.path.basename(argv[0])
            raise NoUsableAnswer(f"{name} did not end within {timeout:.0f} s") from None
        finally:
            group.close()
        with open(self._log, "rb") as log:
            log.seek(start)
            text = log.read(MOST_OUTPUT)
        return Output(status, text.decode("utf-8", "replace"))

    def fetch(
        self, file: RemoteFile, path: str, timeout: float, *, name: str, most: int = MOST_DOWNLOAD
    ) -> None:
        """Download a file unless it is there, through the proxy of the agent's environment.

        Raises InstallFailure with this name: without an answer, after `timeout`, if the file is longer than
        `most` bytes or too short, or has another checksum. It is lasting if the server refuses the file (4xx).
        """
        import http.client
        import urllib.error
        import urllib.request  # slow to import

        target = self.path(path)
        if os.path.exists(target) and _sha256(target) == file.sha256:
            return
        os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
        end = self.now() + timeout
        try:
            answer = urllib.request.urlopen(file.url, timeout=30)  # noqa: S310 - the plan's URL
            with answer, open(target, "wb") as written:
                self._receive(answer, written, end, most)
        except urllib.error.HTTPError as error:
            error.close()
            refused = error.code // 100 == 4 and error.code not in TEMPORARY
            raise InstallFailure(name, f"{file.url}: {error}", lasting=refused) from error
        except (OSError, ValueError, EOFError, http.client.HTTPException) as error:
            with contextlib.suppress(OSError):  # a part of the file only takes space
                os.unlink(target)
            raise InstallFailure(name, f"{file.url}: {error}") from error
        found = _sha256(target)
        if found != file.sha256:
            os.unlink(target)
            why = f"{file.url}: its SHA-256 is {found}, and {file.sha256} is wanted"
            raise InstallFailure(name, why)

    def _receive(self, answer: Any, written: IO[bytes], end: float, most: int) -> None:
        """Write an answer to a file. Raises TimeoutError at `end`, ValueError, EOFError."""
        # read1 returns after each piece, so that a slow server cannot make it wait past the end.
        size = 0
        while chunk := answer.read1(CHUNK):
            written.write(chunk)
            size += len(chunk)
            if self.now() > end:
                raise TimeoutError("not complete in time")
            if size > most:
                raise ValueError(f"longer than {most:,} bytes")
        if answer.length:
            raise EOFError(f"ended {answer.length:,} bytes too early")

    def path(self, path: str) -> str:
        """Return this path below the root of the host file."""
        return self._root + path

    def find(self, *names: str) -> str:
        """Return the first of these programs that is on the PATH, or nothing."""
        return next((name for name in names if shutil.which(name)), "")

    def exists(self, path: str) -> bool:
        """Return whether a file or folder exists."""
        return os.path.exists(self.path(path))

    def read(self, path: str) -> str:
        """Return a file's bytes as Latin-1 text, or nothing if it cannot be read."""
        try:
            with open(self.path(path), "rb") as file:
                return file.read(CHUNK).decode("latin-1")
        except OSError:
            return ""

    def write(self, path: str, text: str) -> None:
        """Write a file, in a new folder if need be. Raises OSError."""
        os.makedirs(os.path.dirname(self.path(path)), mode=0o755, exist_ok=True)
        with open(self.path(path), "w", encoding="utf-8") as file:
            file.write(text)

    def devices(self) -> list[PciDevice]:
        """Return the PCI devices, on Linux those that the kernel shows in sysfs. Raises InstallFailure."""
        if WINDOWS:
            return self._devices_of_windows()
        folder = "/sys/bus/pci/devices"
        try:
            names = sorted(os.listdir(self.path(folder)))
        except OSError:
            return []
        return [
            PciDevice(name, *(self._number(f"{folder}/{name}/{key}") for key in _KEYS))
            for name in names
        ]

    def _devices_of_windows(self) -> list[PciDevice]:
        argv = ["powershell", "-NoLogo", "-NoProfile", "-NonInteractive", "-Command", LIST_DEVICES]
        try:
            return read_devices(self.run(argv, GPU_ANSWER).text)
        except (NotInstalled, NoUsableAnswer) as error:
            raise InstallFailure("driver_device", str(error)) from error

    def _number(self, path: str) -> int:
        try:
            return int(self.read(path), 16)
        except ValueError:
            return 0

    def kernel(self) -> str:
        """Return the release of the running kernel, as `uname -r`."""
        return "" if WINDOWS else os.uname().release

    def free(self) -> float:
        """Return the free GiB of the root file system."""
        return free_bytes(self._root or os.sep) / 2**30


def _sha256(path: str) -> str:
    import hashlib  # slow to import

    found = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            found.update(chunk)
    return found.hexdigest()


def read_devices(text: str) -> list[PciDevice]:
    """Return the devices in the output of LIST_DEVICES. Other lines, such as errors, are no devices."""
    found = []
    for line in text.splitlines():
        device, kind = _DEVICE.match(line), _CLASS.search(line)
        if device and kind:
            vendor, number = int(device.group(1), 16), int(device.group(2), 16)
            found.append(PciDevice(device.group(0), vendor, number, int(kind.group(1), 16)))
    return found
