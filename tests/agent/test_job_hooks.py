"""GitHub's job hooks: what they say, which jobs they refuse, and how they stop a refused one."""

import json
import os
import re
import select
import stat
import subprocess
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autoscaler.app.agent_file import build_agent
from autoscaler.github.lists.formats import WorkflowRun
from autoscaler.model.catalogue import Access
from autoscaler.model.jobs.access_rules import rule_against
from autoscaler.model.jobs.job import Admission
from tests.patience import PATIENCE

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


PRIVATE = {"repository": {"full_name": "acme/widgets", "private": True, "visibility": "private"}}
INTERNAL = {"repository": {"full_name": "acme/widgets", "private": True, "visibility": "internal"}}
PUBLIC = {"repository": {"full_name": "acme/widgets", "private": False, "visibility": "public"}}
NOT_PUBLIC = {**WIDGETS, "public_repositories": False}
MAIN = {**WIDGETS, "branches": ["main", "release/*"]}
QUEUE = "refs/heads/gh-readonly-queue/main/pr-104-929f8209d40f77f4abc622a499c93a83babdbe64"
AGENT_PAGE = Path(__file__).parents[2] / "docs/agent.md"
NO_FORKS = "the event of the run could not be read, and access.forks is false"
NO_PUBLIC = "the repository acme/widgets is not private, and public repositories may not use it"


@pytest.mark.parametrize(
    ("access", "repository", "event", "code", "text"),
    [
        (WIDGETS, "acme/widgets", {}, None, None),
        (WIDGETS, "ACME/Widgets", pull_request({"full_name": "acme/widgets"}), None, None),
        (
            WIDGETS,
            "other/widgets",
            {},
            "repository_not_allowed",
            "the repository other/widgets may not use it",
        ),
        (
            WIDGETS,
            "acme/widgets",
            FORK,
            "fork_not_allowed",
            "the run comes from stranger/widgets, and forks may not use it",
        ),
        (
            WIDGETS,
            "acme/widgets",
            pull_request(None),
            "fork_not_allowed",
            "the run comes from a deleted fork, and forks may not use it",
        ),
        (WIDGETS, "acme/widgets", None, "event_unreadable", NO_FORKS),
        ({**WIDGETS, "forks": True}, "acme/widgets", FORK, None, None),
        ({**WIDGETS, "forks": True}, "acme/widgets", None, None, None),
        (
            {},
            "acme/widgets",
            {},
            "repository_not_allowed",
            "the repository acme/widgets may not use it",
        ),
        (WIDGETS, "acme/widgets", PUBLIC, None, None),
        (NOT_PUBLIC, "acme/widgets", PRIVATE, None, None),
        (NOT_PUBLIC, "acme/widgets", INTERNAL, None, None),
        (NOT_PUBLIC, "acme/widgets", PUBLIC, "public_repository_not_allowed", NO_PUBLIC),
        (
            NOT_PUBLIC,
            "acme/widgets",
            {"repository": "acme/widgets"},
            "public_repository_not_allowed",
            NO_PUBLIC,
        ),
        (NOT_PUBLIC, "acme/widgets", {}, "public_repository_not_allowed", NO_PUBLIC),
        (
            {**NOT_PUBLIC, "forks": True},
            "acme/widgets",
            None,
            "event_unreadable",
            "the event of the run could not be read, and access.public_repositories is false",
        ),
        (
            {**WIDGETS, "forks": True, "branches": ["*"]},
            "acme/widgets",
            None,
            "event_unreadable",
            "the event of the run could not be read, and access.branches is set",
        ),
    ],
)
def test_access_decides_which_job_runs(
    agent: ModuleType,
    access: dict[str, Any],
    repository: str,
    event: Any,
    code: str | None,
    text: str | None,
) -> None:
    job = {"GITHUB_REPOSITORY": repository, "GITHUB_EVENT_NAME": "push"}
    refusal = agent.refusal_of_job(access, job, event)
    assert refusal == (None if code is None else (code, text))


def test_the_hook_and_the_controller_have_the_same_reason_codes(agent: ModuleType) -> None:
    codes = {*agent.REFUSAL_CODES.values(), agent.EVENT_UNREADABLE}
    of_controller = {one.value for one in Admission if one.is_refusal}
    assert codes - of_controller == {"repository_not_allowed", "event_unreadable"}
    assert of_controller < codes


def test_each_reason_code_of_the_hook_is_documented(agent: ModuleType) -> None:
    section = AGENT_PAGE.read_text().partition("## Job hooks")[2].partition("\n## ")[0]
    documented = re.findall(r"^\| `([a-z_]+)` \|", section, re.MULTILINE)
    assert documented == [*agent.REFUSAL_CODES.values(), agent.EVENT_UNREADABLE]


@pytest.mark.case(
    "a run of a pull request, a merge group or a tag, where `access.branches` is set",
    topic="GitHub's events",
    source="GitHub: events that trigger workflows",
)
@pytest.mark.parametrize(
    ("name", "ref", "admitted"),
    [
        ("push", "refs/heads/main", True),
        ("push", "refs/heads/release/1", True),
        ("push", "refs/heads/Main", False),
        ("push", "refs/heads/topic", False),
        ("push", "refs/tags/main", False),
        ("release", "refs/tags/main", False),
        ("schedule", "refs/heads/main", True),
        ("workflow_dispatch", "refs/heads/main", True),
        ("pull_request", "refs/pull/7/merge", False),
        ("pull_request_review", "refs/pull/7/merge", False),
        ("pull_request_target", "refs/heads/main", False),
        ("merge_group", QUEUE, False),
        ("push", "", False),
    ],
)
def test_only_runs_on_the_branches_of_access_run(
    agent: ModuleType, name: str, ref: str, admitted: bool
) -> None:
    job = {"GITHUB_REPOSITORY": "acme/widgets", "GITHUB_EVENT_NAME": name, "GITHUB_REF": ref}
    refused = (
        f"this {name} runs on {ref or 'no branch'}, and only runs on main or release/* may use it"
    )
    assert agent.refusal_of_job(MAIN, job, PRIVATE) == (
        None if admitted else ("branch_not_allowed", refused)
    )
    queue = {**WIDGETS, "branches": ["gh-readonly-queue/main/*"]}
    assert (agent.refusal_of_job(queue, job, PRIVATE) is None) == (name == "merge_group")


@pytest.mark.case(
    "a scheduled run, whose event may have no repository",
    topic="GitHub's events",
    source="GitHub: events that trigger workflows",
)
def test_a_scheduled_run_without_a_repository_counts_as_private(agent: ModuleType) -> None:
    job = {"GITHUB_REPOSITORY": "acme/widgets", "GITHUB_EVENT_NAME": "schedule"}
    assert agent.refusal_of_job(NOT_PUBLIC, job, {"schedule": "0 7 * * *"}) is None
    refusal = agent.refusal_of_job(NOT_PUBLIC, job, PUBLIC)
    assert refusal == ("public_repository_not_allowed", NO_PUBLIC)


@pytest.mark.parametrize(
    ("event", "fork"),
    [
        ("push", False),
        ("merge_group", False),
        *product(("pull_request", "pull_request_target"), (False, True)),
    ],
)
@pytest.mark.parametrize("branch", ["main", "topic", "gh-readonly-queue/main/pr-104-929f8209"])
@pytest.mark.parametrize("public", [False, True])
def test_the_hook_and_the_controller_agree(
    agent: ModuleType, event: str, branch: str, fork: bool, public: bool
) -> None:
    """What GitHub shows of one run to each of them: its REST answer, and the variables of its job."""
    head = "stranger/widgets" if fork else "acme/widgets"
    own = {"id": 1, "full_name": "acme/widgets", "private": not public}
    run = WorkflowRun.model_validate(
        {
            "id": 7,
            "event": event,
            "head_branch": branch,
            "repository": own,
            "head_repository": {**own, "id": 1 + fork},
        }
    )
    ref = {"pull_request": "refs/pull/7/merge", "pull_request_target": "refs/heads/main"}
    job = {
        "GITHUB_REPOSITORY": "acme/widgets",
        "GITHUB_EVENT_NAME": event,
        "GITHUB_REF": ref.get(event, f"refs/heads/{branch}"),
    }
    payload: dict[str, Any] = {"repository": own}
    if event.startswith("pull_request"):
        payload |= pull_request({"full_name": head})
    assert run.origin is not None
    for forks, public_too, branches in product(
        (False, True), (False, True), ([], ["main"], ["*"], ["gh-readonly-queue/*"])
    ):
        rules = Access(
            ("*",), forks=forks, public_repositories=public_too, branches=tuple(branches)
        )
        access = {
            "repositories": ["*"],
            "forks": forks,
            "public_repositories": public_too,
            "branches": branches,
        }
        by_controller = rule_against(rules, run.origin)
        assert (agent.refusal_of_job(access, job, payload) is None) == (by_controller is None)


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
        """Run a script as the user of the runner, with a job's variables. `event`: text is written as it is."""
        payload = self.root / "event.json"
        payload.write_text(event if isinstance(event, str) else json.dumps(event))
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
        "::error title=Refused by the runner (fork_not_allowed)::This job may not use the runner "
        "linux.g5.xlarge: the run "
        "comes from stranger/widgets, and forks may not use it. Ask for access: https://ci.example/access"
    )
    assert stopped == "the runner stopped"
    admitted = machine.run("exec ./Runner.Listener", hooks["ACTIONS_RUNNER_HOOK_JOB_STARTED"], {})
    assert "a step with always() ran" in admitted.stdout


def test_an_event_that_is_too_deep_to_be_read_is_refused_like_an_unknown_one(
    machine: Machine,
) -> None:
    """Its sender chooses what is in `client_payload`. A hook that only fails would let `always()` run."""
    install_runner(machine.runner)
    hooks = machine.install(JOB)
    deep = '{"client_payload": ' + "[" * 200_000 + "]" * 200_000 + "}"
    done = machine.run("exec ./Runner.Listener", hooks["ACTIONS_RUNNER_HOOK_JOB_STARTED"], deep)
    assert (done.returncode, done.stderr) == (143, "")
    assert NO_FORKS in done.stdout
    assert "always()" not in done.stdout


def test_a_job_that_deleted_its_folder_does_not_fail_at_its_end(machine: Machine) -> None:
    hooks = machine.install(JOB)
    script = f"mkdir work && cd work && rmdir ../work && {HOOK}"
    done = machine.run(script, hooks["ACTIONS_RUNNER_HOOK_JOB_COMPLETED"], {})
    assert done.returncode == 0
    assert "Disk: not known: No such file or directory" in done.stdout.splitlines()


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


def test_a_program_that_is_stopped_leaves_no_child(
    agent: ModuleType, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, started = open_folder / "job-started", open_folder / "started"
    os.mkfifo(started)
    # The child keeps the pipe open as long as it lives. `wait` is what is stopped.
    program.write_text(f"#!/bin/sh\n(echo; exec sleep 1000) > {started} &\nwait\n")
    program.chmod(0o755)
    reader = os.open(started, os.O_RDONLY | os.O_NONBLOCK)
    # On a busy host, a program may be stopped before its child has started.
    for limit in (1.0, 4.0, 16.0):
        monkeypatch.setattr(agent, "HOOK_PROGRAM", limit)
        agent.run_image_program(str(program))
        if os.read(reader, 1):
            break
    else:
        pytest.fail("the child did not start")
    assert select.select([reader], [], [], PATIENCE)[0]
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_an_image_that_sets_hooks_of_its_own_fails_the_health_check(machine: Machine) -> None:
    assert machine.agent.check_hooks(machine.host, 60.0).ok
    environment = machine.runner / ".env"
    environment.write_text("LANG=C.UTF-8\n")
    assert machine.agent.check_hooks(machine.host, 60.0).ok
    # .NET, which reads it, accepts a byte order mark and bytes that are no UTF-8.
    environment.write_bytes(
        b"\xef\xbb\xbfACTIONS_RUNNER_HOOK_JOB_STARTED=/opt/mine.sh\nNAME=\xff\n"
    )
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


def test_a_python_that_fails_for_the_user_of_the_runner_fails_the_health_check(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, its standard library may be below a folder that only root can open."""
    python = machine.root / "python3"
    python.write_text("#!/bin/sh\necho 'No module named encodings' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    detail = f"the user of the runner cannot run {python}: No module named encodings"
    assert tuple(machine.agent.check_hooks(machine.host, 60.0)) == ("job_hooks", False, detail)


@pytest.mark.parametrize(
    ("event", "repository"),
    [
        ({}, None),
        ({"pull_request": 7}, None),
        ({"pull_request": {}}, ""),
        ({"pull_request": {"head": "main"}}, ""),
        ({"pull_request": {"head": {"repo": None}}}, ""),
        ({"pull_request": {"head": {"repo": {"full_name": 7}}}}, ""),
        ({"pull_request": {"head": {"repo": {"full_name": "acme/widgets"}}}}, "acme/widgets"),
    ],
)
def test_the_repository_of_a_pull_requests_head_is_read(
    agent: ModuleType, event: dict[str, Any], repository: str | None
) -> None:
    assert agent.head_repository(event) == repository


def test_a_job_whose_machine_was_not_launched_for_it_says_so(machine: Machine) -> None:
    hooks = machine.install({**JOB, "launched_for_it": False})
    done = machine.run(HOOK, hooks["ACTIONS_RUNNER_HOOK_JOB_STARTED"], {})
    assert done.stdout.endswith("waited 90 s for a machine; it was there\n")


def test_a_job_is_refused_if_its_parameters_are_unreadable(machine: Machine) -> None:
    """Nothing says then which jobs the SKU admits."""
    install_runner(machine.runner)
    hook = Path(machine.install(JOB)["ACTIONS_RUNNER_HOOK_JOB_STARTED"])
    parameters = hook.parent / "job.json"
    parameters.write_text("{")
    done = machine.run("exec ./Runner.Listener", str(hook), {})
    assert (done.returncode, done.stderr) == (143, "")
    said, *described, refused, stopped = done.stdout.splitlines()
    assert said.startswith(f"{parameters}: ")
    assert described == ["Machine:  ()", "SKU: ", "Offering: "]
    assert refused.startswith("::error title=Refused by the runner")
    assert stopped == "the runner stopped"


def test_on_windows_a_hook_quotes_its_words_for_powershell(
    agent: ModuleType,
) -> None:
    python = "C:\\Py'thon\\python.exe"
    script = agent.hook_script(python, "agent.py", "job-started", "job.json", windows=True)
    call = "& 'C:\\Py''thon\\python.exe' '-I' '-S' 'agent.py' 'job-started' 'job.json'"
    assert script.startswith(call)
