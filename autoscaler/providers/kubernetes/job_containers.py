"""Returns what a job finds in its pod: the runner's container without the cluster around it. Pure."""

from collections.abc import Mapping
from typing import Any

from autoscaler.config.settings.fleet import JobContainer
from autoscaler.providers.kubernetes.quantities import quantity
from autoscaler.providers.kubernetes.settings import RUNNER_USER
from autoscaler.providers.kubernetes.shared_memory import bytes_of

RUNNER = "runner"


def job_container(
    image: str,
    resources: Mapping[str, str],
    overlay: Mapping[str, Any],
    shared_memory: str | None = None,
) -> JobContainer:
    """Return the container of a pod's jobs, with the image and the variables of its overlay."""
    found = overlay.get("spec", {}).get("containers", ())
    runner: Mapping[str, Any] = next((one for one in found if one.get("name") == RUNNER), {})
    entries = [one for one in runner.get("env", ()) if one.get("name")]
    cpu, memory = resources.get("cpu"), resources.get("memory")
    return JobContainer(
        image=runner.get("image", image),
        user=RUNNER_USER,
        cpus=None if cpu is None else float(quantity(cpu)),
        memory=None if memory is None else int(quantity(memory)),
        shared_memory=bytes_of(shared_memory, memory),
        environment={
            one["name"]: str(one.get("value", "")) for one in entries if "valueFrom" not in one
        },
        unknown=tuple(one["name"] for one in entries if "valueFrom" in one),
    )
