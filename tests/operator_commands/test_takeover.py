"""A command waits while no replica of the controller leads, and says so."""

import os
import pty
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from pydantic import SecretBytes

from autoscaler import config
from autoscaler.model.operators import Operator, OperatorName, Role
from autoscaler.operator_commands.client import (
    UNTIL_LED,
    OperatorClient,
    OperatorRequestFailedError,
)
from autoscaler.operator_commands.endpoint import Endpoint

NO_LEADER = (503, '{"error":"no_leader","reason":"no replica leads"}', {"Retry-After": "2"})


@dataclass
class Replica:
    """Gives these answers, the last one again and again. Its clock moves when the client sleeps."""

    answers: list[tuple[int, str, dict[str, str]]]
    asked: list[bytes] = field(default_factory=list)
    now: float = 1000.0
    url: str = ""

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def next_answer(self, body: bytes) -> tuple[int, str, dict[str, str]]:
        self.asked.append(body)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    @property
    def client(self) -> OperatorClient:
        operator = Operator(OperatorName("alice"), Role.OPERATE)
        token = config.OperatorToken(token=SecretBytes(b"t" * 40), operator=operator)
        endpoint = Endpoint(self.url, token, ssl.create_default_context())
        return OperatorClient(endpoint, lambda: self.now, self.sleep)


@contextmanager
def replica(*answers: tuple[int, str, dict[str, str]]) -> Iterator[Replica]:
    answering = Replica(list(answers))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, text, headers = answering.next_answer(body)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        answering.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield answering
        finally:
            server.shutdown()
            thread.join()


def test_a_request_is_sent_again_until_a_replica_leads() -> None:
    with replica(NO_LEADER, NO_LEADER, (200, '{"done": 1}', {})) as one:
        assert one.client.act("/admin/pause", target="gpu") == {"done": 1}
        assert one.asked == [b'{"target": "gpu"}'] * 3
        assert one.now == 1000.0 + 4.0


def test_a_command_gives_up_after_a_minute_with_the_controllers_reason() -> None:
    with replica(NO_LEADER) as one:
        with pytest.raises(OperatorRequestFailedError, match="no replica leads"):
            one.client.act("/admin/pause", target="gpu")
        assert len(one.asked) == 1 + UNTIL_LED // 2
        assert one.now == 1000.0 + UNTIL_LED


@pytest.mark.parametrize(
    ("status", "headers"),
    [(503, {}), (503, {"Retry-After": "soon"}), (429, {"Retry-After": "2"})],
)
def test_another_refusal_is_not_repeated(status: int, headers: dict[str, str]) -> None:
    with replica((status, "{}", headers)) as one:
        with pytest.raises(OperatorRequestFailedError):
            one.client.act("/admin/pause", target="gpu")
        assert len(one.asked) == 1


def test_a_command_on_a_terminal_says_within_a_second_that_no_replica_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, its = pty.openpty()
    with (
        os.fdopen(its, "w") as terminal,
        os.fdopen(ours, "rb", buffering=0) as shown,
        replica(NO_LEADER, (200, "{}", {})) as one,
    ):
        monkeypatch.setattr(sys, "stderr", terminal)
        said: list[bytes] = []

        def sleep(_: float) -> None:
            """Return once the line is there, however slow this host is."""
            said.append(shown.read(1000))

        one.sleep = sleep  # type: ignore[method-assign, assignment]
        one.client.act("/admin/pause", target="gpu")
        assert said[0].startswith(f"waiting for a replica of {one.url} to lead, at most".encode())
