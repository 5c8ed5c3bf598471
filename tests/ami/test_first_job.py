"""From an empty account to a job, in two commands: `autoscaler images bake` and `autoscaler serve`.

The machine is the image's disk with systemd, cloud-init, and the agent that the build installed.
"""

import re

import pytest

from autoscaler.model.machines import ExitReason, Machine
from lab.ec2.instances import Instance
from lab.ec2.lifecycle import BY_ITSELF
from lab.github.records import Job
from tests.ami.conftest import Built, Place
from tests.lab.system.harness import at_rest, job, read_records, until
from tests.lab.system.pace import PATIENCE

SESSION = pytest.mark.asyncio(loop_scope="session")


def bake_stages(built: Built) -> list[tuple[str, float]]:
    """Return the stages and steps that `autoscaler images bake` printed, with their seconds."""
    steps = re.findall(r"image-build: step (\w+): (\d+) s", built.output)
    stages = dict(re.findall(r"^stage ([\w ]+): (\d+) s$", built.output, re.MULTILINE))
    named = [(f"build: {name}", float(seconds)) for name, seconds in steps]
    test = ("test and publish", float(stages["test"]))
    return [*named, ("build", float(stages["build"])), test, ("images bake", built.seconds)]


def machine_of(at: Place, done: Job) -> tuple[Machine, Instance]:
    """Return the machine that ran a job: the controller's record, and EC2's instance."""
    records = read_records(at.lab)
    [runner] = [one for one in records.runners if done.starts == [one.name]]
    [machine] = [one for one in records.machines if one.id == runner.machine]
    instance = at.ec2.instances.find(machine.placement.provider_id or "")
    assert instance is not None
    return machine, instance


def job_stages(at: Place, done: Job) -> list[tuple[str, float]]:
    """Return the stages from the queued job to the end of its machine, with their seconds."""
    machine, instance = machine_of(at, done)
    moments = [
        # `launched_at` has whole seconds, as at EC2.
        ("launch", at.ec2.first_sent[instance.client_token]),
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


@SESSION
@pytest.mark.case(
    "an image gets jobs only after it tested itself on a machine: a newer one without the tag is passed over",
    topic="Images and disks",
    source="EC2: DescribeImages",
)
async def test_the_agent_of_a_baked_image_runs_a_job_and_powers_off(
    account: Place, built: Built, serving: float, request: pytest.FixtureRequest
) -> None:
    [done] = account.lab.github.push([job("first", "baked", 1.0)])
    await at_rest(account.lab, PATIENCE)

    _, instance = machine_of(account, done)
    assert instance.specification.image.id == built.image.id
    assert (done.conclusion, done.stepped, len(done.starts)) == ("success", True, 1)
    assert instance.reason is not None
    assert instance.reason[0] == BY_ITSELF[0]
    disk = account.host.disk(instance.id)
    # The runner of the image ran the job between the agent's two hooks.
    [log] = (disk / "opt/actions-runner/_diag").glob("Runner_*.log")
    assert "Acknowledging runner request" in log.read_text()
    # The user data found the agent of the image genuine, and fetched no other.
    assert not (disk / "opt/runner-agent/agent.py").exists()
    serve = ("serve until it is ready", serving)
    stages = [*bake_stages(built), serve, *job_stages(account, done)]
    assert all(seconds >= 0 for _, seconds in stages), stages
    # `pytest -rP` shows it.
    table = "\n".join(f"{name:32}{seconds:6.1f} s" for name, seconds in stages)
    request.node.add_report_section("call", "stages", table)


@SESSION
@pytest.mark.usefixtures("serving")
@pytest.mark.case(
    "the machine is shut down under a job, as for a spot interruption: the listener has 30 seconds to cancel "
    "the job",
    topic="Runner and listener",
    source="actions/runner Runner.cs",
)
async def test_a_machine_that_is_shut_down_lets_its_runner_cancel_the_job(account: Place) -> None:
    lab = account.lab
    [cut] = lab.github.push([job("cut short", "baked", 3600.0)])
    await until(lambda: cut.started_at is not None, PATIENCE, lab.controller.log_end)
    machine, instance = machine_of(account, cut)
    lab.ec2.interrupt(instance.id)
    await at_rest(lab, PATIENCE)
    machine, _ = machine_of(account, cut)
    # Without the runner's word, GitHub would fail the job only after ten minutes.
    assert (cut.conclusion, machine.work.exit_reason) == ("failure", ExitReason.STOPPED)
