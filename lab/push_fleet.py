"""Makes the settings of a laboratory from a push."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from autoscaler.model.wait_objectives import DEFAULT_OBJECTIVES, WAIT_BUCKETS
from lab.fleet import LabFleet
from lab.github.settings import Patience
from lab.kubernetes.lab_pods import PROVIDER, LabNode
from lab.push import NODE_ACCELERATORS, Push, PushPods

_DEADLINE = 120.0
"""Minimum deadline for each stage before a job, in real seconds: machines boot at this host's speed."""


_MACHINE_SCALE = 20.0
"""Seconds of a machine per real second, of which its agent counts its timers.

A machine powers off if its agent does not start within 20 minutes, or gets no answer for 15.
On a busy host, 15 and 11 real seconds are too short for that."""

_SILENCE = 60.0
"""Minimum silence of a runner in real seconds until GitHub fails its job or gives it to another runner.

With a load of 35 on two cores, healthy runners were silent for more than 7 s."""


def lab_fleet(push: Push, scale: float) -> LabFleet:
    """Return the settings of a laboratory that can run this push."""
    owner, _, name = push.repository.partition("/")
    seconds = _DEADLINE * scale
    deadlines = {
        stage: f"{max(least, seconds):.0f}s"
        for stage, least in (("boot", 1800.0), ("health_checks", 600.0), ("ready_silence", 300.0))
    }
    return LabFleet(
        organization=owner,
        repositories=(name,),
        skus={
            label: {
                "on": [{"provider": "lab", "instance_types": [sku.instance_type]}],
                "os": sku.os.value,
                "arch": sku.arch.value,
                "disk_gb": sku.disk_gb,
                "deadlines": deadlines,
            }
            for label, sku in push.skus.items()
        }
        | {label: _on_pods(pods, deadlines) for label, pods in push.pods.items()},
        scale=scale,
        machine_scale=max(min(scale, _MACHINE_SCALE), scale / 4),
        github_patience=Patience(real_floor=_SILENCE),
        wait_objective=_objective(seconds),
        nodes=_nodes(push),
    )


def _objective(seconds: float) -> int:
    """Return how soon jobs are to start: within the first bucket that has room for a stage's deadline.

    The default, 300 s of lab time, is 4 real seconds at the demo's scale: no machine boots in that.
    """
    (default,) = DEFAULT_OBJECTIVES
    least = max(default.seconds, seconds)
    return next((bucket for bucket in WAIT_BUCKETS if bucket >= least), WAIT_BUCKETS[-1])


def _on_pods(pods: PushPods, deadlines: Mapping[str, str]) -> dict[str, Any]:
    """Return the SKU of jobs that run on pods."""
    pod = {
        "image": "ghcr.io/actions/actions-runner:2.338.0",
        "resources": {"cpu": "4", "memory": "16Gi"},
        "accelerator_resource": pods.resource,
    }
    option = {"provider": PROVIDER, "price": pods.dollars_per_hour, "pod": pod}
    accelerator = {"vendor": pods.vendor, "count": pods.count}
    return {"on": [option], "accelerator": accelerator, "deadlines": dict(deadlines)}


def _nodes(push: Push) -> tuple[LabNode, ...]:
    """Return nodes that have room for all pods at once, and one more of each kind."""
    wanted: Counter[str] = Counter()
    for label, pods in push.pods.items():
        wanted[pods.resource] += push.jobs_by_label[label] * pods.count
    return tuple(
        LabNode({resource: str(NODE_ACCELERATORS)})
        for resource, count in wanted.items()
        for _ in range(math.ceil(count / NODE_ACCELERATORS) + 1)
    )
