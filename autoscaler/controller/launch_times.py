"""Whether the two launch times of a machine fit: the one that its list shows and the one it proves."""

from datetime import datetime

import structlog

from autoscaler.controller.ports.provider import ProvenIdentity
from autoscaler.model.identifiers import Seconds
from autoscaler.model.machines import Machine

MAY_DIFFER_BY: Seconds = 300.0
"""No document says that EC2's `LaunchTime` and an identity document's `pendingTime` are equal."""

_log = structlog.get_logger(__name__)


def launch_times_fit(machine: Machine, identity: ProvenIdentity) -> bool:
    """Return whether a machine was launched when its proof says, give or take five minutes.

    Logs a difference, also one that is refused. Texts that are no ISO 8601 times must be equal.
    """
    if machine.launch_time == identity.launch_time:
        return True
    try:
        proven = datetime.fromisoformat(identity.launch_time)
        apart = (proven - datetime.fromisoformat(machine.launch_time)).total_seconds()
    except (ValueError, TypeError):
        return False
    fit = abs(apart) <= MAY_DIFFER_BY
    # A proof that does not fit comes with every attempt of its machine, so it is worth a warning.
    log = _log.info if fit else _log.warning
    log("launch_time_differs", machine=machine.id, proven_later_by_seconds=apart)
    return fit
