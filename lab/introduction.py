"""What the demo prints first: what it replays, and which of its parts are real."""

from collections.abc import Mapping

from autoscaler.model.wording import counted
from lab.push import Push
from lab.verdict import Fault

_FAULTS: Mapping[Fault | None, tuple[str, ...]] = {
    Fault.LOST_JOB: (
        "On purpose, GitHub forgets one queued job. The demo passes if it reports that.",
    ),
    Fault.LEAKED_MACHINE: (
        "On purpose, EC2 does not terminate one machine. The demo passes if it reports that.",
    ),
}
_REPLICAS = (
    "Three replicas of the controller share a store on a real PostgreSQL server, behind a balancer.\n"
    "On purpose, the one that leads is killed with SIGKILL, and a later leader is suspended for a minute."
)


def introduction(push: Push, scale: float, fault: Fault | None, *, replicas: bool) -> str:
    """Return the words. `scale` is lab seconds per real second; `replicas`: several share the store."""
    counts = push.jobs_by_label
    windows = sum(counts[name] for name, sku in push.skus.items() if sku.os.value == "windows")
    lines = [
        f"Replaying {push.about}:",
        f"{counted(push.count, 'job')}. Lab time runs {scale:.3g} times as fast as real time.",
        "Machines boot at this host's speed, so waits look longer than on EC2.",
        *_FAULTS.get(fault, ()),
        *([_REPLICAS] if replicas else ()),
        "The controller and the agent on each machine are the real programs.",
        "GitHub, EC2 and GitHub's runner program are simulated on this host.",
    ]
    if windows:
        lines.append("Windows machines run the same agent. Their PowerShell is parsed but not run.")
    if push.pods:
        lines.append(
            f"{sum(counts[label] for label in push.pods)} jobs run in pods. Kubernetes' API server, "
            "scheduler and controllers\nare the real programs, and its kubelets are simulated."
        )
    return "\n".join(lines)
