"""Which steps of a replay the demo words, and that it words each of them once."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from lab.ec2.instances import InstanceState
from lab.first_steps import FirstSteps
from lab.github.records import JobStatus

if TYPE_CHECKING:
    from lab.ec2.service import LabEc2
    from lab.github.server import LabGitHub
    from lab.kubernetes.lab_pods import LabPods


@dataclass
class Records:
    """The part of a laboratory that the steps are read from."""

    jobs: list[Any] = field(default_factory=list)
    runners: list[Any] = field(default_factory=list)
    instances: list[Any] = field(default_factory=list)
    pods: list[Any] = field(default_factory=list)


def steps_of(records: Records) -> FirstSteps:
    return FirstSteps(
        cast("LabGitHub", records),
        cast("LabEc2", records),
        cast("LabPods", records.pods),
        ("cpu", "gpu"),
        60.0,
    )


def job(sku: str, status: JobStatus) -> SimpleNamespace:
    queued = None if status is JobStatus.BLOCKED else 1.0
    spec = SimpleNamespace(labels=(sku,), seconds=120.0)
    return SimpleNamespace(spec=spec, status=status, queued_at=queued, conclusion="success")


def instance(sku: str, state: InstanceState) -> SimpleNamespace:
    return SimpleNamespace(tags={"autoscaler:sku": sku}, instance_type="m7g.large", state=state)


def test_the_steps_of_a_sku_are_worded_in_order_and_once() -> None:
    records = Records([job("cpu", JobStatus.QUEUED), job("gpu", JobStatus.BLOCKED)])
    steps = steps_of(records)
    assert steps.new({}) == ["GitHub queues 1 job for cpu"]
    assert steps.new({}) == []
    records.jobs = [job("cpu", JobStatus.IN_PROGRESS), job("cpu", JobStatus.COMPLETED)]
    records.instances = [instance("cpu", InstanceState.TERMINATED)] * 2
    records.runners = [SimpleNamespace(labels=("cpu",))]
    assert steps.new({}) == [
        "The controller launches 2 machines for cpu (m7g.large)",
        "A machine of cpu is ready; the controller registers its runner",
        "GitHub starts a job on cpu, for 2 real seconds",
        "A job on cpu ends: success",
        "EC2 terminates a machine of cpu",
    ]
    assert steps.new({}) == []
    records.pods.append(SimpleNamespace(sku="gpu"))
    assert steps.new({}) == ["The controller creates 1 pod for gpu"]


def test_a_refused_launch_is_worded_once_for_each_zone_and_reason() -> None:
    steps = steps_of(Records())
    name = "autoscaler_offerings_refused_total"
    labels = 'capacity_type="spot",provider="lab",reason="capacity",zone="us-east-1a"'
    other = labels.replace("1a", "1b")
    assert steps.new({f"{name}{{{labels}}}": 2.0, f"{name}{{{other}}}": 0.0}) == [
        "Provider lab refuses a launch in us-east-1a: capacity"
    ]
    assert steps.new({f"{name}{{{labels}}}": 3.0, f"{name}{{{other}}}": 1.0}) == [
        "Provider lab refuses a launch in us-east-1b: capacity"
    ]
