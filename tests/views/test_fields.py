"""The views of a machine and of a job show each field of their records."""

from dataclasses import asdict

from autoscaler.model.identifiers import MachineId
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import TerminationReason
from autoscaler.views import machines
from autoscaler.views.jobs.job import view_of
from tests.ledger.builders import World


def test_a_machine_is_shown_with_each_field_of_its_record() -> None:
    world = World()
    runner = world.ready()
    world.queue(1)
    world.starts(1, runner)
    machine = world.machine("c0")
    machine.termination.attempts = 2
    machine.termination.reason = TerminationReason.LIFETIME
    machine.failure = FailureClass.QUOTA
    machine.reason, machine.termination.error = (
        "its lifetime is over",
        "not shown before it is late",
    )
    machine.since, machine.created_at, machine.due = 11.0, 12.0, 13.0
    machine.progress.stage, machine.progress.runner_version = "docker", "2.330.0"
    machine.placement.image, machine.work.last_seen = "ami-2", 14.0
    shown = machines.view_of(world.fleet(), machine)
    assert asdict(shown) == {
        "id": "c0",
        "provider": "east",
        "provider_id": "i-c0",
        "sku": "gpu",
        "state": "assigned",
        "since": 11.0,
        "created_at": 12.0,
        "due": 13.0,
        "stage": "docker",
        "reason": "its lifetime is over",
        "code": "lifetime",
        "failure": FailureClass.QUOTA.value,
        "instance_type": "g5.xlarge",
        "zone": "a",
        "capacity_type": "on-demand",
        "image": "ami-2",
        "runner_version": "2.330.0",
        "dollars_per_hour": 1.0,
        "runner": runner,
        "job": 1,
        "last_seen": 14.0,
        "interruption": None,
        "unverified": None,
        "operator_hold": None,
        "terminations": 2,
        "provider_words": "",
        "image_name": "",
    }


def test_a_job_is_shown_with_each_field_of_its_record() -> None:
    world = World()
    runner = world.ready()
    world.queue(1)
    world.starts(1, runner)
    job = world.job(1)
    job.workflow, job.name, job.run_id, job.run_attempt = "CI", "test", 7, 2
    job.queued_at, job.started_at, job.completed_at = 11.0, 12.0, 13.0
    job.conclusion = "failure"
    assert asdict(view_of(world.fleet(), {}, job)) == {
        "id": 1,
        "repository": "acme/widgets",
        "workflow": "CI",
        "name": "test",
        "run_id": 7,
        "run_attempt": 2,
        "labels": ("gpu",),
        "state": "in_progress",
        "sku": "gpu",
        "queued_at": 11.0,
        "started_at": 12.0,
        "completed_at": 13.0,
        "conclusion": "failure",
        "runner": runner,
        "machine": MachineId("c0"),
        "wait": None,
    }
