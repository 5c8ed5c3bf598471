"""Requests to GitHub go through the proxy that the environment names, and past it where it says so.

In a process of their own: what is trusted is read when aiohttp is imported.
"""

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from autoscaler.github.requests.exchange import NotSentError, Request
from autoscaler.github.requests.transport import Transport, proxy_for
from autoscaler.github.settings import AppKey, GitHubSettings
from tests.connect_proxy import connect_proxy
from tests.github.doubles import ManualClock, RememberingTelemetry
from tests.server.certificates import make_certificate

ASK = """
import asyncio, json, sys
from autoscaler.controller.system import SystemClock
from autoscaler.github.requests.exchange import NoAnswerError, NotSentError, Request
from autoscaler.github.settings import AppKey, GitHubSettings
from autoscaler.github.requests.transport import Transport
from tests.github.doubles import RememberingTelemetry

async def main():
    settings = GitHubSettings(sys.argv[1], (AppKey(1, ""),))
    transport = Transport(settings, SystemClock(), RememberingTelemetry())
    try:
        answer = await transport.send(Request("POST", "/widgets", body={"a": 1}), "TOKEN")
        print(json.dumps([answer.status, answer.data]))
    except (NotSentError, NoAnswerError) as error:
        print(json.dumps([type(error).__name__, str(error)]))
    await transport.close()

asyncio.run(main())
"""


@asynccontextmanager
async def github(folder: Path) -> AsyncIterator[tuple[str, list[str | None]]]:
    """A GitHub behind TLS: its URL, and the tokens that it received."""
    tokens: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        tokens.append(request.headers.get("Authorization"))
        return web.json_response({"said": await request.json()})

    app = web.Application()
    app.router.add_post("/widgets", answer)
    files = make_certificate(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}", tokens
    await runner.cleanup()


async def asked(folder: Path, url: str, **environment: str) -> Any:
    """Return the outcome of a request with these environment variables."""
    known = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path), "HOME": str(folder)}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        ASK,
        url,
        stdout=asyncio.subprocess.PIPE,
        env={**known, "SSL_CERT_FILE": str(folder / "server.pem"), **environment},
    )
    said, _ = await process.communicate()
    return json.loads(said)


SAID = [200, {"said": {"a": 1}}]


async def test_requests_go_through_https_proxy_in_a_tunnel(tmp_path: Path) -> None:
    async with github(tmp_path) as (url, tokens), connect_proxy() as proxy:
        # A netrc for GitHub's host neither replaces the App's token nor stops the request.
        (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password other\n")
        named = proxy.url.replace("http://", "http://user:word@")
        assert await asked(tmp_path, url, HTTPS_PROXY=named) == SAID
        assert proxy.asked == [f"CONNECT {url.removeprefix('https://')}"]
        assert proxy.authorizations == ["Basic dXNlcjp3b3Jk"]
        assert tokens == ["Bearer TOKEN"]


async def test_no_proxy_bypasses_the_proxy(tmp_path: Path) -> None:
    async with github(tmp_path) as (url, _), connect_proxy() as proxy:
        around = {"HTTPS_PROXY": proxy.url, "NO_PROXY": "example.com,127.0.0.1"}
        assert await asked(tmp_path, url, **around) == SAID
        assert proxy.asked == []


async def test_a_refusal_by_the_proxy_means_that_nothing_was_sent(tmp_path: Path) -> None:
    async with github(tmp_path) as (url, tokens), connect_proxy() as proxy:
        proxy.refusal = "403 Forbidden"
        kind, said = await asked(tmp_path, url, HTTPS_PROXY=proxy.url)
        assert kind == "NotSentError"
        assert "the proxy answered 403" in said
        assert tokens == []


async def test_an_unreachable_proxy_means_that_nothing_was_sent(tmp_path: Path) -> None:
    async with github(tmp_path) as (url, _):
        kind, _ = await asked(tmp_path, url, HTTPS_PROXY="http://127.0.0.1:9")
        assert kind == "NotSentError"


async def test_a_retry_does_not_help_with_an_untrusted_certificate(tmp_path: Path) -> None:
    async with github(tmp_path) as (url, tokens):
        settings = GitHubSettings(url, (AppKey(1, ""),))
        transport = Transport(settings, ManualClock(), RememberingTelemetry())
        with pytest.raises(NotSentError, match="not trusted") as caught:
            await transport.send(Request("POST", "/widgets", body={"a": 1}), "TOKEN")
        await transport.close()
    assert (caught.value.outcome, caught.value.lasting, tokens) == ("certificate", True, [])


@pytest.mark.parametrize(
    ("environment", "url", "proxy"),
    [
        ({}, "https://api.github.com", None),
        ({"HTTPS_PROXY": "http://p:1"}, "https://api.github.com", "http://p:1"),
        ({"https_proxy": "p:1"}, "https://api.github.com", "http://p:1"),
        ({"HTTP_PROXY": "http://p:1"}, "https://api.github.com", None),
        ({"HTTP_PROXY": "http://p:1"}, "http://ghe.acme", "http://p:1"),
        ({"ALL_PROXY": "http://p:1"}, "https://api.github.com", "http://p:1"),
        ({"HTTPS_PROXY": "p:1", "NO_PROXY": ".acme"}, "https://ghe.acme/api/v3", None),
        ({"HTTPS_PROXY": "p:1", "NO_PROXY": "*"}, "https://api.github.com", None),
        ({"HTTPS_PROXY": "p:1", "NO_PROXY": "acme"}, "https://api.github.com", "http://p:1"),
    ],
)
def test_the_proxy_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], url: str, proxy: str | None
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(url) == proxy
