"""Authentication: JWTs of the App, tokens of its installations."""

import time
from collections.abc import Awaitable, Callable

import jwt
import pytest

from tests.lab.github.harness import APP, Client, make_key

Make = Callable[..., Awaitable[Client]]


async def test_installations_are_found_by_every_route(client: Client) -> None:
    listed = await client.as_app("GET", "/app/installations")
    assert [found["account"]["login"] for found in listed.json] == ["acme", "globex"]
    assert all(found["app_id"] == APP for found in listed.json)
    by_org = await client.as_app("GET", "/orgs/ACME/installation")
    by_repo = await client.as_app("GET", "/repos/acme/Rocket/installation")
    assert by_org.json == by_repo.json == listed.json[0]


async def test_unknown_accounts_and_installations_are_404(client: Client) -> None:
    for path in ("/orgs/umbrella/installation", "/repos/acme/none/installation"):
        answer = await client.as_app("GET", path)
        assert (answer.status, answer.json["message"]) == (404, "Not Found")
    assert (await client.as_app("POST", "/app/installations/1/access_tokens")).status == 404


async def test_installations_are_paged(client: Client) -> None:
    first = await client.as_app("GET", "/app/installations?per_page=1")
    assert first.next_url is not None
    second = await client.as_app("GET", first.next_url)
    assert [found["account"]["login"] for found in first.json + second.json] == ["acme", "globex"]
    assert second.next_url is None


def _claims(**changed: object) -> dict[str, object]:
    now = int(time.time())
    return {"iat": now - 60, "exp": now + 540, "iss": str(APP), **changed}


@pytest.mark.parametrize(
    "changed",
    [
        {"exp": 1},
        {"exp": int(time.time()) + 3600},
        {"iat": int(time.time()) + 3600},
        {"iat": None},
        {"exp": None},
        {"iss": "99"},
        {"iss": "9" * 5000},
        {"iss": None},
    ],
)
async def test_a_jwt_with_wrong_claims_is_401(client: Client, changed: dict[str, object]) -> None:
    claims = {k: v for k, v in _claims(**changed).items() if v is not None}
    token = jwt.encode(claims, client.key.private, algorithm="RS256")
    assert (await client.call("GET", "/app/installations", token)).status == 401


async def test_a_jwt_that_the_app_did_not_sign_is_401(client: Client) -> None:
    stranger = jwt.encode(_claims(), make_key().private, algorithm="RS256")
    unsigned = jwt.encode(_claims(), "", algorithm="none")
    symmetric = jwt.encode(_claims(), "k" * 32, algorithm="HS256")
    good = client.jwt()
    forged = ".".join([*good.split(".")[:2], "AAAA"])
    for token in (stranger, unsigned, symmetric, forged, "x.y.z", "a.b", "é.é.é", "W10.W10.W10"):
        assert (await client.call("GET", "/app/installations", token)).status == 401, token
    assert (await client.call("GET", "/app/installations", None)).status == 401
    assert (await client.call("GET", "/app/installations", good)).status == 200


async def test_a_token_works_until_it_expires(make: Make) -> None:
    moved = [0.0]
    client = await make(wall=lambda: time.time() + moved[0], token_lifetime=3600.0)
    token = await client.token()
    path = "/orgs/acme/actions/runners"
    assert (await client.call("GET", path, token)).status == 200
    moved[0] = 3601.0
    answer = await client.call("GET", path, token)
    assert (answer.status, answer.json["message"]) == (401, "Bad credentials")
    assert (await client.call("GET", path, "ghs_unknown")).status == 401
    assert (await client.call("GET", path, client.jwt())).status == 401


async def test_a_token_opens_its_own_organization_only(client: Client) -> None:
    assert (await client.ask("GET", "/orgs/globex/actions/runners", org="acme")).status == 403
    assert (await client.ask("GET", "/repos/globex/reactor/actions/runs")).status == 403
    assert (await client.ask("GET", "/orgs/globex/actions/runners", org="globex")).status == 200


async def test_public_routes_need_no_credentials_and_unknown_routes_are_not_found(
    client: Client,
) -> None:
    assert (await client.call("GET", "/", None)).status == 200
    meta = await client.call("GET", "/meta", None)
    assert meta.json["hooks"] == ["127.0.0.0/8"]
    unknown = await client.call("POST", "/no/such/thing", None)
    assert (unknown.status, unknown.json["message"]) == (404, "Not Found")


async def test_calls_are_counted_by_route_and_status(client: Client) -> None:
    await client.register("a")
    await client.register("a")
    path = "POST /orgs/{org}/actions/runners/generate-jitconfig"
    assert client.lab.calls[path, 201] == 1
    assert client.lab.calls[path, 409] == 1
