"""The alerts of a fleet with several replicas on one PostgreSQL database.

A fleet's replicas are one `job` of Prometheus. The metrics of jobs and machines exist at the leader alone, so
the rules of the other alerts add up, or take the maximum, over all replicas.
"""

from collections.abc import Iterator

from autoscaler.model.identifiers import Seconds
from autoscaler.model.reasons.entry import Runbook, Severity
from autoscaler.observability.alerting import HOUR, MINUTE, Alert, span

WITHOUT_LEADER: Seconds = MINUTE
"""Four times the length of a lease, after which another replica leads."""

MOST_CHANGES = 3
"""Changes of the leader in an hour that are no fault, such as those of a rolling upgrade of three replicas."""


def replica_alerts(scale: float) -> Iterator[Alert]:
    """Yield the alerts. They never fire with SQLite, where one process always leads and there is no lease."""
    yield Alert(
        Runbook("NoLeader", Severity.PAGE),
        "max by (job) (autoscaler_leader) == 0",
        WITHOUT_LEADER,
        "No replica leads the fleet: jobs get no machine. Webhooks are stored if the database can be reached.",
    )
    # The epoch of a replica that cannot reach the database is 0.
    epoch = "max by (job) (autoscaler_lease_epoch > 0)"
    yield Alert(
        Runbook("LeaderChangesOften", Severity.TICKET),
        f"changes(({epoch})[{span(HOUR * scale)}:{span(MINUTE * scale)}]) > {MOST_CHANGES}",
        0.0,
        "The fleet's leader has changed {{ $value }} times in an hour.",
    )
    yield Alert(
        Runbook("ReplicaBehind", Severity.TICKET),
        "autoscaler_lease_epoch < on (job) group_left () max by (job) (autoscaler_lease_epoch)",
        MINUTE,
        "The replica {{ $labels.instance }} does not see the leader that others see: it cannot reach the "
        "database, or reaches another one.",
    )
