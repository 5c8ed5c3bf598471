"""Notices that a provider takes a machine back, and the jobs that run again because of one."""

from dataclasses import dataclass

from autoscaler.model.events.event import Event
from autoscaler.model.identifiers import Instant, JobId, ProviderMachineId, ProviderName
from autoscaler.model.interruptions import NoticeKind, RerunOutcome


@dataclass(frozen=True, slots=True)
class MachineNoticed(Event):
    """A provider gave notice that a machine is taken back, or may be. `means_at` is when.

    `detail` is bounded text. The machine may be anybody's.
    """

    provider: ProviderName
    provider_id: ProviderMachineId
    kind: NoticeKind
    means_at: Instant
    detail: str = ""


@dataclass(frozen=True, slots=True)
class RerunRequested(Event):
    """GitHub is about to be asked to run these jobs of one run again."""

    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class RerunAnswered(Event):
    """What GitHub made of it: an `outcome`, or None where these jobs can not be run again yet."""

    jobs: tuple[JobId, ...]
    outcome: RerunOutcome | None
    detail: str = ""
