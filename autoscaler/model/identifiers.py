"""Identifiers, each with its own type so that mypy finds a mix-up."""

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
