"""From an empty account to a job, in two commands: `autoscaler images bake` and `autoscaler serve`.

The machine is the image's disk with systemd, cloud-init, and the agent that the build installed.
"""

import re

import pytest

from lab.ec2.images import Image
from lab.ec2.instances import Instance
from lab.github.records import Job
from tests.ami.conftest import Built, Place
from tests.lab.system.harness import at_rest, job, read_records
from tests.lab.system.pace import PATIENCE

SESSION = pytest.mark.asyncio(loop_scope="session")


def bake_stages(built: Built) -> list[tuple[str, float]]:
    """Return the stages and steps that `autoscaler images bake` printed, with their seconds."""
    steps = re.findall(r"image-build: step (\w+): (\d+) s", built.output)
    stages = dict(re.findall(r"^stage ([\w ]+): (\d+) s$", built.output, re.MULTILINE))
    named = [(f"build: {name}", float(seconds)) for name, seconds in steps]
    test = ("test and publish", float(stages["test"]))
    return [*named, ("build", float(stages["build"])), test, ("images bake", built.seconds)]


def job_stages(at: Place, machine: Instance, done: Job, began: float) -> list[tuple[str, float]]:
    """Return the stages from the start of `autoscaler serve` to the end of the machine, with their seconds."""
    [record] = read_records(at.lab).machines
    moments = [
        ("serve until the job is queued", done.queued_at),
        # `launched_at` has whole seconds, as at EC2.
        ("launch", at.ec2.first_sent[machine.client_token]),
        ("EC2 until running", machine.running_at),
        ("boot until the agent attests", record.progress.booted_at),
        ("health checks", record.progress.ready_at),
        ("register", record.progress.assigned_at),
        ("runner until the job starts", done.started_at),
        ("job", done.completed_at),
        ("exit report and power-off", machine.ended_at),
    ]
    stages, last = [], began
    for name, moment in moments:
        assert moment is not None, name
        stages.append((name, moment - last))
        last = moment
    return stages


def machine_of(at: Place, image: Image) -> Instance:
    """Return the fleet's machine. Fails if there is more than one, or if its image is another."""
    [machine] = [one for one in at.ec2.instances if "autoscaler:sku" in one.tags]
    assert machine.specification.image.id == image.id
    return machine


@SESSION
@pytest.mark.case(
    "an image gets jobs only after it tested itself on a machine: a newer one without the tag is passed over",
    topic="Images and disks",
    source="EC2: DescribeImages",
)
async def test_the_agent_of_a_baked_image_runs_a_job_and_powers_off(
    account: Place, built: Built, request: pytest.FixtureRequest
) -> None:
    lab = account.lab
    unpublished = {
        key: value for key, value in built.image.tags.items() if key != "autoscaler:published"
    }
    account.ec2.images.publish(built.image, "autoscaler/linux-cpu-x64-29991231-000000", unpublished)
    began = lab.clock.now()
    await lab.start_controller()
    [done] = lab.github.push([job("first", "baked", 1.0)])
    await at_rest(lab, PATIENCE)

    machine = machine_of(account, built.image)
    assert (done.conclusion, done.stepped, len(done.starts)) == ("success", True, 1)
    assert machine.reason is not None
    assert machine.reason[0] == "Client.InstanceInitiatedShutdown"
    disk = account.host.disk(machine.id)
    # The runner of the image ran the job between the agent's two hooks.
    [log] = (disk / "opt/actions-runner/_diag").glob("Runner_*.log")
    assert "Acknowledging runner request" in log.read_text()
    # The user data found the agent of the image genuine, and fetched no other.
    assert not (disk / "opt/runner-agent/agent.py").exists()
    stages = bake_stages(built) + job_stages(account, machine, done, began)
    assert all(seconds >= 0 for _, seconds in stages), stages
    # `pytest -rP` shows it.
    table = "\n".join(f"{name:32}{seconds:6.1f} s" for name, seconds in stages)
    request.node.add_report_section("call", "stages", table)
