"""`autoscaler images check --scope`: the end of a runner version, as GitHub names it."""

import json
from collections.abc import Iterator
from datetime import date
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from autoscaler.images.findings import find
from autoscaler.images.runner_end import GitHubAnswerError, runner_end
from tests.images.versions import loaded

VERSION = "2.338.0"
ANSWERS = {
    f"/orgs/acme/actions/runners/deprecations/{VERSION}": {
        "runner_version": VERSION,
        "runtime_deprecates_at": "2026-12-20T00:00:00Z",
        "registration_deprecates_at": "2026-12-10T00:00:00Z",
    },
    f"/repos/acme/app/actions/runners/deprecations/{VERSION}": {
        "runner_version": VERSION,
        "runtime_deprecates_at": None,
    },
    f"/orgs/odd/actions/runners/deprecations/{VERSION}": ["no object"],
}


class _GitHub(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        answer = ANSWERS.get(self.path)
        allowed = self.headers["Authorization"] == "Bearer secret"
        self.send_response(401 if not allowed else 404 if answer is None else 200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    server = HTTPServer(("127.0.0.1", 0), _GitHub)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield {"GITHUB_TOKEN": "secret", "GITHUB_API_URL": f"http://127.0.0.1:{server.server_port}/"}
    server.shutdown()
    thread.join(10)
    server.server_close()


def test_the_earlier_of_the_two_days_of_github_counts(environment: dict[str, str]) -> None:
    assert runner_end("org:acme", VERSION, environment) == date(2026, 12, 10)
    assert runner_end("repo:acme/app", VERSION, environment) is None


@pytest.mark.parametrize(
    ("scope", "token", "message"),
    [
        ("org:other", "secret", "404 Not Found"),
        ("org:acme", "wrong", "401 Unauthorized"),
        ("org:odd", "secret", "TypeError"),
        ("org:acme", "", "GITHUB_TOKEN"),
        ("acme", "secret", "not a scope"),
        ("repo:acme", "secret", "not a scope"),
    ],
)
def test_what_github_does_not_answer_is_an_error(
    environment: dict[str, str], scope: str, token: str, message: str
) -> None:
    with pytest.raises(GitHubAnswerError, match=message):
        runner_end(scope, VERSION, {**environment, "GITHUB_TOKEN": token})


@pytest.mark.parametrize(
    ("end", "warnings"),
    [
        (None, []),
        (date(2027, 1, 15), []),
        (date(2027, 1, 14), [True]),
        (date(2026, 12, 31), [False]),
    ],
)
def test_the_day_of_github_replaces_the_guess(
    tmp_path: Path, end: date | None, warnings: list[bool]
) -> None:
    """By the documented rule alone, the runner of the file would be reported on this day."""
    versions = loaded(tmp_path).versions
    today = date(2026, 12, 31)
    assert len(find(versions, today)) == 1
    found = find(versions, today, end)
    assert [one.warning for one in found] == warnings
    assert all(str(end) in one.what for one in found)
