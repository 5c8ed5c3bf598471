"""A real `autoscaler serve` on a store of the test's choice, and GitHub's deliveries to it.

GitHub and EC2 are nowhere to be reached: deliveries are taken in all the same.
"""

import asyncio
import hashlib
import hmac
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autoscaler.store.sqlite.store import SqliteStore
from tests.config.fleet_file import NAMED_FILES, changed
from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]
_NOWHERE = "http://127.0.0.1:9"
_SECRET = NAMED_FILES["secret"].strip().encode()


@dataclass
class Served:
    """One controller in `folder`, its store in `store`; `wrapper` goes before its command.

    `acknowledged` are the jobs whose deliveries were answered 2xx, over all its lives.
    """

    folder: Path
    store: Path
    acknowledged: set[int] = field(default_factory=set)
    port: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("app.pem", "secret"):
            (self.folder / name).write_text(NAMED_FILES[name])
        text = changed(
            ("scopes:", f"api_url: {_NOWHERE}\n  scopes:"),
            ("sqlite:///state.db", f"sqlite:///{self.store}"),
        )
        (self.folder / "fleet.yaml").write_text(text)

    async def start(self, *wrapper: str, options: Sequence[str] = ()) -> asyncio.subprocess.Process:
        """Start the controller with `wrapper` before its command. Returns when it listens or has ended."""
        log = self.folder / "log"
        log.write_bytes(b"")
        command = (
            *wrapper,
            sys.executable,
            "-m",
            "autoscaler.cli",
            "serve",
            "-c",
            "fleet.yaml",
            *options,
        )
        with log.open("ab") as out:
            process = await asyncio.create_subprocess_exec(
                *command, stdout=out, stderr=out, cwd=self.folder, env=_environment()
            )
        async with asyncio.timeout(PATIENCE):
            await self._listens_or_ended(process)
        return process

    async def _listens_or_ended(self, process: asyncio.subprocess.Process) -> None:
        while process.returncode is None:
            if (port := self.listens()) is not None:
                self.port = port
                return
            await asyncio.sleep(0.02)

    async def until_logged(self, words: str) -> None:
        """Wait until its log has these words."""
        async with asyncio.timeout(PATIENCE):
            while True:
                if words in self.log():
                    return
                await asyncio.sleep(0.05)

    def listens(self) -> int | None:
        """Return the port that its log names, or None."""
        found = re.search(r'"on": "127\.0\.0\.1:(\d+)"', self.log())
        return int(found[1]) if found else None

    def log(self) -> str:
        """Return the log of this process."""
        return (self.folder / "log").read_text()

    def stopped(self) -> str:
        """Return the reason in its log for which it ended."""
        lines = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]
        reasons = [line["reason"] for line in lines if line.get("event") == "stopped"]
        return str(reasons[-1]) if reasons else self.log()

    async def deliver(self, *jobs: int, pieces: int = 1, padding: int = 12_000) -> list[int]:
        """Send deliveries one after the other on one connection. Return their statuses, 0 without an answer."""
        statuses = []
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return [0] * len(jobs)
        for job in jobs:
            try:
                statuses.append(await _post(reader, writer, delivery(job, padding), pieces))
            except (OSError, asyncio.IncompleteReadError):
                statuses.append(0)
                continue
            if statuses[-1] // 100 == 2:
                self.acknowledged.add(job)
        writer.close()
        return statuses

    async def kept(self) -> set[int]:
        """Return the jobs in the store, applied or not, after the controller ended."""
        store = await SqliteStore.open(self.store)
        try:
            state = await store.load(0.0)
        finally:
            await store.close()
        waiting = {int(delivery.id.removeprefix("d-")) for delivery in state.unapplied}
        return waiting | {job.id for job in state.jobs}


def delivery(job: int, padding: int) -> bytes:
    """Return the HTTP request of a signed delivery about a queued job."""
    body = _event(job, padding)
    signature = hmac.new(_SECRET, body, hashlib.sha256).hexdigest()
    head = (
        "POST /webhook HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nX-GitHub-Event: workflow_job\r\n"
        f"X-GitHub-Delivery: d-{job}\r\nX-Hub-Signature-256: sha256={signature}\r\n\r\n"
    )
    return head.encode() + body


def _event(job: int, padding: int) -> bytes:
    # Random text, because the store compresses bodies.
    noise = "".join(hashlib.sha256(f"{job}.{n}".encode()).hexdigest() for n in range(padding // 64))
    reported: dict[str, Any] = {
        "action": "queued",
        "workflow_job": {
            "id": job,
            "run_id": job,
            "name": noise[:60],
            "status": "queued",
            "labels": ["gpu"],
            "created_at": "2026-01-02T03:04:05Z",
        },
        "repository": {"full_name": "acme/widgets"},
        "noise": noise,
    }
    return json.dumps(reported).encode()


async def _post(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes, pieces: int
) -> int:
    for part in _cut(request, pieces):
        writer.write(part)
        await writer.drain()
        if pieces > 1:
            await asyncio.sleep(0.003)  # so that the controller reads it in several pieces
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    await reader.readexactly(int(length[1]) if length else 0)
    return int(head.split(b" ", 2)[1])


def _cut(request: bytes, pieces: int) -> Sequence[bytes]:
    size = -(-len(request) // pieces)
    return [request[start : start + size] for start in range(0, len(request), size)]


def _environment() -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    return {
        **inherited,
        "PYTHONPATH": str(ROOT),
        "AWS_ENDPOINT_URL": _NOWHERE,
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "no_proxy": "127.0.0.1",
    }
