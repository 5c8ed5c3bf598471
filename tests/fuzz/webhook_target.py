"""Fuzzes /webhook behind its socket: signature check, parser, and a real store.

The server must store and answer 2xx to exactly the deliveries that GitHub signed.
"""

import asyncio
import hashlib
import hmac
import json
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from multidict import CIMultiDict

from autoscaler.controller.ports.store import Delivery, DeliveryKey, Store
from autoscaler.github.webhook import parse_workflow_job, verify_signature
from autoscaler.model.deliveries import DeliveryAnswer
from autoscaler.server.webhook import ANSWERS, Verify, WebhookEndpoint
from autoscaler.store.sqlite.store import SqliteStore
from tests.fuzz.mutations import mutated, mutated_text
from tests.fuzz.target import Finding, Input, described
from tests.server.doubles import CountingTelemetry, Parse, StillClock, reading

SECRETS = (b"the live webhook secret", b"the one before it")
STOLEN = b"a secret of an attacker"

SIGNATURE, DELIVERY, EVENT = "X-Hub-Signature-256", "X-GitHub-Delivery", "X-GitHub-Event"
NEVER = 10.0**12

verify_live = partial(verify_signature, secrets=SECRETS)

Accept = Callable[[Store, Delivery], Awaitable[bool]]


async def accept(store: Store, delivery: Delivery) -> bool:
    """As the controller takes deliveries in."""
    return await store.accept(delivery)


@dataclass(frozen=True, slots=True)
class Parts:
    """The code under test. Tests of the fuzzer replace it by code with a hole."""

    verify: Verify = verify_live
    parse: Parse = parse_workflow_job
    accept: Accept = accept


class WebhookTarget:
    """Owns a store in a folder of its own, and the loop that it lives in."""

    name = "webhook"

    def __init__(self, parts: Parts | None = None) -> None:
        parts = parts or Parts()
        self._real = tuple(_job_body(n) for n in range(24))
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz-webhook-")
        self._runner = asyncio.Runner()
        path = Path(self._folder.name) / "state.db"
        self._store = self._runner.run(SqliteStore.open(path))
        self._endpoint = WebhookEndpoint(
            parts.verify,
            reading(parts.parse, partial(parts.accept, self._store)),
            StillClock(),
            CountingTelemetry(),
        )

    def draw(self, rng: Random) -> Input:
        """`github` are the signatures that GitHub made for this body; `real`: as it was sent."""
        return self._captured(rng) if rng.random() < 0.5 else _made_up(rng)

    def tries(self, given: Input) -> int:
        """One delivery."""
        return 1

    def try_all(self, given: Sequence[Input]) -> list[Finding]:
        """See `Target`. All at once, as GitHub sends them; then the store is looked into."""
        return self._runner.run(self._try_all(given))

    def close(self) -> None:
        """Close and delete the store."""
        self._runner.run(self._store.close())
        self._runner.close()
        self._folder.cleanup()

    async def _try_all(self, given: Sequence[Input]) -> list[Finding]:
        answers = await asyncio.gather(*(self._judge(one) for one in given), return_exceptions=True)
        kept = {delivery.key for delivery in (await self._store.load(0.0)).unapplied}
        findings = []
        for one, answer in zip(given, answers, strict=True):
            why = _wrong(one, answer, kept)
            if why is not None:
                findings.append(Finding(one, why))
        accepted = [
            _key(one) for one, word in zip(given, answers, strict=True) if word == "accepted"
        ]
        if len(accepted) != len(kept) and not findings:
            why = f"{len(accepted)} accepted, {len(kept)} kept"
            findings.append(Finding(given[0], f"among the inputs of its chunk: {why}"))
        await self._store.commit([], [], applied=sorted(kept))
        await self._store.prune(NEVER)
        return findings

    async def _judge(self, given: Input) -> DeliveryAnswer:
        headers = CIMultiDict((name, value) for name, value in given["headers"])
        return await self._endpoint.process_delivery(
            headers, given["body"].encode("latin-1"), "192.0.2.1"
        )

    def _captured(self, rng: Random) -> Input:
        """A delivery that GitHub sent, whole or with one part of it changed."""
        body = sent = rng.choice(self._real)
        made = [_signed(secret, sent) for secret in SECRETS]
        headers = {SIGNATURE: rng.choice(made), DELIVERY: _id(rng), EVENT: "workflow_job"}
        more: list[tuple[str, str]] = []
        choice = rng.randrange(8)
        if choice in (2, 3):
            body = mutated(rng, sent, self._real)
        elif choice == 4:
            headers[SIGNATURE] = mutated_text(rng, headers[SIGNATURE])
        elif choice == 5:
            headers[SIGNATURE] = _false_signature(rng, sent, rng.choice(self._real))
        elif choice == 6:
            name = rng.choice((DELIVERY, EVENT))
            headers[name] = mutated_text(rng, headers[name])
        elif choice == 7:
            more = [_second(rng, headers)]
        return {
            "headers": [*headers.items(), *more],
            "body": body.decode("latin-1"),
            "github": made if body == sent else [],
            "real": choice < 2,
        }


def _wrong(
    given: Input, answer: DeliveryAnswer | BaseException, kept: set[DeliveryKey]
) -> str | None:
    if isinstance(answer, BaseException):
        return f"process_delivery crashed: {described(answer)}"
    if answer not in ANSWERS:
        return f"an answer that is none: {answer}"
    given_for = [value for name, value in given["headers"] if name == SIGNATURE]
    authentic = len(given_for) == 1 and given_for[0] in given["github"]
    if ANSWERS[answer] < 300 and not authentic:
        return f"{answer}, though GitHub did not sign it"
    if given["real"] and answer not in ("accepted", "duplicate"):
        return f"{answer}, though GitHub sent it"
    if answer in ("accepted", "duplicate") and _key(given) not in kept:
        return f"{answer}, and the store has no such delivery"
    return None


def _key(given: Input) -> DeliveryKey:
    id_ = next((value for name, value in given["headers"] if name == DELIVERY), "")
    return Delivery(id_, "", 0.0, given["body"].encode("latin-1")).key


def _made_up(rng: Random) -> Input:
    """A body from a grammar or random, signed by GitHub, by an attacker, or not at all."""
    body = _any_body(rng)
    made: list[str] = []
    headers = {DELIVERY: _id(rng), EVENT: rng.choice(("workflow_job",) * 4 + ("ping", "push", ""))}
    match rng.randrange(4):
        case 0 | 1:
            made = [_signed(SECRETS[0], body)]
            headers[SIGNATURE] = made[0]
        case 2:
            headers[SIGNATURE] = _false_signature(rng, body, b"{}")
    return {
        "headers": list(headers.items()),
        "body": body.decode("latin-1"),
        "github": made,
        "real": False,
    }


def _any_body(rng: Random) -> bytes:
    match rng.randrange(10):
        case 0:
            return b""
        case 1:
            return rng.randbytes(rng.randrange(120))
        case 2:
            return rng.choice((b"[", b'{"action":', b'{"workflow_job":[')) * rng.randrange(1, 1_000)
        case 3:
            text = json.dumps({"action": "queued", "x": _value(rng, 3)}, ensure_ascii=False)
            return text.encode(rng.choice(("utf-16", "utf-8", "utf-32")), "surrogatepass")
        case 4:
            return json.dumps(_value(rng, 4)).encode()
    job = json.loads(_job_body(rng.randrange(99)))
    for part in (job, job["workflow_job"], job["repository"]):
        for name in rng.sample(sorted(part), rng.choice((0, 0, 1, 1, 2)) % len(part)):
            part[name] = _value(rng, 2)
    return json.dumps(job).encode()


def _value(rng: Random, depth: int) -> Any:
    match rng.randrange(9 if depth else 7):
        case 0:
            return rng.choice((None, True, False))
        case 1:
            return rng.choice((0, -1, 2**63 - 1, 2**63, 10**30, rng.randrange(10**6)))
        case 2:
            return rng.choice((0.5, -0.0, 1e308, float("inf"), float("nan")))
        case 3 | 4:
            return rng.choice(
                ("", "queued", "completed", "gpu", "\x00", "\ud800", "é" * 40, "x" * 300, "a/b")
            )
        case 5 | 6:
            return rng.choice(
                ("2027-01-15T08:00:00Z", "9999-12-31T23:59:59+23:59", "0001-01-01", "a/..")
            )
        case 7:
            return [_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {rng.choice("abc"): _value(rng, depth - 1) for _ in range(rng.randrange(4))}


def _job_body(number: int) -> bytes:
    """A workflow_job event with the fields that are read, and some that are not."""
    action = ("queued", "waiting", "in_progress", "completed")[number % 4]
    job = {
        "id": 29_679_449 + number,
        "run_id": 940_463_255,
        "run_attempt": 1,
        "status": action,
        "conclusion": "success" if action == "completed" else None,
        "name": f"linux-gpu / test (default, {number}, 24)",
        "workflow_name": "trunk",
        "labels": ["self-hosted", "gpu"],
        "created_at": "2027-01-15T07:59:30Z",
        "started_at": "2027-01-15T07:59:31Z",
        "completed_at": "2027-01-15T08:30:00Z" if action == "completed" else None,
        "runner_id": 5 if action == "in_progress" else None,
        "runner_name": "ci-gpu-1" if action == "in_progress" else None,
        "steps": [],
    }
    repository = {"full_name": "acme/widgets", "private": True}
    event = {"action": action, "workflow_job": job, "repository": repository}
    return json.dumps(event | {"sender": {"login": "octocat"}}).encode()


def _id(rng: Random) -> str:
    """Few enough to meet again within a chunk."""
    return f"0b989ba4-242f-11e5-81e1-{rng.randrange(200):012x}"


def _signed(secret: bytes, body: bytes, algorithm: str = "sha256") -> str:
    return f"{algorithm}={hmac.new(secret, body, algorithm).hexdigest()}"


def _false_signature(rng: Random, body: bytes, other: bytes) -> str:
    live = _signed(SECRETS[0], body)
    digest = live.removeprefix("sha256=")
    return rng.choice(
        (
            _signed(STOLEN, body),
            _signed(SECRETS[0], other + b" "),
            _signed(SECRETS[0], body, "sha1"),
            _signed(SECRETS[0], body, "sha512"),
            _signed(SECRETS[0], body, "md5"),
            "sha256=" + _signed(SECRETS[0], body, "sha1").removeprefix("sha1="),
            "sha256=" + hashlib.sha256(body).hexdigest(),
            _signed(b"", body),
            digest,
            live.upper(),
            live[: rng.randrange(len(live))],
            live + rng.choice(("\n", " ", "0", ",", "\x00")),
            " " + live,
            f"{live},{live}",
            "sha256=" + "é" * 64,
            "sha256=" + "\uff10" * 64,
            "",
        )
    )


def _second(rng: Random, headers: dict[str, str]) -> tuple[str, str]:
    """A header that is there already, with the same or with another value."""
    name = rng.choice((SIGNATURE, DELIVERY, EVENT))
    return name, rng.choice((headers[name], mutated_text(rng, headers[name]), ""))
