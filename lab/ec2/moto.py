"""Starts moto in its own process, and sends requests to it."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import aiohttp

from lab.ec2.query import read_xml
from lab.ending import end

API_VERSION = "2016-11-15"
_START_PATIENCE = 300.0
"""Seconds until a moto that does not listen is killed."""


class MotoAnswer(NamedTuple):
    """An HTTP answer."""

    status: int
    content_type: str
    body: bytes


class MotoProcess:
    """One moto server. Several LabEc2 may share it: each account is separate in moto."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self) -> None:
        """Start moto and wait until it listens (1 to 2 s). Blocks. Raises RuntimeError if it fails."""
        root = str(Path(__file__).resolve().parents[3])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lab.ec2.moto_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C is for the lab, which closes this one last.
            start_new_session=True,
            # Seeded images are the front's own; moto's stock images cost a second to load.
            env=os.environ | {"PYTHONPATH": path, "MOTO_EC2_LOAD_DEFAULT_AMIS": "false"},
        )
        assert self._process.stdout is not None
        timer = threading.Timer(_START_PATIENCE, self._process.kill)
        timer.start()
        port = self._process.stdout.readline().strip()
        timer.cancel()
        if not port.isdigit():
            self.close()
            raise RuntimeError("moto did not start: run `make setup`, which installs it into .venv")
        self.url = f"http://127.0.0.1:{int(port)}/"

    def close(self) -> None:
        """Stop moto and wait for its exit. Blocks. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            end(process)


class MotoClient:
    """Sends requests to moto for one account in one region."""

    def __init__(self, url: str, account: str, region: str) -> None:
        self._url = url
        # moto picks the backend by the credential scope and this header; it checks no signature.
        self._headers = {
            "Authorization": "AWS4-HMAC-SHA256 Credential=lab/20260101/"
            f"{region}/ec2/aws4_request, SignedHeaders=host, Signature=0",
            "Content-Type": "application/x-www-form-urlencoded; charset=utf-8",
            "x-moto-account-id": account,
        }
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True, limit=8),
            timeout=aiohttp.ClientTimeout(total=60),
        )

    async def forward(
        self, body: bytes, path: str = "", headers: Mapping[str, str] | None = None
    ) -> MotoAnswer:
        """Pass a request on. `headers` are the caller's and name the service; without them it is EC2."""
        sent = self._headers | dict(headers or {})
        async with self._session.post(self._url + path, data=body, headers=sent) as response:
            content_type = response.headers.get("Content-Type", "text/xml")
            return MotoAnswer(response.status, content_type, await response.read())

    async def ask(self, action: str, **fields: str) -> Any:
        """Call an action with query fields. Return the answer as `read_xml` does. Raises Ec2Error."""
        form = {"Action": action, "Version": API_VERSION} | fields
        return read_xml((await self.forward(urlencode(form).encode())).body)

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._session.close()
        # Lets closing transports finish, so that none is collected while open.
        await asyncio.sleep(0)
