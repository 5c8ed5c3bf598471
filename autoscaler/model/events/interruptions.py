"""Interruption notices of providers, and requests to GitHub to rerun interrupted jobs."""

from dataclasses import dataclass

from autoscaler.model.events.event import Event
from autoscaler.model.identifiers import Instant, JobId, ProviderMachineId, ProviderName
from autoscaler.model.machines.interruptions import NoticeKind, RerunOutcome


@dataclass(frozen=True, slots=True)
class MachineNoticed(Event):
    """A provider announced that it will, or may, interrupt a machine at `means_at`.

    `detail` is text of bounded length. The machine may belong to another fleet.
    """

    provider: ProviderName
    provider_id: ProviderMachineId
    kind: NoticeKind
    means_at: Instant
    detail: str = ""


@dataclass(frozen=True, slots=True)
class RerunRequested(Event):
    """The controller is about to ask GitHub to rerun these jobs of one workflow run."""

    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class RerunAnswered(Event):
    """GitHub answered a request to rerun jobs. `outcome` is None if they cannot be rerun yet."""

    jobs: tuple[JobId, ...]
    outcome: RerunOutcome | None
    detail: str = ""
