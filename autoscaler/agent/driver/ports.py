"""Protocols of a driver's installation. Only type checkers read this module: it is not in the agent's file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autoscaler.agent.driver.plan import PciDevice, RemoteFile
from autoscaler.agent.programs import Output


class DriverTry(Protocol):
    """One try to install the driver of one vendor on one operating system."""

    def check_before(self) -> str:
        """Return the kind of driver for the GPUs. Raises DriverFailure if no try can succeed."""
        ...

    def install(self, kind: str) -> str:
        """Install this kind of driver and check it; return what it is. Raises DriverFailure, OSError."""
        ...

    def reset(self) -> None:
        """Undo what may prevent another try from succeeding."""
        ...


class DriverMachine(Protocol):
    """What an installation needs of a machine. Times are seconds of the machine; paths begin at its root."""

    def now(self) -> float:
        """Return the seconds since a fixed moment."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after these seconds."""
        ...

    def run(self, argv: Sequence[str], timeout: float, **variables: str) -> Output:
        """Run a program with further environment variables. Raises NotInstalled, NoUsableAnswer."""
        ...

    def fetch(self, file: RemoteFile, path: str, timeout: float) -> None:
        """Download a file and check its SHA-256. Raises DriverFailure."""
        ...

    def path(self, path: str) -> str:
        """Return this path as a program of the machine needs it."""
        ...

    def find(self, *names: str) -> str:
        """Return the first of these programs that is on the PATH, or nothing."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether a file or folder exists."""
        ...

    def read(self, path: str) -> str:
        """Return a file's bytes as Latin-1 text, or nothing if it cannot be read."""
        ...

    def write(self, path: str, text: str) -> None:
        """Write a file, in a new folder if need be. Raises OSError."""
        ...

    def devices(self) -> list[PciDevice]:
        """Return the PCI devices. Raises DriverFailure."""
        ...

    def kernel(self) -> str:
        """Return the release of the running kernel, as `uname -r`."""
        ...

    def free(self) -> float:
        """Return the free GiB of the root file system."""
        ...
