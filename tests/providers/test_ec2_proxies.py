"""The worker's calls go through the proxy that the environment names; the metadata services' do not."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.request import getproxies_environment, proxy_bypass

import pytest
from aiohttp import web

from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.ec2.worker.channel import WorkerChannel
from autoscaler.providers.ec2.worker.process import keep_metadata_direct
from tests.connect_proxy import connect_proxy
from tests.providers.conftest import ACCOUNT, REGION
from tests.providers.ec2_front import Ec2Front, Reply
from tests.server.certificates import make_certificate

pytestmark = pytest.mark.asyncio(loop_scope="session")


@asynccontextmanager
async def behind_tls(
    front: Ec2Front, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[str]:
    files = make_certificate(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    app = web.Application()
    app.router.add_post("/", front.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    monkeypatch.setenv("AWS_CA_BUNDLE", str(files.certificate))
    yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.mark.case(
    "a proxy between the controller and AWS refuses, or loses an answer",
    topic="EC2's API",
    source="botocore httpsession.py",
)
async def test_calls_go_through_https_proxy(
    front: Ec2Front, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with behind_tls(front, tmp_path, monkeypatch) as url, connect_proxy() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        channel = WorkerChannel(REGION, url)
        assert await channel.call("GetCallerIdentity", {}) == ACCOUNT
        await channel.close()
        assert proxy.asked == [f"CONNECT {url.removeprefix('https://')}"]
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        channel = WorkerChannel(REGION, url)
        assert await channel.call("GetCallerIdentity", {}) == ACCOUNT
        await channel.close()
        assert len(proxy.asked) == 1


@pytest.mark.case(
    "a proxy between the controller and AWS refuses, or loses an answer",
    topic="EC2's API",
    source="botocore httpsession.py",
)
async def test_a_refusal_by_the_proxy_sends_nothing_and_a_lost_answer_is_unknown(
    front: Ec2Front, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with behind_tls(front, tmp_path, monkeypatch) as url, connect_proxy() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        channel = WorkerChannel(REGION, url)
        front.script("DescribeSubnets", Reply(0))
        with pytest.raises(OutcomeUnknownError):
            await channel.call("DescribeSubnets", {"ids": ["subnet-1"]})
        proxy.refusal = "503 Service Unavailable"
        with pytest.raises(ProviderError, match="ProxyConnectionError") as refused:
            await channel.call("DescribeSubnets", {"ids": ["subnet-1"]})
        assert refused.value.failure is FailureClass.UNKNOWN
        await channel.close()


async def test_credentials_of_the_instance_are_never_asked_for_through_a_proxy(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"):
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    async with connect_proxy() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        channel = WorkerChannel(REGION, endpoint)
        with pytest.raises(ProviderError, match="NoCredentialsError"):
            await channel.call("GetCallerIdentity", {})
        await channel.close()
        assert proxy.asked == []


@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
@pytest.mark.parametrize("known", ["", "example.com", "*"])
async def test_metadata_services_are_excluded_from_the_proxy(
    monkeypatch: pytest.MonkeyPatch, name: str, known: str
) -> None:
    environment = {"HTTP_PROXY": "http://p:1", name: known}
    keep_metadata_direct(environment)
    for variable in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    proxies = getproxies_environment()
    for host in ("169.254.169.254", "[fd00:ec2::254]", "169.254.170.2", "169.254.170.23"):
        assert proxy_bypass(host, proxies)
    assert bool(proxy_bypass("example.com", proxies)) is bool(known)
    assert bool(proxy_bypass("ec2.amazonaws.com", proxies)) is (known == "*")
