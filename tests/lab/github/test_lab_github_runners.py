"""Runner groups and runners over REST."""

from typing import Any

import pytest

from tests.lab.github.harness import Client, job

RUNNERS = "/orgs/acme/actions/runners"


async def test_groups_are_paged_and_named(client: Client) -> None:
    path = "/orgs/acme/actions/runner-groups?per_page=2"
    first = await client.ask("GET", path)
    assert first.json["total_count"] == 3
    assert first.next_url is not None
    second = await client.ask("GET", first.next_url)
    groups = first.json["runner_groups"] + second.json["runner_groups"]
    assert [group["name"] for group in groups] == ["Default", "gpu", "anvils"]
    assert [group["visibility"] for group in groups] == ["all", "all", "selected"]
    assert 'rel="prev"' in second.headers["link"]


async def test_a_group_lists_its_selected_repositories(client: Client) -> None:
    groups = "/orgs/acme/actions/runner-groups"
    chosen = await client.ask("GET", f"{groups}/3/repositories")
    assert [one["full_name"] for one in chosen.json["repositories"]] == ["acme/anvil"]
    assert (await client.ask("GET", f"{groups}/99/repositories")).status == 404


@pytest.mark.case(
    "a runner has exactly the labels of its registration request",
    topic="GitHub's events",
    source="GAR#3491",
)
async def test_a_registered_runner_is_offline_and_has_the_requested_labels(
    client: Client,
) -> None:
    answer = await client.register("fleet-1", ("Linux", "my.gpu"), group=2)
    assert answer.status == 201
    runner = answer.json["runner"]
    assert (runner["name"], runner["status"], runner["busy"]) == ("fleet-1", "offline", False)
    assert runner["runner_group_id"] == 2
    assert [(label["name"], label["type"]) for label in runner["labels"]] == [
        ("Linux", "read-only"),
        ("my.gpu", "custom"),
    ]
    one = await client.ask("GET", f"{RUNNERS}/{runner['id']}")
    assert one.json == runner


async def test_a_connected_runner_is_online(client: Client) -> None:
    runner = await client.runner("a")
    shown = await client.ask("GET", f"{RUNNERS}/{runner.id}")
    assert (shown.json["status"], shown.json["os"]) == ("online", "linux")
    assert runner.config["server"] == client.lab.api_url
    assert runner.config["scale"] == 1.0
    assert runner.config["name"] == "a"


@pytest.mark.case(
    "409: the name is registered already",
    topic="GitHub's REST API",
    source="ubicloud#692",
)
async def test_an_existing_name_is_refused_with_409(client: Client) -> None:
    first = await client.register("one")
    again = await client.register("ONE")
    assert again.status == 409
    assert again.json["message"] == "Already exists - A runner with the name ONE already exists."
    assert (await client.register("one", at="/repos/acme/rocket")).status == 201
    deleted = await client.ask("DELETE", f"{RUNNERS}/{first.json['runner']['id']}")
    assert deleted.status == 204
    assert (await client.register("one")).status == 201


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("{", 400),
        (b"\xff\xfe", 400),
        ("[" * 100_000, 400),
        ([], 422),
        ({}, 422),
        ({"name": "", "runner_group_id": 1, "labels": ["x"]}, 422),
        ({"name": "n" * 65, "runner_group_id": 1, "labels": ["x"]}, 422),
        ({"name": "n", "runner_group_id": "1", "labels": ["x"]}, 422),
        ({"name": "n", "runner_group_id": True, "labels": ["x"]}, 422),
        ({"name": "n", "runner_group_id": 1, "labels": []}, 422),
        ({"name": "n", "runner_group_id": 1, "labels": ["x"] * 101}, 422),
        ({"name": "n", "runner_group_id": 1, "labels": [1]}, 422),
        ({"name": "n", "runner_group_id": 9, "labels": ["x"]}, 404),
    ],
)
async def test_bad_bodies_are_refused(client: Client, body: Any, status: int) -> None:
    answer = await client.ask("POST", f"{RUNNERS}/generate-jitconfig", body)
    assert answer.status == status
    assert client.lab.registered_ever == 0


async def test_unknown_scopes_are_404(client: Client) -> None:
    assert (await client.register("a", at="/repos/acme/nothing")).status == 404
    assert (await client.register("a", at="/orgs/umbrella")).status == 404
    assert (await client.register("a", group=2, at="/repos/acme/rocket")).status == 404
    assert (await client.ask("GET", f"{RUNNERS}/77")).status == 404
    assert (await client.ask("GET", f"{RUNNERS}/abc")).status == 404
    assert (await client.ask("DELETE", f"{RUNNERS}/77")).status == 404


@pytest.mark.case(
    "lists of runners have 100 entries a page, and can be filtered by name",
    topic="GitHub's REST API",
    source="GitHub: REST, self-hosted runners",
)
async def test_runners_are_paged_and_found_by_name(client: Client) -> None:
    for number in range(5):
        await client.register(f"r{number}")
    names: list[str] = []
    url: str | None = f"{RUNNERS}?per_page=2"
    pages = 0
    while url is not None:
        page = await client.ask("GET", url)
        assert page.json["total_count"] == 5
        names += [runner["name"] for runner in page.json["runners"]]
        url = page.next_url
        pages += 1
    assert (names, pages) == ([f"r{number}" for number in range(5)], 3)
    named = await client.ask("GET", f"{RUNNERS}?name=r3")
    assert [runner["name"] for runner in named.json["runners"]] == ["r3"]
    assert (await client.ask("GET", f"{RUNNERS}?name=r")).json == {"total_count": 0, "runners": []}
    clipped = await client.ask("GET", f"{RUNNERS}?per_page=1000&page=x")
    assert len(clipped.json["runners"]) == 5


async def test_a_repository_lists_its_own_runners_only(client: Client) -> None:
    await client.register("of-org")
    await client.register("of-repo", at="/repos/acme/rocket")
    listed = await client.ask("GET", "/repos/acme/rocket/actions/runners")
    assert [runner["name"] for runner in listed.json["runners"]] == ["of-repo"]
    number = listed.json["runners"][0]["id"]
    assert (await client.ask("DELETE", f"{RUNNERS}/{number}")).status == 404
    path = f"/repos/acme/rocket/actions/runners/{number}"
    assert (await client.ask("DELETE", path)).status == 204


@pytest.mark.case(
    "the deletion of a busy runner gets 422",
    topic="GitHub's REST API",
    source="ARC runner_graceful_stop.go",
)
async def test_a_busy_runner_cannot_be_deleted_and_disappears_after_its_job(client: Client) -> None:
    (queued,) = client.lab.push([job()])
    runner = await client.runner("a")
    assert await runner.take() == queued.id
    assert await runner.send("started", job=queued.id) == 204
    refused = await client.ask("DELETE", f"{RUNNERS}/{runner.id}")
    assert refused.status == 422
    assert "is still running a job" in refused.json["message"]
    assert (await client.ask("GET", f"{RUNNERS}/{runner.id}")).json["busy"] is True
    assert await runner.send("completed", job=queued.id, conclusion="success") == 204
    assert (await client.ask("GET", f"{RUNNERS}/{runner.id}")).status == 404
    assert await runner.send("connect") == 404


async def test_a_runner_is_busy_as_soon_as_it_is_assigned_a_job(client: Client) -> None:
    (queued,) = client.lab.push([job()])
    runner = await client.runner("a")
    assert await runner.take() == queued.id
    assert (await client.ask("DELETE", f"{RUNNERS}/{runner.id}")).status == 422


async def test_secrets_are_in_no_repr(client: Client) -> None:
    runner = await client.runner("a")
    (view,) = client.lab.runners
    assert view.online
    assert runner.config["token"] not in repr(client.lab._actions.runners.by_id)
    assert "a webhook secret" not in repr(vars(client.lab))
