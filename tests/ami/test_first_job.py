"""From an empty account to a job, in two commands: `make first-image` and `make first-job`.

The machine is the image's disk with systemd, cloud-init, and the agent that the build installed.
"""

import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from autoscaler.model.machines.machine import ExitReason
from lab.ec2.lifecycle import BY_ITSELF
from tests.ami.__main__ import BUILDS
from tests.ami.account import AMI, Place
from tests.ami.conftest import Built, make_folder
from tests.ami.first_job import machine_of, run_first_job
from tests.ami.test_linux_image import STEPS
from tests.lab.system.harness import at_rest, job, until
from tests.lab.system.pace import PATIENCE, stretched

SESSION = pytest.mark.asyncio(loop_scope="session")


def run(command: str, account: Path) -> subprocess.CompletedProcess[str]:
    """Run one of the two commands as its target in the Makefile does."""
    return subprocess.run(
        [sys.executable, "-m", "tests.ami", command, "--account", account],
        capture_output=True,
        text=True,
        check=False,
        cwd=AMI.parent,
        timeout=stretched(PATIENCE),
    )


def stages(output: str) -> list[str]:
    """Return the stages that a command printed with their seconds."""
    return re.findall(r"^stage (.+): \d+(?:\.\d)? s$", output, re.MULTILINE)


def test_two_commands_lead_from_an_empty_account_to_a_job_on_an_image_of_this_repository(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    account = make_folder(tmp_path_factory, "first") / "account"
    too_early = run("job", account)
    assert (too_early.returncode, too_early.stdout) == (2, "")
    assert "image.json is missing: run make first-image first" in too_early.stderr

    notes, earlier = account / "notes", account / f"{BUILDS}earlier"
    earlier.mkdir(parents=True)
    notes.write_text("of the user")
    baked = run("image", account)
    assert baked.returncode == 0, baked.stdout + baked.stderr
    assert (notes.exists(), earlier.exists()) == (True, False)
    assert re.search(r"^\$ autoscaler images bake .+ linux-cpu ", baked.stdout, re.MULTILINE)
    assert stages(baked.stdout) == [
        "empty account at the laboratory's EC2",
        "values and agent",
        "build",
        "test",
        "whole command",
    ]
    assert re.findall(r"image-build: step (\w+): \d+ s", baked.stdout) == STEPS

    served = run("job", account)
    assert served.returncode == 0, served.stdout + served.stderr
    assert "\n$ autoscaler serve -c /" in served.stdout
    assert stages(served.stdout) == [
        "account with the image, and GitHub",
        "serve until it is ready",
        "launch",
        "EC2 until running",
        "boot until the agent attests",
        "health checks",
        "register",
        "runner until the job starts",
        "job",
        "exit report and power-off",
        "whole command",
    ]
    [name] = set(re.findall(r"autoscaler/linux-cpu-x64-\d{8}-\d{6}", baked.stdout))
    assert f"of the image {name}\n" in served.stdout
    assert "\njob first: success, on i-" in served.stdout


def test_a_signal_to_first_image_leaves_no_machine_and_no_file(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """`kill` reaches only the process, and not the command that it runs. People repeat it."""
    account = make_folder(tmp_path_factory, "stopped") / "account"
    with subprocess.Popen(
        [sys.executable, "-m", "tests.ami", "image", "--account", account],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=AMI.parent,
    ) as process:
        assert process.stdout is not None
        assert any("image-build: step system" in line for line in process.stdout)
        process.send_signal(signal.SIGTERM)
        assert any(line.startswith("Stopped. Removing all machines") for line in process.stdout)
        process.send_signal(signal.SIGTERM)
        # Not `communicate`: it loses the lines that the loop above has already read into Python's buffer.
        output = process.stdout.read()
    assert "Cancelling build after receiving interrupt" in output
    assert "Terminating the source AWS instance" in output
    assert "Traceback" not in output
    assert process.returncode == 130
    assert list(account.iterdir()) == []
    running = [one.info["cmdline"] or () for one in psutil.process_iter(["cmdline"])]
    assert [one for one in running if any(str(account) in word for word in one)] == []


@SESSION
@pytest.mark.usefixtures("serving")
@pytest.mark.case(
    "an image gets jobs only after it tested itself on a machine: a newer one without the tag is passed over",
    topic="Images and disks",
    source="EC2: DescribeImages",
)
async def test_the_agent_of_a_baked_image_runs_a_job_and_powers_off(
    account: Place, built: Built
) -> None:
    done = await run_first_job(account.lab)
    _, instance = machine_of(account.lab, done)
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
    machine, instance = machine_of(lab, cut)
    lab.ec2.interrupt(instance.id)
    await at_rest(lab, PATIENCE)
    machine, _ = machine_of(lab, cut)
    # Without the runner's word, GitHub would fail the job only after ten minutes.
    assert (cut.conclusion, machine.work.exit_reason) == ("failure", ExitReason.STOPPED)
