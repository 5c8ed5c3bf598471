"""Identifiers, each with its own type so that mypy finds a mix-up, and addresses to listen on."""

import ipaddress
from dataclasses import dataclass
from typing import NewType

JobId = NewType("JobId", int)
"""GitHub's `workflow_job.id`: unique on one GitHub instance."""

LaunchRequestId = NewType("LaunchRequestId", str)
"""One request to a provider; also the value of the `launch_request` tag on its machines."""

MachineId = NewType("MachineId", str)
"""Chosen by the controller. A slot has one as soon as its launch request is recorded."""

RunnerName = NewType("RunnerName", str)
"""A registration's name at GitHub: `<fleet>-<installation>-<machine>-<try>`, 64 characters at most."""

SkuName = NewType("SkuName", str)
ProviderName = NewType("ProviderName", str)

ProviderMachineId = NewType("ProviderMachineId", str)
"""The provider's ID of a machine, such as EC2's `i-0abc...`."""

InstallationId = NewType("InstallationId", str)
"""Random, created with the store. It is in the tags of everything that the installation creates."""

Seconds = float
"""A duration in seconds."""

Instant = float
"""A moment in Unix seconds, from the `Clock` port."""


MOST_FORMER = 8
"""Maximum number of former IDs. Each one is a value in EC2 filters."""


@dataclass(frozen=True, slots=True)
class Installations:
    """The installation's current ID (`own`) and its `former` IDs, newest first.

    Resources tagged with any of these IDs belong to this fleet.
    """

    own: InstallationId
    former: tuple[InstallationId, ...] = ()

    @property
    def all(self) -> tuple[InstallationId, ...]:
        """Return every ID: the current one, then the former ones."""
        return (self.own, *self.former)

    def after_adoption(self, taken: InstallationId) -> "Installations":
        """Return the IDs after the adoption of another installation. Keeps the newest former IDs."""
        former = tuple(one for one in self.all if one != taken)
        return Installations(taken, former[:MOST_FORMER])


@dataclass(frozen=True, slots=True)
class Address:
    """An address to listen on. Port 0 means any free port. IPv6 hosts have no brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return `host:port`, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Return whether only this host can reach it."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Return True for `localhost`, 127.0.0.0/8 and ::1."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
