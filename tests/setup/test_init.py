"""`autoscaler init` against the lab's GitHub, with a browser that follows its forms."""

import json
import stat
from urllib.parse import parse_qs, urlsplit

import pytest

from autoscaler.app.preflight import load_for_service
from autoscaler.controller.ports.github import GitHubError
from autoscaler.github.app_setup import AppNotCreatedError
from autoscaler.setup.asking import Asking, choose
from autoscaler.setup.github_app import NotFinishedError
from autoscaler.setup.private_files import NotWrittenError
from autoscaler.setup.remaining import remaining_steps
from autoscaler.setup.run import OwnApp, app_plan
from tests.setup.conftest import NAME, Owner

WRITTEN = {
    "admin-token",
    "ca.key",
    "ca.pem",
    "fleet.schema.json",
    "fleet.yaml",
    "github-app.pem",
    "server.key",
    "server.pem",
}


@pytest.mark.parametrize("base_path", ["", "/api/v3"])
async def test_an_empty_folder_becomes_a_fleet_that_can_be_served(owner: Owner) -> None:
    result = await owner.init(owner.create_and_install)
    assert result.problems == ()
    assert {one.name for one in owner.folder.iterdir()} == WRITTEN
    configuration = load_for_service(owner.folder / "fleet.yaml")
    assert configuration.warnings == ()
    github = configuration.settings.github
    assert (github.webhook, github.webhook_secret_file) == ("none", None)
    assert owner.read("fleet.yaml").startswith(
        "# yaml-language-server: $schema=fleet.schema.json\n"
    )
    assert "skus" in json.loads(owner.read("fleet.schema.json"))["properties"]
    assert owner.github.calls["GET /orgs/{org}/installation", 200]


async def test_secrets_are_for_their_owner_alone_and_are_not_printed(owner: Owner) -> None:
    await owner.init(owner.create_and_install)
    secrets = ("github-app.pem", "admin-token", "server.key", "ca.key", "fleet.yaml")
    for name in secrets:
        assert stat.S_IMODE((owner.folder / name).stat().st_mode) == 0o600, name
    said = "\n".join(owner.said)
    assert "PRIVATE KEY" not in said
    assert owner.read("admin-token").split()[2] not in said


async def test_the_app_gets_the_narrowest_permissions(owner: Owner) -> None:
    await owner.init(owner.create_and_install)
    (app,) = owner.github.registration.apps
    assert app.permissions == {
        "metadata": "read",
        "actions": "read",
        "organization_self_hosted_runners": "write",
    }
    assert (app.name, app.owner, app.events, app.hook_active) == (
        NAME,
        "acme",
        ("workflow_job",),
        False,
    )


async def test_the_runner_group_is_created_for_the_named_repositories(owner: Owner) -> None:
    result = await owner.init(owner.create_and_install, owner.options(repositories=("rocket",)))
    assert result.steps == ()
    assert (
        "created the runner group gpu, without public repositories, for acme/rocket" in owner.said
    )
    assert owner.github.calls["POST /orgs/{org}/actions/runner-groups", 201] == 1
    again = await owner.init(owner.create_and_install)
    assert again.steps == ()
    assert owner.github.calls["POST /orgs/{org}/actions/runner-groups", 201] == 1


async def test_without_named_repositories_the_owner_chooses_them(owner: Owner) -> None:
    result = await owner.init(owner.create_and_install)
    (step,) = result.steps
    assert step.startswith("choose the repositories that may use the runner group gpu: http")


async def test_a_repository_of_a_user_needs_the_permission_administration(owner: Owner) -> None:
    options = owner.options(org=None, repo="ann/toy", personal=True)
    result = await owner.init(owner.create_and_install, options)
    assert (result.problems, result.steps) == ((), ())
    (app,) = owner.github.registration.apps
    assert (app.owner, app.permissions["administration"]) == ("ann", "write")
    assert "/settings/apps/new" in owner.browser.visited[1]
    assert "organizations" not in owner.browser.visited[1]


async def test_the_second_run_writes_nothing(owner: Owner) -> None:
    await owner.init(owner.create_and_install, owner.options(repositories=("rocket",)))
    before = {one.name: one.read_bytes() for one in owner.folder.iterdir()}
    owner.said.clear()
    await owner.init(owner.create_and_install)
    assert {one.name: one.read_bytes() for one in owner.folder.iterdir()} == before
    assert owner.said == []


@pytest.mark.case(
    "a link of another site brings a code to the page of `autoscaler init`",
    topic="Hostile input",
    source="GitHub: registering an App from a manifest",
)
async def test_a_wrong_state_is_refused_and_the_right_one_still_works(owner: Owner) -> None:
    async def visit(address: str) -> None:
        page = await owner.browser.open(f"{address}?code=abc&state=wrong")
        assert page.status == 403
        assert "its state is another one" in page.text
        assert not (owner.folder / "github-app.pem").exists()
        await owner.create_and_install(address)

    assert (await owner.init(visit)).problems == ()


@pytest.mark.case(
    "the code of a new App is used twice",
    topic="GitHub's REST API",
    source="GitHub: registering an App from a manifest",
)
async def test_a_second_use_of_the_code_creates_nothing(owner: Owner) -> None:
    seen: list[str] = []

    async def visit(address: str) -> None:
        page = await owner.browser.send(await owner.browser.open(address))
        await owner.browser.send(page)
        seen.extend(url for url in owner.browser.visited if "code=" in url)

    with pytest.raises(NotFinishedError, match="is not installed on acme yet"):
        await owner.init(visit, wait_for_installation=0.0)
    code = parse_qs(urlsplit(seen[0]).query)["code"][0]

    async def again(address: str) -> None:
        form = await owner.browser.open(address)
        state = parse_qs(urlsplit(form.action).query)["state"][0]
        page = await owner.browser.open(f"{address}?code={code}&state={state}")
        assert page.status == 502
        assert "it was used before" in page.text

    for name in ("fleet.yaml", "github-app.pem"):
        (owner.folder / name).unlink()
    with pytest.raises(AppNotCreatedError, match="used before, or an hour has passed"):
        await owner.init(again)
    assert not (owner.folder / "github-app.pem").exists()


@pytest.mark.case(
    "the code of a new App is older than an hour",
    topic="GitHub's REST API",
    source="GitHub: registering an App from a manifest",
)
async def test_a_code_is_valid_for_an_hour(owner: Owner) -> None:
    async def visit(address: str) -> None:
        page = await owner.browser.send(await owner.browser.open(address))
        owner.ahead[0] = 3601.0
        assert "an hour has passed" in (await owner.browser.send(page)).text

    with pytest.raises(AppNotCreatedError, match="an hour has passed"):
        await owner.init(visit)
    assert not (owner.folder / "fleet.yaml").exists()


@pytest.mark.case(
    "the name of a new App is taken",
    topic="GitHub's REST API",
    source="GitHub: registering an App",
)
async def test_a_name_that_is_taken_is_changed_on_githubs_page(owner: Owner) -> None:
    owner.github.registration.by_hand(
        app_plan(choose(owner.options(), Asking(accept=True)), NAME).by_hand
    )

    async def visit(address: str) -> None:
        page = await owner.browser.send(await owner.browser.open(address))
        assert "has already been taken" in (await owner.browser.send(page)).text
        await owner.browser.send(await owner.browser.send(page, name="another"))

    assert (await owner.init(visit)).problems == ()
    assert [app.name for app in owner.github.registration.apps] == [NAME, "another"]


async def test_an_app_created_by_hand_is_used(owner: Owner) -> None:
    plan = app_plan(choose(owner.options(), Asking(accept=True)), NAME)
    number, key = owner.github.registration.by_hand(plan.by_hand)
    owner.github.administration.install(number, "acme")

    async def visit(address: str) -> None:
        raise AssertionError(address)

    result = await owner.init(visit, own=OwnApp(number, key))
    assert result.problems == ()
    assert f"id: {number}, private_key_file: github-app.pem" in owner.read("fleet.yaml")
    (app,) = owner.github.registration.apps
    assert app.permissions == {"metadata": "read", **plan.permissions}


async def test_a_key_of_another_app_is_reported(owner: Owner) -> None:
    plan = app_plan(choose(owner.options(), Asking(accept=True)), NAME)
    number, key = owner.github.registration.by_hand(plan.by_hand)

    async def visit(address: str) -> None:
        raise AssertionError(address)

    with pytest.raises(GitHubError, match="401"):
        await owner.init(visit, own=OwnApp(number + 1, key))


async def test_a_permission_that_the_owner_took_away_is_a_step(owner: Owner) -> None:
    await owner.init(owner.create_and_install, owner.options(repositories=("rocket",)))
    (app,) = owner.github.registration.apps
    app.permissions = {"metadata": "read", "actions": "read"}
    result = await owner.init(owner.create_and_install)
    assert "organization_self_hosted_runners: write" in result.steps[0]


async def test_the_installation_can_come_at_the_next_run(owner: Owner) -> None:
    async def visit(address: str) -> None:
        await owner.create(address)

    with pytest.raises(NotFinishedError, match="with the folder and no other option"):
        await owner.init(visit, wait_for_installation=0.0)
    key = owner.read("github-app.pem")
    (app,) = owner.github.registration.apps
    owner.github.administration.install(app.id, "acme")
    assert (await owner.init(visit)).problems == ()
    assert owner.read("github-app.pem") == key


async def test_an_owner_who_does_not_come_is_waited_for_a_limited_time(owner: Owner) -> None:
    async def visit(address: str) -> None:
        """Stay away."""

    with pytest.raises(NotFinishedError, match="--app-by-hand"):
        await owner.init(visit, wait=0.0)


async def test_a_key_in_the_folder_is_not_overwritten(owner: Owner) -> None:
    (owner.folder / "github-app.pem").write_text("mine")

    async def visit(address: str) -> None:
        page = await owner.create(address)
        assert page.status == 502

    with pytest.raises(NotWrittenError, match="delete the App at http"):
        await owner.init(visit)
    assert owner.read("github-app.pem") == "mine"


async def test_a_first_fleet_can_have_a_webhook(owner: Owner) -> None:
    url = "https://hooks.example.com/webhook"
    result = await owner.init(owner.create_and_install, owner.options(webhook=url), webhook=url)
    assert result.problems == ()
    (app,) = owner.github.registration.apps
    assert (app.hook_url, app.hook_active) == (url, True)
    settings = load_for_service(owner.folder / "fleet.yaml").settings
    assert (settings.github.webhook, str(settings.server.webhook_listen)) == (
        None,
        "127.0.0.1:8080",
    )
    step = "put a proxy with a public certificate in front of 127.0.0.1:8080: docs/deploy.md, "
    assert any(one.startswith(step) for one in remaining_steps(owner.folder, ()))


async def test_a_webhook_is_added_later(owner: Owner) -> None:
    url = "https://hooks.example.com/webhook"
    await owner.init(owner.create_and_install, owner.options(repositories=("rocket",)))
    (step,) = (await owner.init(owner.create_and_install, webhook=url)).steps
    assert f"tick Active under Webhook, write the URL {url}" in step
    assert "  webhook: none\n" in owner.read("fleet.yaml")
    (app,) = owner.github.registration.apps
    app.hook_active = True
    result = await owner.init(owner.create_and_install, webhook=url)
    assert (result.problems, result.steps) == ((), ())
    assert app.hook_url == url
    settings = load_for_service(owner.folder / "fleet.yaml").settings
    assert (settings.github.webhook, settings.github.webhook_secret_file) == (
        None,
        "webhook-secret",
    )
    assert str(settings.server.webhook_listen) == "127.0.0.1:8080"
    assert stat.S_IMODE((owner.folder / "webhook-secret").stat().st_mode) == 0o600


async def test_an_empty_secret_of_the_webhook_is_named(owner: Owner) -> None:
    url = "https://hooks.example.com/webhook"
    await owner.init(owner.create_and_install, owner.options(repositories=("rocket",)))
    (owner.folder / "webhook-secret").touch(0o600)
    with pytest.raises(NotWrittenError, match="webhook-secret is empty: remove it"):
        await owner.init(owner.create_and_install, webhook=url)
