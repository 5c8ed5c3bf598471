"""Compares the two launch times of a machine: from the provider's list and from the machine's proof."""

from datetime import datetime

import structlog

from autoscaler.controller.ports.provider import ProvenIdentity
from autoscaler.model.identifiers import Seconds
from autoscaler.model.machines.machine import Machine

MAY_DIFFER_BY: Seconds = 300.0
"""No document says that EC2's `LaunchTime` and an identity document's `pendingTime` are equal."""

_log = structlog.get_logger(__name__)


def launch_times_fit(machine: Machine, identity: ProvenIdentity) -> bool:
    """Return True if the two launch times differ by at most five minutes. Logs any difference.

    Values that are not ISO 8601 times must be equal.
    """
    if machine.placement.launch_time == identity.launch_time:
        return True
    try:
        proven = datetime.fromisoformat(identity.launch_time)
        apart = (proven - datetime.fromisoformat(machine.placement.launch_time)).total_seconds()
    except (ValueError, TypeError):
        return False
    fit = abs(apart) <= MAY_DIFFER_BY
    # Too large a difference makes every attestation of this machine fail, so it is a warning.
    log = _log.info if fit else _log.warning
    log("launch_time_differs", machine=machine.id, proven_later_by_seconds=apart)
    return fit
