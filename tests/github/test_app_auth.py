"""Which App is used for which account, how long a token is used, and what stays secret."""

import asyncio
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from autoscaler.controller.ports.github import GitHubError, OperatorError, RetryLaterError
from autoscaler.github.apps.authentication import App
from autoscaler.github.client import GitHubClient
from autoscaler.github.settings import AppKey, GitHubSettings
from autoscaler.model.identifiers import JobId, RunnerName
from tests.github.conftest import KeyPair, World
from tests.github.doubles import START, ManualClock
from tests.github.faults import changed, fault

ANY_NAME = RunnerName("r")


async def test_a_jwt_is_reused_for_minutes_and_renewed_before_it_expires(
    keys: KeyPair, clock: ManualClock
) -> None:
    app = App(AppKey(1, keys.private_pem), clock.now)
    first = await app.token()
    clock.at += 359
    assert await app.token() == first
    clock.at += 1
    assert await app.token() != first


async def test_a_jwt_of_a_wrong_time_is_not_used_once_the_clock_is_set_back(keys: KeyPair) -> None:
    wall = ManualClock()
    app = App(AppKey(1, keys.private_pem), wall.now)
    wall.at += 600
    wrong = await app.token()
    wall.at -= 600
    claims = jwt.decode(await app.token(), options={"verify_signature": False})
    assert await app.token() != wrong
    assert claims["iat"] <= wall.at


@pytest.mark.case(
    "installation tokens last an hour, and may be revoked",
    topic="GitHub's REST API",
    source="GitHub: installation tokens",
)
async def test_a_token_is_requested_once_and_renewed_before_it_expires(
    world: World, client: GitHubClient
) -> None:
    await asyncio.gather(*(client.find_runner("org:acme", ANY_NAME) for _ in range(20)))
    assert world.traffic.count("access_tokens") == 1
    world.clock.at += 3600 - 301
    await client.find_runner("org:acme", ANY_NAME)
    assert world.traffic.count("access_tokens") == 1
    world.clock.at += 1
    await asyncio.gather(*(client.find_runner("org:acme", ANY_NAME) for _ in range(20)))
    assert world.traffic.count("access_tokens") == 2
    assert world.traffic.count("installation$") == 1


@pytest.mark.case(
    "installation tokens last an hour, and may be revoked",
    topic="GitHub's REST API",
    source="GitHub: installation tokens",
)
async def test_a_revoked_token_is_replaced_even_for_a_registration(
    world: World, client: GitHubClient
) -> None:
    await client.find_runner("org:acme", ANY_NAME)
    world.administration.revoke_tokens()
    registered = await client.register("org:acme", "Default", ANY_NAME, ("gpu",))
    assert registered.github_id == 1
    assert len(world.github.runners) == 1


async def test_many_requests_with_a_revoked_token_share_one_request_for_another(
    world: World, client: GitHubClient
) -> None:
    await client.find_runner("org:acme", ANY_NAME)
    for revoked in (1, 2):
        world.administration.revoke_tokens()
        await asyncio.gather(*(client.find_runner("org:acme", ANY_NAME) for _ in range(40)))
        assert world.traffic.count("access_tokens") == 1 + revoked


async def test_a_late_refusal_of_the_earlier_token_keeps_the_new_one(
    world: World, client: GitHubClient
) -> None:
    await client.find_runner("org:acme", ANY_NAME)
    late = world.traffic.hold = asyncio.Event()
    slow = [asyncio.create_task(client.find_runner("org:acme", ANY_NAME)) for _ in range(20)]
    await world.traffic.until_under_way(20)
    world.traffic.hold = None
    world.administration.revoke_tokens()
    await client.find_runner("org:acme", ANY_NAME)
    late.set()
    await asyncio.gather(*slow)
    assert world.traffic.count("access_tokens") == 2


async def test_a_late_refusal_of_the_earlier_jwt_keeps_the_new_one(keys: KeyPair) -> None:
    clock = ManualClock()
    app = App(AppKey(1, keys.private_pem), clock.now)
    earlier = await app.token()
    clock.at += 400
    later = await app.token()
    clock.at += 1
    app.reject_token(earlier)
    assert await app.token() == later
    app.reject_token(later)
    assert await app.token() not in (earlier, later)


async def test_organisations_and_repositories_each_have_their_own_installation(
    world: World, client: GitHubClient
) -> None:
    world.administration.install(1, "umbrella", 78)
    await client.find_runner("org:Acme", ANY_NAME)
    await client.find_runner("repo:umbrella/lab", ANY_NAME)
    await client.read_job("acme/widgets", JobId(1), START)
    assert world.traffic.count("/orgs/Acme/installation") == 1
    assert world.traffic.count("/repos/umbrella/lab/installation") == 1
    assert world.traffic.count("installations/77/access_tokens") == 1
    assert world.traffic.count("installations/78/access_tokens") == 1


async def test_the_first_app_with_an_installation_is_used(world: World) -> None:
    world.administration.uninstall(1, "acme")
    world.administration.install(2, "acme", 90)
    async with world.client(apps=(1, 2)) as client:
        await client.find_runner("org:acme", ANY_NAME)
    assert world.traffic.count("installations/90/access_tokens") == 1


async def test_an_account_without_the_app_is_an_operator_error_and_affects_no_other(
    client: GitHubClient,
) -> None:
    with pytest.raises(OperatorError, match="no configured App is installed on globex"):
        await client.find_runner("org:globex", ANY_NAME)
    assert await client.find_runner("org:acme", ANY_NAME) is None


async def test_a_reinstalled_app_is_found_again(world: World, client: GitHubClient) -> None:
    await client.find_runner("org:acme", ANY_NAME)
    world.administration.uninstall(1, "acme")
    world.administration.install(1, "acme", 79)
    with pytest.raises(OperatorError, match="installation does not exist"):
        await client.find_runner("org:acme", ANY_NAME)
    assert await client.find_runner("org:acme", ANY_NAME) is None
    assert world.traffic.count("installations/79/access_tokens") == 1


async def test_a_failed_token_request_fails_all_its_waiters_at_once(
    world: World, client: GitHubClient
) -> None:
    world.github.inject_faults(fault("access_tokens", 500, times=99))
    outcomes = await asyncio.gather(
        *(client.find_runner("org:acme", ANY_NAME) for _ in range(20)), return_exceptions=True
    )
    assert all(isinstance(outcome, RetryLaterError) for outcome in outcomes)
    assert world.traffic.count("access_tokens") == 3


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "ü"])
async def test_a_token_that_could_break_a_header_is_refused(
    world: World, client: GitHubClient, token: str
) -> None:
    world.github.inject_faults(fault("access_tokens", 201, {"token": token}, times=9))
    with pytest.raises(RetryLaterError, match="unknown shape"):
        await client.find_runner("org:acme", ANY_NAME)


async def test_tokens_can_use_another_clock(world: World) -> None:
    settings = GitHubSettings(world.url, (AppKey(1, world.keys.private_pem),))
    fast = ManualClock(START + 1_000_000)
    without = GitHubClient(settings, fast, world.telemetry)
    with pytest.raises(OperatorError, match="'Issued at' claim"):
        await without.find_runner("org:acme", ANY_NAME)
    await without.close()
    client = GitHubClient(settings, fast, world.telemetry, token_clock=world.clock)
    assert await client.find_runner("org:acme", ANY_NAME) is None
    await client.close()


@pytest.mark.case(
    "the host's clock is wrong: GitHub refuses the App, and the message says by how much",
    topic="GitHub's REST API",
    source="octokit/auth-app.js#698",
)
@pytest.mark.parametrize(
    ("ahead", "words"),
    [
        (130.0, r"'Issued at' claim .* clock is (129|130) s ahead of GitHub's"),
        (610.4, r"'Issued at' claim .* clock is (609|610) s ahead of GitHub's"),
        (-600.0, r"'Expiration time' claim .* clock is (599|600) s behind GitHub's"),
    ],
)
async def test_a_refused_claim_is_named_with_the_difference_of_the_clocks(
    world: World, ahead: float, words: str
) -> None:
    settings = GitHubSettings(world.url, (AppKey(1, world.keys.private_pem),))
    clock = world.clock
    client = GitHubClient(settings, clock, world.telemetry, wall=lambda: clock.now() + ahead)
    with pytest.raises(OperatorError, match=words):
        await client.find_runner("org:acme", ANY_NAME)
    assert world.telemetry.clocks[-1] == pytest.approx(ahead, abs=1.1)
    await client.close()


@pytest.mark.parametrize("ahead", [-29.0, 0.0, 0.9, 29.0])
async def test_a_small_difference_of_the_clocks_is_measured_and_explains_no_refusal(
    world: World, ahead: float
) -> None:
    settings = GitHubSettings(world.url, (AppKey(1, world.keys.private_pem),))
    clock = world.clock
    client = GitHubClient(settings, clock, world.telemetry, wall=lambda: clock.now() + ahead)
    assert await client.find_runner("org:acme", ANY_NAME) is None
    world.administration.delete_app(1)
    world.administration.revoke_tokens()
    with pytest.raises(OperatorError, match="401") as refused:
        await client.find_runner("org:acme", ANY_NAME)
    assert "clock" not in str(refused.value)
    assert world.telemetry.clocks[-1] == pytest.approx(ahead, abs=1.1)
    assert (world.telemetry.clocks[-1] == 0.0) is (abs(ahead) < 1.0)
    await client.close()


@pytest.mark.parametrize("date", ["", "yesterday", "Mon, 99 Foo 2026 99:99:99 GMT"])
async def test_an_answer_without_a_readable_date_measures_nothing(
    world: World, client: GitHubClient, date: str
) -> None:
    world.github.inject_faults(changed("/", headers={"Date": date}))
    assert await client.find_runner("org:acme", ANY_NAME) is None
    assert set(world.telemetry.clocks) <= {0.0}


async def test_the_date_of_a_proxys_error_is_not_githubs(
    world: World, client: GitHubClient
) -> None:
    old = {"Date": "Sun, 01 Nov 2020 10:00:00 GMT"}
    world.github.inject_faults(fault("/installation$", 502, b"<html>", old, times=9))
    with pytest.raises(RetryLaterError):
        await client.find_runner("org:acme", ANY_NAME)
    assert world.telemetry.clocks == []


async def test_a_token_of_2000_characters_is_used(world: World, client: GitHubClient) -> None:
    world.administration.lengthen_tokens(2_000)
    assert await client.find_runner("org:acme", ANY_NAME) is None
    world.administration.lengthen_tokens(4_000)
    world.administration.revoke_tokens()
    assert await client.find_runner("org:acme", ANY_NAME) is None


async def test_a_key_that_github_does_not_know_raises_operator_error(world: World) -> None:
    world.administration.delete_app(1)
    async with world.client() as client:
        with pytest.raises(OperatorError, match="401"):
            await client.find_runner("org:acme", ANY_NAME)


def test_a_key_that_cannot_sign_is_refused_without_showing_it() -> None:
    curve = ec.generate_private_key(ec.SECP256R1())
    elliptic = curve.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    for pem in ("", "hunter2", elliptic):
        with pytest.raises(
            ValueError, match=r"^App 7: the key is not an unencrypted RSA"
        ) as caught:
            App(AppKey(7, pem), ManualClock().now)
        assert caught.value.__cause__ is None


async def test_no_secret_is_in_any_repr_or_message(world: World, keys: KeyPair) -> None:
    secret = keys.private_pem.splitlines()[1]
    settings = GitHubSettings(world.url, (AppKey(1, keys.private_pem),))
    assert secret not in repr(settings)
    said = []
    tokens: list[str] = []

    def note(shown: dict[str, Any]) -> dict[str, Any]:
        tokens.append(shown["token"])
        return shown

    world.github.inject_faults(changed("access_tokens", note))
    async with world.client() as client:
        await client.find_runner("org:acme", ANY_NAME)
        (token,) = tokens
        for status in (201, 404, 409, 422, 500):
            body = {"message": "no", "encoded_jit_config": {"JIT": 1}, "runner": {"id": 1}}
            world.github.inject_faults(fault("generate-jitconfig", status, body))
            with pytest.raises(GitHubError) as caught:
                await client.register("org:acme", "gpu", ANY_NAME, ("gpu",))
            error: BaseException | None = caught.value
            assert error is not None
            assert error.__cause__ is None
            assert error.__context__ is None or error.__suppress_context__
            said.append(repr(error))
    assert not [text for text in said if token in text or "JIT" in text]


def test_settings_that_cannot_work_are_refused() -> None:
    app = (AppKey(1, "pem"),)
    with pytest.raises(ValueError, match="api_url"):
        GitHubSettings("ftp://x", app)
    with pytest.raises(ValueError, match="apps"):
        GitHubSettings("https://x", ())
    with pytest.raises(ValueError, match="concurrency"):
        GitHubSettings("https://x", app, concurrency=101)
    with pytest.raises(ValueError, match="timeout"):
        GitHubSettings("https://x", app, timeout=0)
