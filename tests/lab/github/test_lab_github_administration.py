"""What changes while the lab's GitHub serves: installations, groups, limits and lists."""

from collections.abc import Awaitable, Callable

import pytest

from lab.github.settings import LabRunnerGroup, Limits
from tests.lab.github.harness import APP, EPOCH, Client

Make = Callable[..., Awaitable[Client]]
RUNNERS = "/orgs/acme/actions/runners"
GROUPS = "/orgs/acme/actions/runner-groups"
RESOURCE = "actions_runner_registration"


async def test_an_installation_can_be_removed_and_made_again(client: Client) -> None:
    token = await client.token()
    other = await client.token("globex")
    client.lab.administration.uninstall(APP, "acme")
    assert (await client.as_app("GET", "/orgs/acme/installation")).status == 404
    assert (await client.as_app("GET", "/repos/acme/rocket/installation")).status == 404
    assert (await client.call("GET", RUNNERS, token)).status == 401
    assert (await client.call("GET", "/orgs/globex/actions/runners", other)).status == 200
    client.lab.administration.install(APP, "Acme", 77)
    assert (await client.as_app("GET", "/orgs/acme/installation")).json["id"] == 77
    client.tokens.clear()
    assert (await client.register("a")).status == 201
    assert [runner.installation for runner in client.lab.runners] == [77]
    client.lab.administration.uninstall(APP, "acme")
    client.lab.administration.install(APP, "acme")
    found = [one["id"] for one in (await client.as_app("GET", "/app/installations")).json]
    assert len(found) == len({*found, 77}) - 1 == 2


async def test_a_revoked_token_and_a_deleted_app_are_refused(client: Client) -> None:
    token = await client.token()
    client.lab.administration.revoke_tokens()
    refused = await client.call("GET", RUNNERS, token)
    assert (refused.status, refused.json["message"]) == (401, "Bad credentials")
    client.tokens.clear()
    token = await client.token()
    client.lab.administration.delete_app(APP)
    refused = await client.as_app("GET", "/orgs/acme/installation")
    assert (refused.status, refused.json["message"]) == (401, "Integration not found")
    assert (await client.call("GET", RUNNERS, token)).status == 200


async def test_runner_groups_can_be_replaced_except_the_default_one(client: Client) -> None:
    client.lab.administration.replace_groups(
        "acme", LabRunnerGroup("new", id=9), LabRunnerGroup("anvils", ("anvil",))
    )
    shown = (await client.ask("GET", GROUPS)).json["runner_groups"]
    assert [(one["id"], one["name"], one["visibility"]) for one in shown] == [
        (1, "Default", "all"),
        (9, "new", "all"),
        (3, "anvils", "selected"),
    ]
    assert (await client.register("a", group=9)).status == 201
    assert (await client.register("b", group=2)).status == 404
    assert [runner.group_id for runner in client.lab.runners] == [9]


async def test_one_installations_registrations_can_be_spent(make: Make) -> None:
    client = await make(limits=Limits())
    number = (await client.as_app("GET", "/orgs/acme/installation")).json["id"]
    client.lab.administration.leave_registrations(number, 1)
    shown = (await client.ask("GET", "/rate_limit")).json["resources"][RESOURCE]
    assert shown == {"limit": 10_000, "used": 9_999, "remaining": 1, "reset": EPOCH + 3600}
    assert [(await client.register(name)).status for name in ("a", "b")] == [201, 403]
    other = (await client.ask("GET", "/rate_limit", org="globex")).json["resources"][RESOURCE]
    assert other["remaining"] == 10_000


async def test_all_requests_of_an_hour_can_be_spent(make: Make) -> None:
    client = await make(limits=Limits())
    client.lab.administration.leave_requests(1)
    assert [(await client.ask("GET", RUNNERS)).status for _ in range(2)] == [200, 403]
    client.lab.administration.limit(Limits())
    assert (await client.ask("GET", RUNNERS)).status == 200


async def test_registrations_cannot_be_spent_without_limits(client: Client) -> None:
    with pytest.raises(RuntimeError, match="no limits"):
        client.lab.administration.leave_registrations(77, 1)


async def test_pages_can_be_shorter_and_names_ignored(client: Client) -> None:
    for name in ("a", "b", "c"):
        await client.register(name)
    client.lab.administration.shape_lists(2)
    first = await client.ask("GET", f"{RUNNERS}?per_page=100")
    assert [one["name"] for one in first.json["runners"]] == ["a", "b"]
    assert first.next_url is not None
    second = await client.ask("GET", first.next_url)
    assert [one["name"] for one in second.json["runners"]] == ["c"]
    named = f"{RUNNERS}?name=c"
    assert len((await client.ask("GET", named)).json["runners"]) == 1
    client.lab.administration.shape_lists(filters_names=False)
    assert len((await client.ask("GET", named)).json["runners"]) == 3


async def test_a_logged_delivery_is_listed_as_pending_until_it_ends(client: Client) -> None:
    made = client.lab.administration.log_delivery(APP, "a guid", EPOCH - 60, redelivery=False)
    (shown,) = (await client.as_app("GET", "/app/hook/deliveries")).json
    assert (shown["id"], shown["guid"], shown["status"]) == (made.id, "a guid", "pending")
    assert (shown["delivered_at"], shown["redelivery"]) == ("2027-01-15T07:59:00Z", False)
    made.status_code, made.status = 502, "Invalid HTTP Response: 502"
    (shown,) = (await client.as_app("GET", "/app/hook/deliveries")).json
    assert (shown["status_code"], shown["status"]) == (502, "Invalid HTTP Response: 502")
