"""Names of things, each with a type of its own so that one is never passed for another."""

from typing import NewType

JobId = NewType("JobId", int)
"""GitHub's `workflow_job.id`: unique on one GitHub instance."""

LaunchRequestId = NewType("LaunchRequestId", str)
"""One request to a provider; also the value of the `launch_request` tag on its machines."""

MachineId = NewType("MachineId", str)
"""Ours, given before the provider is asked: a slot has one from the moment it is recorded."""

RunnerName = NewType("RunnerName", str)
"""A registration's name at GitHub: `<fleet>-<installation>-<machine>-<try>`, 64 characters at most."""

SkuName = NewType("SkuName", str)
ProviderName = NewType("ProviderName", str)

ProviderMachineId = NewType("ProviderMachineId", str)
"""The provider's own name for a machine, such as EC2's `i-0abc...`."""

InstallationId = NewType("InstallationId", str)
"""Random, made once with the store; tags everything this installation owns."""

Seconds = float
"""A duration in seconds."""

Instant = float
"""A moment: Unix seconds, as a `Clock` port gives them."""
