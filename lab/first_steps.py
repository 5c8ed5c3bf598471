"""Words the first time that a SKU takes each step of a replay, from the queued job to the terminated machine.

Later jobs of the SKU take the same steps, and the progress counts them.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from autoscaler.model.wording import counted
from lab.ec2.instances import InstanceState
from lab.ec2.service import LabEc2
from lab.github.records import Job, JobStatus
from lab.github.server import LabGitHub
from lab.kubernetes.lab_pods import LabPods

_ORDER = ("queued", "launched", "refused", "registered", "started", "completed", "terminated")
_REFUSED = re.compile(r"autoscaler_offerings_refused_total\{(.*)\}")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class FirstSteps:
    """The steps that were not yet shown. It only reads the lab's records and the controller's metrics.

    `skus` are the labels of the machines. `scale` is lab seconds per real second.
    """

    def __init__(
        self,
        github: LabGitHub,
        ec2: LabEc2,
        pods: LabPods | None,
        skus: Collection[str],
        scale: float,
    ) -> None:
        self._github = github
        self._ec2 = ec2
        self._pods = pods
        self._skus = frozenset(skus)
        self._scale = scale
        self._shown: set[tuple[str, str]] = set()

    def new(self, metrics: Mapping[str, float]) -> list[str]:
        """Return lines for the steps that are new since the last call. `metrics` are the controller's."""
        steps = (
            *self._of_jobs(),
            *self._of_machines(),
            *_refusals(metrics),
            *self._of_registrations(),
        )
        in_order = sorted(steps, key=lambda step: _ORDER.index(step[0]))
        return [line for step, name, line in in_order if self._is_new(step, name)]

    def _is_new(self, step: str, name: str) -> bool:
        if (step, name) in self._shown:
            return False
        self._shown.add((step, name))
        return True

    def _of_jobs(self) -> Iterator[tuple[str, str, str]]:
        jobs = self._github.jobs
        queued = Counter(_sku(job) for job in jobs if job.queued_at is not None)
        for sku, count in queued.items():
            yield "queued", sku, f"GitHub queues {counted(count, 'job')} for {sku}"
        for job in jobs:
            if job.status is JobStatus.IN_PROGRESS:
                seconds = round(job.spec.seconds / self._scale)
                line = f"GitHub starts a job on {_sku(job)}, for {counted(seconds, 'real second')}"
                yield "started", _sku(job), line
            if job.status is JobStatus.COMPLETED:
                yield "completed", _sku(job), f"A job on {_sku(job)} ends: {job.conclusion}"

    def _of_machines(self) -> Iterator[tuple[str, str, str]]:
        launched: dict[str, list[str]] = {}
        for one in self._ec2.instances:
            sku = one.tags.get("autoscaler:sku", "?")
            launched.setdefault(sku, []).append(one.instance_type)
            if one.state is InstanceState.TERMINATED:
                yield "terminated", sku, f"EC2 terminates a machine of {sku}"
        for sku, types in launched.items():
            count = counted(len(types), "machine")
            yield "launched", sku, f"The controller launches {count} for {sku} ({types[0]})"
        pods = Counter(pod.sku for pod in self._pods or ())
        for sku, made in pods.items():
            yield "launched", sku, f"The controller creates {counted(made, 'pod')} for {sku}"

    def _of_registrations(self) -> Iterator[tuple[str, str, str]]:
        for runner in self._github.runners:
            for sku in self._skus & set(runner.labels):
                line = f"A machine of {sku} is ready; the controller registers its runner"
                yield "registered", sku, line


def _sku(job: Job) -> str:
    """Return the label that names the SKU. Before it may be `self-hosted`."""
    return job.spec.labels[-1]


def _refusals(metrics: Mapping[str, float]) -> Iterator[tuple[str, str, str]]:
    """Yield the launches that a provider refused, by zone and reason."""
    for name, count in metrics.items():
        found = _REFUSED.fullmatch(name)
        if found is not None and count:
            said = dict(_LABEL.findall(found[1]))
            line = (
                f"Provider {said['provider']} refuses a launch in {said['zone']}: {said['reason']}"
            )
            yield "refused", name, line
