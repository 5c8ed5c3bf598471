"""A request that was certainly not sent is a failure; one that may have arrived has an unknown outcome."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.ec2.worker.channel import Timeouts, WorkerChannel
from tests.patience import PATIENCE
from tests.providers.conftest import REGION
from tests.providers.ec2_front import Ec2Front, Reply
from tests.server.certificates import make_certificate

pytestmark = pytest.mark.asyncio(loop_scope="session")

UseProfile = Callable[[str], None]


@pytest.fixture
def use_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UseProfile:
    """Make the next worker use only the credentials of this profile."""

    def use(profile: str) -> None:
        file = tmp_path / "aws-config"
        file.write_text(f"[profile fleet]\nregion = {REGION}\n{profile}\n")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_CONFIG_FILE", str(file))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_PROFILE", "fleet")
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")

    return use


@asynccontextmanager
async def channel_to(url: str, **timeouts: float) -> AsyncIterator[WorkerChannel]:
    channel = WorkerChannel(
        REGION, url, Timeouts(**{"connect": PATIENCE, "read": PATIENCE, **timeouts})
    )
    yield channel
    await channel.close()


async def failure_at(url: str) -> ProviderError:
    async with channel_to(url) as channel:
        with pytest.raises(ProviderError) as refusal:
            await channel.call("DescribeSubnets", {"ids": ["subnet-1"]})
    return refusal.value


@pytest.mark.case(
    "credentials cannot be resolved, or no connection is made: nothing was sent",
    topic="EC2's API",
    source="botocore endpoint.py",
)
async def test_a_refused_connection_proves_that_no_request_was_sent() -> None:
    failure = await failure_at("http://127.0.0.1:9")
    assert failure.code == "EndpointConnectionError"
    assert failure.failure is FailureClass.UNKNOWN


async def test_a_name_that_does_not_resolve_sends_nothing() -> None:
    failure = await failure_at("http://nowhere.invalid")
    assert failure.code == "EndpointConnectionError"


@pytest.mark.case(
    "credentials cannot be resolved, or no connection is made: nothing was sent",
    topic="EC2's API",
    source="botocore endpoint.py",
)
async def test_a_failing_credential_process_sends_nothing(
    front: Ec2Front, endpoint: str, use_profile: UseProfile
) -> None:
    use_profile("credential_process = /bin/false")
    before = len(front.seen)
    failure = await failure_at(endpoint)
    assert failure.code == "CredentialRetrievalError"
    assert failure.failure is FailureClass.UNKNOWN
    assert len(front.seen) == before


async def test_an_expired_sso_session_is_a_configuration_error(
    endpoint: str, use_profile: UseProfile
) -> None:
    use_profile(
        "sso_session = acme\nsso_account_id = 123456789012\nsso_role_name = ci\n"
        f"[sso-session acme]\nsso_region = {REGION}\nsso_start_url = {endpoint}/start"
    )
    failure = await failure_at(endpoint)
    assert failure.code in ("TokenRetrievalError", "UnauthorizedSSOTokenError", "SSOTokenLoadError")
    assert failure.failure is FailureClass.CONFIGURATION


@pytest.mark.case(
    "credentials cannot be resolved, or no connection is made: nothing was sent",
    topic="EC2's API",
    source="botocore endpoint.py",
)
@pytest.mark.parametrize(
    ("status", "code", "failure"),
    [
        (403, "AccessDenied", FailureClass.CONFIGURATION),
        (500, "InternalFailure", FailureClass.UNKNOWN),
    ],
)
async def test_a_role_that_sts_refuses_sends_nothing(
    front: Ec2Front,
    endpoint: str,
    use_profile: UseProfile,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    code: str,
    failure: FailureClass,
) -> None:
    use_profile(
        "role_arn = arn:aws:iam::123456789012:role/fleet\nsource_profile = keys\n"
        "[profile keys]\naws_access_key_id = testing\naws_secret_access_key = testing"
    )
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoint)
    front.script("AssumeRole", Reply(status, code, "no"))
    refused = await failure_at(endpoint)
    assert (refused.code, refused.failure) == (code, failure)
    assert "AssumeRole" in refused.message
    assert not front.unplayed()


async def test_a_certificate_that_is_not_trusted_sends_nothing(tmp_path: Path) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    files = make_certificate(tmp_path)
    context.load_cert_chain(files.certificate, files.key)
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read(1))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    failure = await failure_at(f"https://localhost:{server.sockets[0].getsockname()[1]}")
    server.close()
    assert failure.code == "SSLError"
    assert failure.failure is FailureClass.CONFIGURATION
    assert not received


@pytest.mark.parametrize("after", [False, True])
async def test_a_connection_that_breaks_after_the_request_leaves_the_outcome_unknown(
    front: Ec2Front, endpoint: str, after: bool
) -> None:
    front.script("DescribeSubnets", Reply(0, after=after))
    async with channel_to(endpoint) as channel:
        with pytest.raises(OutcomeUnknownError, match="ConnectionClosedError"):
            await channel.call("DescribeSubnets", {"ids": ["subnet-1"]})
