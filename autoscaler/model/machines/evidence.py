"""What the controller has learned since its start about machines that its store had before.

A store may be a restored backup, older than an assignment. So its record of a machine needs evidence. This
module has the rules of that evidence, and how long to wait for it.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from autoscaler.model.identifiers import Instant, MachineId, ProviderName, Seconds
from autoscaler.model.machines.machine import Machine

SHOWN_AT_GITHUB_WITHIN: Seconds = 60.0
"""GitHub's listings lag by up to this long. A listing of runners that begins this long after the start of the
controller shows every runner that got its JIT configuration from an earlier process."""

READY_TRUSTED_FOR: Seconds = 120.0
"""How long after a start a machine that was ready before counts as supply, although its agent was silent."""

EVIDENCE_TIME: Seconds = 300.0
"""After a start, machines from before it do not fail their boot or health checks for this long, because a
listing may show that they run jobs."""

RESTORED_FROM: Seconds = 120.0
"""A store whose last heartbeat is older than this at the start may be a restored backup. After a shorter
absence, an idle machine gets a job without waiting for GitHub's list."""


@dataclass(frozen=True, slots=True)
class StartEvidence:
    """When the controller started, and when the oldest listing of runners of all scopes began.

    `runners_listed_at` is 0.0 until each scope was listed. `machines_listed_at` has the providers of which a
    complete listing began since the start. `created_since_start` has machines of earlier launch requests that
    the provider created since then, as its answer showed.
    """

    started_at: Instant
    runners_listed_at: Instant = 0.0
    machines_listed_at: Mapping[ProviderName, Instant] = field(default_factory=dict)
    created_since_start: AbstractSet[MachineId] = frozenset()

    def proves_record_of(self, machine: Machine) -> bool:
        """Return True if no assignment of the machine can be missing in its record.

        It was requested or created since the start, or its agent has attested or polled since then.
        """
        created = machine.created_at >= self.started_at or machine.id in self.created_since_start
        return machine.work.agent_seen or created

    def proves_unused(self, machine: Machine) -> bool:
        """Return True if the machine certainly never got a JIT configuration."""
        return machine.is_unassigned and self.proves_record_of(machine)

    def is_missing_for(self, machine: Machine) -> bool:
        """Return True if the machine may have been assigned before the start, without a record of it.

        This holds until its agent attests or polls, or until GitHub's listings of runners of all
        scopes, which would show its runner, are new enough. A listing that began before the machine
        was found proves nothing about it.
        """
        if not machine.is_unassigned or self.proves_record_of(machine):
            return False
        proof_from = max(self.started_at + SHOWN_AT_GITHUB_WITHIN, machine.since)
        return self.runners_listed_at < proof_from

    def has_no_list_with(self, machine: Machine) -> bool:
        """Return True if the machine may have been assigned, and its provider was not listed since the start.

        A listing shows a machine that the store does not know, so that the store is a restored backup.
        GitHub's listings are not relied on alone: during an incident they may lack a busy runner.
        """
        without_proof = machine.is_unassigned and not self.proves_record_of(machine)
        return without_proof and machine.provider not in self.machines_listed_at

    def may_still_poll(self, now: Instant) -> bool:
        """Return True while the agents of machines from before the start have time to poll."""
        return now < self.started_at + READY_TRUSTED_FOR
