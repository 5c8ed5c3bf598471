"""The action `check-fleet`, run as GitHub's runner runs it, against a server with a pull request's comments.

GitHub's answers: REST API, "Issue comments"; a fork's token may only read ("Events that trigger workflows").
"""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from scripts.release import ROOT
from tests.config.fleet_file import MINIMAL

# The action calls curl, which a Debian of `make test` may not have.
pytestmark = pytest.mark.systems

ACTION = ROOT / "actions" / "check-fleet"
MARKER = "<!-- autoscaler check-fleet fleet.yaml -->"
BOT = "github-actions[bot]"
OPERATOR = f"ci read {'t' * 40}"
NOTHING = {
    "launches": [],
    "terminations": [],
    "terminated": 0,
    "waiting": [],
    "without_sku": 0,
    "exceeded": [],
    "dollars_before": 3.0,
    "dollars_after": 4.5,
}
PLAN = {"changed": ["limits.machines"], "needs_restart": [], "refused": [], "preview": NOTHING}


@dataclass
class PullRequest:
    """The comments of pull request 7 of acme/fleet, at a GitHub that is also the controller."""

    comments: list[dict[str, Any]] = field(default_factory=list)
    read_only: bool = False
    """Whether the job's token is that of a fork."""
    changed: list[str] = field(default_factory=list)
    url: str = ""

    def add(self, body: str, author: str = BOT) -> None:
        self.comments.append({"id": len(self.comments), "user": {"login": author}, "body": body})

    def answer(self, method: str, target: str, body: Any) -> tuple[int, Any]:
        split = urlsplit(target)
        match split.path.split("/")[1:]:
            case ["admin", "plan"]:
                return 200, PLAN
            case ["repos", "acme", "fleet", "issues", "7", "comments"] if method == "GET":
                asked = parse_qs(split.query)
                size, page = int(asked["per_page"][0]), int(asked["page"][0])
                return 200, self.comments[size * (page - 1) : size * page]
            case ["repos", "acme", "fleet", "issues", *_] if self.read_only:
                return 403, {"message": "Resource not accessible by integration"}
            case ["repos", "acme", "fleet", "issues", "7", "comments"] if method == "POST":
                self.add(body["body"])
                self.changed.append("created")
                return 201, self.comments[-1]
            case ["repos", "acme", "fleet", "issues", "comments", number] if method == "PATCH":
                self.comments[int(number)]["body"] = body["body"]
                self.changed.append(f"updated {number}")
                return 200, self.comments[int(number)]
        return 404, {"message": "Not Found"}


@pytest.fixture
def pull_request() -> Iterator[PullRequest]:
    pull = PullRequest()
    tokens = {"admin": "t" * 40, "repos": "job-token"}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            body = json.loads(content) if content.startswith(b"{") else None
            status: int = 401
            answer: Any = {}
            if self.headers["Authorization"] == f"Bearer {tokens[self.path.split('/')[1]]}":
                status, answer = pull.answer(self.command, self.path, body)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        do_POST = do_PATCH = do_GET  # noqa: N815 - as BaseHTTPRequestHandler has it

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    pull.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield pull
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass
class Job:
    """A job of a workflow: its checkout, and the programs that `install.sh` installed."""

    folder: Path
    pull: PullRequest

    def __post_init__(self) -> None:
        (self.folder / "checkout").mkdir()
        (self.folder / "checkout" / "fleet.yaml").write_text(MINIMAL)
        self.program.parent.mkdir(parents=True)

    @property
    def program(self) -> Path:
        return self.folder / "temporary" / "check-fleet" / "bin" / "autoscaler"

    def play(self, check: str = "fine", plan: str = "launches 2", *statuses: int) -> None:
        """Put a program in the place of the autoscaler that prints these texts and logs how it was called."""
        for name, text in {"check": check, "plan": plan}.items():
            (self.folder / name).write_text(text)
        check_status, plan_status = statuses or (0, 0)
        self.program.write_text(
            f'#!/bin/sh\ncd {self.folder}\necho "$@" >> asked\n'
            f"case $1 in check) cat check; exit {check_status};; esac\n"
            f"for token; do :; done; stat -c %a $token >> asked; cat $token >> asked\n"
            f"cat plan; exit {plan_status}\n"
        )
        self.program.chmod(0o755)

    def run(self, **changes: str) -> subprocess.CompletedProcess[str]:
        [_, step] = yaml.safe_load((ACTION / "action.yml").read_text())["runs"]["steps"]
        given = {
            "FLEET_FILE": "fleet.yaml",
            "CONTROLLER_URL": self.pull.url,
            "OPERATOR_TOKEN": OPERATOR,
            "GITHUB_TOKEN": "job-token",
            "PULL_REQUEST": "7",
        }
        assert set(step["env"]) == set(given)
        runner = {
            "PATH": "/usr/bin:/bin",
            "GITHUB_ACTION_PATH": str(ACTION),
            "GITHUB_API_URL": self.pull.url,
            "GITHUB_REPOSITORY": "acme/fleet",
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
            "GITHUB_WORKSPACE": str(self.folder / "checkout"),
            "RUNNER_TEMP": str(self.folder / "temporary"),
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.folder / "checkout",
            env={**runner, **given, **changes},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.stderr, OPERATOR[-40:] in done.stdout) == ("", False)
        assert [one.name for one in (self.folder / "temporary").iterdir()] == ["check-fleet"]
        return done

    def read(self, name: str) -> str:
        file = self.folder / name
        return file.read_text() if file.exists() else ""


@pytest.fixture
def job(tmp_path: Path, pull_request: PullRequest) -> Job:
    return Job(tmp_path, pull_request)


def test_the_autoscaler_itself_checks_and_plans(job: Job) -> None:
    job.program.symlink_to(Path(sys.executable).parent / "autoscaler")
    done = job.run()
    assert done.returncode == 0, done.stdout
    [comment] = job.pull.comments
    assert comment["body"].startswith(
        f"{MARKER}\n**`autoscaler check` accepts `fleet.yaml`**\n\n    "
    )
    assert "    changed: limits.machines\n" in comment["body"]
    assert "$3.00 an hour now, $4.50 after this plan" in comment["body"]
    assert job.read("summary") == ""


def test_a_later_run_changes_the_comment_of_this_action(job: Job) -> None:
    job.play()
    job.pull.add(MARKER + "\nof a stranger", author="mallory")
    for number in range(150):
        job.pull.add(f"comment {number}", author="alice")
    job.pull.add("<!-- autoscaler check-fleet other.yaml -->\nof another file")
    job.run()
    job.play(plan="launches 3")
    job.run()
    assert job.pull.changed == ["created", "updated 152"]
    assert job.pull.comments[-1]["body"].endswith("    launches 3\n\n")


def test_the_token_goes_to_the_named_controller_in_a_private_file(job: Job) -> None:
    job.play()
    job.run(AUTOSCALER_URL="https://elsewhere.example", AUTOSCALER_CONFIG="other.yaml")
    check, plan, mode, token = job.read("asked").splitlines()
    assert check == "check --skip-files fleet.yaml"
    assert plan.startswith(f"plan --against fleet.yaml --url {job.pull.url} --token-file ")
    assert (mode, token) == ("600", OPERATOR)


@pytest.mark.case(
    "a pull request of a fork: its token may not comment, and it has no secrets",
    topic="GitHub's REST API",
    source="GitHub: events that trigger workflows",
)
def test_a_fork_gets_the_report_in_the_summary_of_its_job(job: Job) -> None:
    job.play()
    job.pull.read_only = True
    done = job.run(OPERATOR_TOKEN="")
    assert done.returncode == 0
    assert "::notice title=check-fleet::GitHub answered 403 to the comment" in done.stdout
    assert job.pull.comments == []
    assert job.read("summary").startswith(f"{MARKER}\n**`autoscaler check` accepts")
    assert "No plan: this run has no `controller-url` or no `token`." in job.read("summary")
    assert job.read("asked") == "check --skip-files fleet.yaml\n"


def test_a_github_that_does_not_answer_loses_no_report(job: Job) -> None:
    job.play()
    done = job.run(GITHUB_API_URL="http://127.0.0.1:9")
    assert (done.returncode, "GitHub answered 000" in done.stdout) == (0, True)
    assert MARKER in job.read("summary")


def test_a_run_without_a_pull_request_writes_the_summary(job: Job) -> None:
    job.play()
    assert job.run(PULL_REQUEST="").returncode == 0
    assert (MARKER in job.read("summary"), job.pull.comments) == (True, [])


@pytest.mark.parametrize(
    ("statuses", "returncode", "reported", "shown"),
    [
        ((2, 0), 1, "::error title=check-fleet::autoscaler check refuses", "refuses `fleet.yaml`"),
        ((0, 2), 1, "::error title=check-fleet::the plan of fleet.yaml was", "it was refused"),
        (
            (0, 1),
            0,
            "::warning title=check-fleet::the controller made no",
            "the controller made none",
        ),
    ],
)
def test_a_refused_file_fails_the_job_and_a_silent_controller_does_not(
    job: Job, statuses: tuple[int, int], returncode: int, reported: str, shown: str
) -> None:
    job.play("first", "second", *statuses)
    done = job.run()
    assert done.returncode == returncode
    assert reported in done.stdout
    [comment] = job.pull.comments
    assert shown in comment["body"]
    assert ("second" in comment["body"]) == (statuses[0] == 0)


def test_the_pull_requests_text_commands_neither_the_runner_nor_the_page(job: Job) -> None:
    job.play("::error::planted\n```\n@acme/all <b>\r\x1b[2J" + "x" * 40_000)
    log = job.run().stdout
    begin, text, end = log.partition("::error::planted")
    [word] = [line for line in begin.splitlines() if line.startswith("::stop-commands::")]
    assert text
    assert f"\n::{word.removeprefix('::stop-commands::')}::\n" in end
    [comment] = job.pull.comments
    lines = comment["body"].splitlines()
    assert {"    ::error::planted", "    ```"} < set(lines)
    assert [
        one for one in lines if "acme" in one and not one.startswith("    @acme/all <b>[2Jx")
    ] == []
    assert "This is its beginning." in comment["body"]
    assert len(comment["body"]) < 65_536


@pytest.mark.parametrize(
    "name", ["none.yaml", "../secret", "link.yaml", "linked/fleet.yaml", "$(id)", ""]
)
def test_only_a_file_of_the_checkout_is_read(job: Job, name: str) -> None:
    job.play()
    (job.folder / "secret").write_text("secret")
    (job.folder / "checkout" / "link.yaml").symlink_to(job.folder / "secret")
    (job.folder / "checkout" / "linked").symlink_to(job.folder / "checkout")
    done = job.run(FLEET_FILE=name)
    assert done.returncode == 1
    assert done.stdout.startswith("::error title=check-fleet::")
    assert (job.read("asked"), job.pull.comments) == ("", [])


def test_the_installation_runs_no_module_of_the_checkout(tmp_path: Path) -> None:
    for name in ("venv", "pip"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('of the pull request')")
    (tmp_path / "action" / "actions" / "check-fleet").mkdir(parents=True)
    done = subprocess.run(
        [ACTION / "install.sh"],
        cwd=tmp_path,
        env={
            "PATH": f"{Path(sys.base_prefix) / 'bin'}:/usr/bin:/bin",
            "RUNNER_TEMP": str(tmp_path),
            "GITHUB_ACTION_PATH": str(tmp_path / "action" / "actions" / "check-fleet"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    # There is no project in the place of the action's repository, as pip says.
    assert "of the pull request" not in done.stdout + done.stderr
    assert "Neither 'setup.py' nor 'pyproject.toml' found" in done.stderr
