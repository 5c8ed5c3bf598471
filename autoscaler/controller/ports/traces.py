"""The port for traces: what one job waited for, reported when it starts."""

from dataclasses import dataclass
from typing import Protocol

from autoscaler.model.identifiers import (
    Instant,
    JobId,
    LaunchRequestId,
    MachineId,
    ProviderName,
    RunnerName,
    SkuName,
)


@dataclass(frozen=True, slots=True)
class Stage:
    """One part of a wait. Moments are Unix seconds."""

    name: str
    began: Instant
    ended: Instant


@dataclass(frozen=True, slots=True)
class WaitTrace:
    """The wait of one job, from `queued_at` to `started_at`. The stages follow each other without gaps.

    The machine's fields are None if GitHub named a runner that the controller does not know.
    """

    job: JobId
    run: int | None
    repository: str
    sku: SkuName
    queued_at: Instant
    started_at: Instant
    stages: tuple[Stage, ...]
    runner: RunnerName | None = None
    machine: MachineId | None = None
    launch_request: LaunchRequestId | None = None
    provider: ProviderName | None = None


class TraceTelemetry(Protocol):
    """Where traces go."""

    def trace_job(self, trace: WaitTrace) -> None:
        """Export the trace of a job that started. Neither raises nor blocks: what cannot be sent is dropped."""
