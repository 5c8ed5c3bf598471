"""GitHub's job hooks: what they say, which jobs they refuse, and how they stop a refused one."""

import json
import os
import stat
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autoscaler.app.agent_file import build_agent

WIDGETS = {"repositories": ["acme/*"], "forks": False, "contact": "https://ci.example/access"}
JOB = {
    "machine": "0000000000000007",
    "sku": "linux.g5.xlarge",
    "instance": "i-0abc",
    "offering": "us-east-1 g5.xlarge us-east-1a spot",
    "image": "ami-0123",
    "ready_s": 83,
    "idle_s": 2,
    "waited_s": 90,
    "launched_for_it": True,
    "access": WIDGETS,
}


def pull_request(repository: object) -> dict[str, Any]:
    """Return the payload of a pull request whose head is in this repository."""
    return {"pull_request": {"head": {"repo": repository}}}


FORK = pull_request({"full_name": "stranger/widgets"})


@pytest.mark.parametrize(
    ("access", "repository", "event", "refusal"),
    [
        (WIDGETS, "acme/widgets", {}, None),
        (WIDGETS, "ACME/Widgets", pull_request({"full_name": "acme/widgets"}), None),
        (WIDGETS, "other/widgets", {}, "the repository other/widgets may not use it"),
        (
            WIDGETS,
            "acme/widgets",
            FORK,
            "the run comes from stranger/widgets, and forks may not use it",
        ),
        (
            WIDGETS,
            "acme/widgets",
            pull_request(None),
            "the run comes from a deleted fork, and forks may not use it",
        ),
        (
            WIDGETS,
            "acme/widgets",
            None,
            "the event of the run could not be read, so it may come from a fork",
        ),
        ({**WIDGETS, "forks": True}, "acme/widgets", FORK, None),
        ({**WIDGETS, "forks": True}, "acme/widgets", None, None),
        ({}, "acme/widgets", {}, "the repository acme/widgets may not use it"),
    ],
)
def test_access_decides_which_job_runs(
    agent: ModuleType, access: dict[str, Any], repository: str, event: Any, refusal: str | None
) -> None:
    assert agent.refusal_of_job(access, repository, event) == refusal


class Machine:
    """A machine with the built agent, a stand-in for the runner's programs, and the hooks."""

    def __init__(self, agent: ModuleType, root: Path) -> None:
        self.agent = agent
        self.root = root
        (root / "agent.py").write_bytes(build_agent())
        user = "nobody" if os.geteuid() == 0 else None
        self.runner = root / "actions-runner"
        self.runner.mkdir(mode=0o777)
        self.runner.chmod(0o777)
        values = {"root": str(root), "runner_user": user, "runner_directory": str(self.runner)}
        self.host = agent.Host(values)
        identity, _ = agent.runner_account(self.host)
        self.identity: dict[str, Any] = identity

    def install(self, job: dict[str, Any]) -> dict[str, str]:
        """Write the hooks, and return the variables that name them."""
        found: dict[str, str] = self.agent.install_hooks(
            self.host, job, str(self.root / "agent.py")
        )
        return found

    def run(self, script: str, hook: str, event: object) -> subprocess.CompletedProcess[str]:
        """Run a script as the user of the runner, with a job's variables."""
        payload = self.root / "event.json"
        payload.write_text(json.dumps(event))
        payload.chmod(0o644)
        return subprocess.run(
            ["bash", "-c", script],
            cwd=self.runner,
            env={
                "PATH": os.environ["PATH"],
                "HOOK": hook,
                "GITHUB_REPOSITORY": "acme/widgets",
                "GITHUB_EVENT_PATH": str(payload),
            },
            capture_output=True,
            text=True,
            check=False,
            **self.identity,
        )


@pytest.fixture
def machine(agent: ModuleType, open_folder: Path) -> Machine:
    return Machine(agent, open_folder)


HOOK = 'bash -e "$HOOK"'


def test_the_author_of_a_job_sees_where_it_runs_and_why_it_waited(machine: Machine) -> None:
    hooks = machine.install(JOB)
    done = machine.run(HOOK, hooks["ACTIONS_RUNNER_HOOK_JOB_STARTED"], {})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "Machine: 0000000000000007 (i-0abc)",
        "SKU: linux.g5.xlarge",
        "Offering: us-east-1 g5.xlarge us-east-1a spot",
        "Image: ami-0123",
        "Boot: ready 83 s after its launch request, then idle for 2 s",
        "Wait: the first job with these labels waited 90 s for a machine; it was launched after that",
    ]


def test_a_hook_writes_utf_8_whatever_the_locale(machine: Machine) -> None:
    """Windows gives a pipe the ANSI code page. `-X utf8=0` with LC_ALL=C gives it ASCII."""
    hooks = machine.install({**JOB, "image": "Läufer → 7"})
    script = Path(hooks["ACTIONS_RUNNER_HOOK_JOB_STARTED"])
    script.write_text(script.read_text().replace("'-S'", "'-S' '-X' 'utf8=0'"))
    done = machine.run(f"export LC_ALL=C; {HOOK}", str(script), {})
    assert (done.returncode, done.stderr) == (0, "")
    assert "Image: Läufer → 7" in done.stdout.splitlines()


def test_the_author_of_a_job_sees_how_much_disk_was_left(machine: Machine) -> None:
    hooks = machine.install(JOB)
    done = machine.run(HOOK, hooks["ACTIONS_RUNNER_HOOK_JOB_COMPLETED"], {})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Disk: ")


# The real listener and worker, as a hook sees them: processes of these names above it. The worker runs a
# step whose condition is `always()`, unless its listener was stopped.
LISTENER = """\
#!/bin/bash
trap 'kill "$!"; echo "the runner stopped"; exit 143' TERM
./Runner.Worker &
wait "$!"
echo "the worker exited with $?"
"""
WORKER = """\
#!/bin/bash
trap 'kill -INT "$!"; exit 1' TERM
bash -e "$HOOK" &
wait "$!"
echo "a step with always() ran"
"""


def install_runner(folder: Path, listener: str = LISTENER) -> None:
    """Write the stand-ins for the runner's programs."""
    for name, text in (("Runner.Listener", listener), ("Runner.Worker", WORKER)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


@pytest.mark.case(
    "GitHub gives a runner to a job of a fork: the hook stops the runner, for steps with `if: always()` "
    "would run after a hook that only failed",
    topic="Runner and listener",
    source="actions/runner ADR 1751",
)
def test_a_refused_job_runs_no_step_even_with_always(machine: Machine) -> None:
    install_runner(machine.runner)
    hooks = machine.install(JOB)
    done = machine.run("exec ./Runner.Listener", hooks["ACTIONS_RUNNER_HOOK_JOB_STARTED"], FORK)
    assert done.returncode == 143
    assert done.stderr == ""
    error, stopped = done.stdout.splitlines()[-2:]
    assert error == (
        "::error title=Refused by the runner::This job may not use the runner linux.g5.xlarge: the run "
        "comes from stranger/widgets, and forks may not use it. Ask for access: https://ci.example/access"
    )
    assert stopped == "the runner stopped"
    admitted = machine.run("exec ./Runner.Listener", hooks["ACTIONS_RUNNER_HOOK_JOB_STARTED"], {})
    assert "a step with always() ran" in admitted.stdout


def test_a_listener_that_does_not_stop_loses_its_worker(machine: Machine) -> None:
    built = build_agent().replace(b"REFUSED_JOB = 60.0", b"REFUSED_JOB = 0.2")
    assert built != build_agent()
    (machine.root / "agent.py").write_bytes(built)
    install_runner(
        machine.runner, "#!/bin/bash\ntrap '' TERM\n./Runner.Worker\necho the worker: $?\n"
    )
    hooks = machine.install(JOB)
    done = machine.run("exec ./Runner.Listener", hooks["ACTIONS_RUNNER_HOOK_JOB_STARTED"], FORK)
    assert done.stdout.splitlines()[-1] == "the worker: 137"
    assert "always()" not in done.stdout


def test_a_job_cannot_change_its_hooks(machine: Machine) -> None:
    hooks = machine.install(JOB)
    folder = Path(hooks["ACTIONS_RUNNER_HOOK_JOB_STARTED"]).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert {stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()} == {0o644}
    assert {one.stat().st_uid for one in (folder, *folder.iterdir())} == {os.geteuid()}


def test_an_earlier_controller_gives_no_parameters_and_there_are_no_hooks(machine: Machine) -> None:
    assert machine.install({}) == {}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("#!/bin/sh\necho ready\n", "ready\n"),
        ("#!/bin/sh\nexit 3\n", "::warning::{} exited with 3\n"),
        ("#!/nowhere/sh\n", "::warning::{} does not start: No such file or directory\n"),
        ("#!/bin/sh\nexec sleep 100\n", "::warning::{} was stopped after 0 s\n"),
    ],
)
def test_the_images_own_program_never_lets_a_job_fail(
    agent: ModuleType,
    open_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    script: str,
    said: str,
) -> None:
    program = open_folder / "job-started"
    agent.run_image_program(str(program))
    assert capfd.readouterr().out == ""
    program.write_text(script)
    program.chmod(0o755)
    monkeypatch.setattr(agent, "HOOK_PROGRAM", 0.3 if "sleep" in script else 60.0)
    agent.run_image_program(str(program))
    assert capfd.readouterr().out == said.format(program)


def test_an_image_that_sets_hooks_of_its_own_fails_the_health_check(machine: Machine) -> None:
    assert machine.agent.check_hooks(machine.host, 60.0).ok
    environment = machine.runner / ".env"
    environment.write_text("LANG=C.UTF-8\n")
    assert machine.agent.check_hooks(machine.host, 60.0).ok
    environment.write_text("LANG=C.UTF-8\nACTIONS_RUNNER_HOOK_JOB_STARTED=/opt/mine.sh\n")
    found = machine.agent.check_hooks(machine.host, 60.0)
    assert not found.ok
    assert found.detail == (
        "the image's .env sets ACTIONS_RUNNER_HOOK_JOB_STARTED: put the program at "
        "/opt/runner-agent/job-started and job-completed"
    )


def test_a_python_that_the_user_of_the_runner_cannot_run_fails_the_health_check(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", str(machine.root / "python3"))
    found = machine.agent.check_hooks(machine.host, 60.0)
    assert not found.ok
    assert found.detail.startswith("the user of the runner cannot run Python: ")
