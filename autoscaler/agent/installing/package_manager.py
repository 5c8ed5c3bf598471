"""Installs packages of the distribution with APT or DNF."""

from __future__ import annotations

from autoscaler.agent.installing.local_machine import LocalMachine
from autoscaler.agent.installing.parts import InstallFailure, error_line
from autoscaler.agent.limits import LOCK_WAIT
from autoscaler.agent.programs import NotInstalled, NoUsableAnswer, Output, last_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

LOCK_POLL = 10.0
"""Seconds until a package manager that found a lock is tried again."""

LOCKED = (
    "Could not get lock",
    "Unable to lock",
    "dpkg frontend lock",
    "is another process using it",
)

APT_GET = ["apt-get", "-q", "-y", "-o", "Acquire::Retries=2"]


class PackageManager:
    """The package manager of a machine. `end` is when all of its programs must have ended.

    `name` is the check that fails if it does.
    """

    name: str

    def __init__(self, machine: LocalMachine, end: float) -> None:
        self.machine = machine
        self.end = end
        self.manager = machine.find("apt-get", "dnf")

    def install(self, names: Sequence[str]) -> None:
        """Install packages, with new lists of what there is. Raises InstallFailure."""
        if not self.manager:
            raise InstallFailure(self.name, "the image has neither apt-get nor dnf")
        if self.manager == "dnf":
            self._run(["dnf", "-y", "install", *names])
            return
        self.refresh()
        self.get(names)

    def refresh(self) -> None:
        """Let APT read the lists of packages. Raises InstallFailure."""
        # A package that an earlier boot, or an earlier try, left half installed blocks all others.
        self._run(["dpkg", "--configure", "-a"])
        self._run([*APT_GET, "--fix-broken", "install"])
        self._run([*APT_GET, "update"])

    def get(self, names: Sequence[str]) -> None:
        """Let APT install packages. Raises InstallFailure."""
        self._run([*APT_GET, "--no-install-recommends", "install", *names])

    def _run(self, argv: Sequence[str]) -> None:
        """Run a package manager; wait for its lock. Raises InstallFailure."""
        until = min(self.end, self.machine.now() + LOCK_WAIT)
        while True:
            found = self.output(argv)
            if found.status == 0:
                return
            locked = any(text in found.text for text in LOCKED)
            if not locked or self.machine.now() + LOCK_POLL > until:
                why = error_line(found.text) or last_line(found.text)
                raise InstallFailure(self.name, why)
            self.machine.sleep(LOCK_POLL)

    def output(self, argv: Sequence[str]) -> Output:
        """Return what a program printed. Raises InstallFailure if it is not there, or hangs."""
        try:
            return self.machine.run(argv, self.left())
        except (NotInstalled, NoUsableAnswer) as error:
            raise InstallFailure(self.name, str(error)) from error

    def left(self) -> float:
        """Return the seconds until the end, at least one."""
        return max(1.0, self.end - self.machine.now())
