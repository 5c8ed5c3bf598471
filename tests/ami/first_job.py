"""A first job on a fleet of baked images, and how long each stage of its machine took."""

from autoscaler.model.machines.machine import Machine
from lab.ec2.instances import Instance
from lab.github.records import Job
from lab.laboratory import Laboratory
from tests.lab.system.harness import at_rest, job, read_records
from tests.lab.system.pace import PATIENCE

Stage = tuple[str, float]
"""A stage, and its seconds."""


async def run_first_job(lab: Laboratory) -> Job:
    """Push one job of a second, and return it when nothing is under way any more."""
    [done] = lab.github.push([job("first", "baked", 1.0)])
    await at_rest(lab, PATIENCE)
    return done


def machine_of(lab: Laboratory, done: Job) -> tuple[Machine, Instance]:
    """Return the machine that ran a job: the controller's record, and EC2's instance."""
    records = read_records(lab)
    [runner] = [one for one in records.runners if done.starts == [one.name]]
    [machine] = [one for one in records.machines if one.id == runner.machine]
    instance = lab.ec2.instances.find(machine.placement.provider_id or "")
    assert instance is not None
    return machine, instance


def job_stages(lab: Laboratory, done: Job) -> list[Stage]:
    """Return the stages from the queued job to the end of its machine."""
    machine, instance = machine_of(lab, done)
    moments = [
        # `launched_at` has whole seconds, as at EC2.
        ("launch", lab.ec2.first_sent[instance.client_token]),
        ("EC2 until running", instance.running_at),
        ("boot until the agent attests", machine.progress.booted_at),
        ("health checks", machine.progress.ready_at),
        ("register", machine.progress.assigned_at),
        ("runner until the job starts", done.started_at),
        ("job", done.completed_at),
        ("exit report and power-off", instance.ended_at),
    ]
    stages, last = [], done.queued_at
    for name, moment in moments:
        assert last is not None
        assert moment is not None, name
        stages.append((name, moment - last))
        last = moment
    return stages
