"""The fields with which log lines name a machine, a runner or a job, the same in every line."""

from autoscaler.model.identifiers import RunnerName
from autoscaler.model.jobs.job import Job
from autoscaler.model.jobs.runners import machine_in_any_name
from autoscaler.model.machines.machine import Machine


def machine_fields(machine: Machine) -> dict[str, object]:
    """Return the IDs of a machine and its launch request, and where it runs."""
    return {
        "machine": machine.id,
        "launch_request": machine.launch_request,
        "sku": machine.sku,
        "provider": machine.provider,
        "provider_id": machine.placement.provider_id,
    } | ({"host": machine.placement.host} if machine.placement.host else {})


def runner_name_fields(fleet: str, name: RunnerName) -> dict[str, object]:
    """Return the name of a registration at GitHub, and the ID of its machine, which the name contains."""
    return {"runner": name, "machine": machine_in_any_name(fleet, name)}


def job_fields(job: Job) -> dict[str, object]:
    """Return the ID of a job, its repository, and its run and runner if they are known."""
    known: dict[str, object] = {"job": job.id, "repository": job.repository}
    if job.run_id is not None:
        known["run"] = job.run_id
    if job.runner_name is not None:
        known["runner"] = job.runner_name
    return known
