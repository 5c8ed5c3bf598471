"""Arbitrary deliveries, bootstrap requests and bytes over a real socket.

The server never answers 500, stores no unsigned delivery, and passes on no request without a nonce.
"""

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from autoscaler.model.identifiers import Address
from autoscaler.server.webhook import ANSWERS
from tests.patience import PATIENCE
from tests.server.doubles import MACHINE, NONCE
from tests.server.fakes import ASSIGNMENT, ATTESTATION, STEPS, Backstage, delivery_headers

pytestmark = pytest.mark.systems

EXAMPLES = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=12,
)
jobs = st.fixed_dictionaries(
    {"action": st.sampled_from(["queued", "waiting", "completed", "x"]) | json_values}
)
header_values = st.text(st.characters(codec="latin-1", exclude_categories=["Cc"]), max_size=80)


@st.composite
def mutated(draw: st.DrawFn, texts: st.SearchStrategy[bytes]) -> bytes:
    """Draw a valid body with a few bytes replaced, dropped or doubled."""
    body = bytearray(draw(texts))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(body)))
        body[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(body)


def encoded(values: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    return values.map(lambda value: json.dumps(value).encode())


class ServerThread:
    """A server whose event loop runs in its own thread, and one connection to it."""

    def __init__(self) -> None:
        self.behind = Backstage()
        self.address = Address("127.0.0.1", 0)
        self._up = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        async def scene() -> None:
            async with self.behind.serving() as serving:
                self.address = serving.address
                self._up.set()
                await self._stop.wait()

        self._loop.run_until_complete(scene())
        self._loop.close()

    def start(self) -> None:
        self._thread.start()
        assert self._up.wait(10)
        self.connection = http.client.HTTPConnection(
            self.address.host, self.address.port, timeout=PATIENCE
        )

    def stop(self) -> None:
        self.connection.close()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        self.connection.request("POST", path, body, headers)
        answer = self.connection.getresponse()
        said = answer.read()
        return answer.status, json.loads(said) if said else {}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    server = ServerThread()
    server.start()
    yield server
    server.stop()


@EXAMPLES
@given(
    body=encoded(jobs) | encoded(json_values) | mutated(encoded(jobs)) | st.binary(max_size=200),
    signed=st.booleans(),
    changes=st.dictionaries(
        st.sampled_from(
            ["X-GitHub-Event", "X-GitHub-Delivery", "X-Hub-Signature-256", "Content-Type"]
        ),
        header_values,
        max_size=2,
    ),
)
@example(body=b'{"action": "queued"}', signed=True, changes={})
@example(body=b'{"action": "queued"}', signed=False, changes={})
@example(body=b'{"action": ' + b"[" * 50_000, signed=True, changes={})
@example(body=b"", signed=False, changes={"X-GitHub-Event": "a"})
def test_random_deliveries_are_stored_only_if_they_are_signed(
    server: ServerThread, body: bytes, signed: bool, changes: dict[str, str]
) -> None:
    inbox = server.behind.inbox
    inbox.kept.clear()
    headers = delivery_headers(body) | changes
    if not signed:
        headers["X-Hub-Signature-256"] = changes.get("X-Hub-Signature-256", "sha256=" + "0" * 64)
    status, said = server.post("/webhook", body, headers)
    word = said.get("result") or said["error"]
    assert ANSWERS[word] == status
    if "X-Hub-Signature-256" in changes or not signed:
        # An event that the controller does not need is ignored before its body is read.
        ignored = {"ignored"} if "X-GitHub-Event" in changes else set()
        assert word in {"bad_signature", "unsupported_type"} | ignored
    assert server.behind.telemetry.deliveries["failed"] == 0
    assert [kept.body for kept in inbox.kept.values()] == ([body] if word == "accepted" else [])


@EXAMPLES
@given(
    step=st.sampled_from(sorted(STEPS)),
    data=st.data(),
    authorization=st.just(f"Bearer {NONCE}") | header_values,
)
def test_random_bootstrap_steps_are_passed_on_only_with_the_nonce(
    server: ServerThread, step: str, data: st.DataObject, authorization: str
) -> None:
    bodies = [encoded(json_values), mutated(st.just(json.dumps(STEPS[step]).encode()))]
    if STEPS[step]:
        changed = st.tuples(st.sampled_from(sorted(STEPS[step])), json_values)
        bodies.append(encoded(changed.map(lambda change: STEPS[step] | {change[0]: change[1]})))
    body = data.draw(st.one_of(bodies))
    bootstrap = server.behind.bootstrap
    bootstrap.said.clear()
    bootstrap.assignment = ASSIGNMENT  # so that no poll waits
    path = f"/bootstrap/machines/{MACHINE}/{step}"
    status, said = server.post(path, body, {"Authorization": authorization})
    assert status in {200, 204, 400, 401}
    assert len(bootstrap.said) == (1 if status in {200, 204} else 0)
    if authorization != f"Bearer {NONCE}":
        assert (status, said) == (401, {"error": "nonce"})


@EXAMPLES
@given(
    body=encoded(
        st.tuples(st.sampled_from(sorted(ATTESTATION)), json_values).map(
            lambda change: ATTESTATION | {change[0]: change[1]}
        )
    )
    | mutated(st.just(json.dumps(ATTESTATION).encode()))
    | encoded(json_values)
)
def test_random_attestations_are_passed_on_only_if_well_formed(
    server: ServerThread, body: bytes
) -> None:
    bootstrap = server.behind.bootstrap
    bootstrap.said.clear()
    status, _ = server.post("/bootstrap/attest", body, {})
    assert status in {200, 400}
    received = [] if status == 400 else bootstrap.said
    assert bootstrap.said == received
    for _, provider, proof, nonce, protocol, agent in received:
        assert isinstance(provider, str)
        assert isinstance(proof, bytes)
        assert isinstance(nonce, str)
        assert len(bytes.fromhex(nonce)) == 32
        assert type(protocol) is int
        assert isinstance(agent, str)


@EXAMPLES
@given(
    st.binary(max_size=300)
    | mutated(st.just(b"POST /webhook HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"))
    | mutated(
        st.just(b"POST /webhook HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    )
)
def test_random_bytes_cause_no_server_error(server: ServerThread, sent: bytes) -> None:
    with socket.create_connection((server.address.host, server.address.port), 10) as peer:
        peer.sendall(sent)
        peer.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := peer.recv(65_536):
            answer += piece
    assert b" 500 " not in answer.partition(b"\r\n")[0]
    server.connection.request("GET", "/healthz")
    alive = server.connection.getresponse()
    assert (alive.status, bool(alive.read())) == (200, True)
