"""Computes the earliest moment at which each job's machine can be requested within EC2's limits. Pure.

The ideal fleet knows a job when its delivery was accepted, and plans in no time. It sends a call whenever the
bucket has a token: for the SKU whose job has waited longest, for all jobs that wait for that SKU.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.model.catalogue import Rate


@dataclass(slots=True)
class _Bucket:
    rate: Rate
    level: float
    at: float

    def ready_at(self) -> float:
        """Return when the next token is available."""
        return self.at + max(0.0, 1.0 - self.level) / self.rate.per_second

    def take(self, moment: float) -> None:
        """Use a token at this moment, which must not be before `ready_at`."""
        self.level = self.rate.refilled(self.level, moment - self.at) - 1.0
        self.at = moment


@dataclass(slots=True)
class _Queues:
    waiting: dict[str, deque[int]] = field(default_factory=dict)

    def add(self, sku: str, job: int) -> None:
        self.waiting.setdefault(sku, deque()).append(job)

    def take_oldest(self) -> deque[int]:
        """Remove and return all jobs of the SKU with the oldest job."""
        return self.waiting.pop(min(self.waiting, key=lambda sku: self.waiting[sku][0]))


def earliest(accepted: Sequence[tuple[float, str]], rate: Rate) -> list[float]:
    """Return for each job, given as (moment, SKU) in order of time, when the ideal fleet sends its call."""
    sent = [0.0] * len(accepted)
    queues = _Queues()
    bucket = _Bucket(rate, float(rate.burst), accepted[0][0] if accepted else 0.0)
    for job, (moment, sku) in enumerate(accepted):
        _send_until(moment, bucket, queues, sent)
        queues.add(sku, job)
        if bucket.ready_at() <= moment:
            _send(moment, bucket, queues, sent)
    _send_until(float("inf"), bucket, queues, sent)
    return sent


def sent_at(
    accepted: Sequence[tuple[float, str]], calls: Mapping[str, Sequence[tuple[float, int]]]
) -> list[float]:
    """Return when each job's call was sent. A SKU's calls, (moment, machines), serve its jobs in order.

    Raises ValueError if the calls request fewer machines than there are jobs.
    """
    moments = {
        sku: iter([at for at, n in sorted(made) for _ in range(n)]) for sku, made in calls.items()
    }
    try:
        return [next(moments[sku]) for _, sku in accepted]
    except (KeyError, StopIteration):
        raise ValueError("the calls ask for fewer machines than there are jobs") from None


def _send_until(moment: float, bucket: _Bucket, queues: _Queues, sent: list[float]) -> None:
    while queues.waiting and bucket.ready_at() < moment:
        _send(bucket.ready_at(), bucket, queues, sent)


def _send(moment: float, bucket: _Bucket, queues: _Queues, sent: list[float]) -> None:
    bucket.take(moment)
    for job in queues.take_oldest():
        sent[job] = moment
