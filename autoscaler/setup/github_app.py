"""Creates the fleet's GitHub App, waits for its installation, and prepares the organization."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from autoscaler.controller.ports.github import GitHubError
from autoscaler.github.app_setup import AppNotCreatedError, AppSetup, AppView, NewApp, convert
from autoscaler.github.apps.authentication import Installation
from autoscaler.github.apps.permissions import EVENT, missing_permissions
from autoscaler.github.apps.targets import Target
from autoscaler.model.identifiers import Seconds
from autoscaler.setup import choices
from autoscaler.setup.app_page import AppPage
from autoscaler.setup.local_files import new_secret
from autoscaler.setup.manifest import AppPlan
from autoscaler.setup.private_files import NotWrittenError, write_new

ASKED_EVERY: Seconds = 3.0
"""How often GitHub is asked whether the App is installed."""

Say = Callable[[str], None]


class NotFinishedError(Exception):
    """GitHub or the owner did not do a step; the text says which, and what to do."""


@dataclass(frozen=True, slots=True)
class Browser:
    """How the owner gets to the page: the port to listen on (0: any), and what opens an address."""

    port: int
    open: Callable[[str], None]
    wait: Seconds
    asked_every: Seconds = ASKED_EVERY


async def create_app(
    chosen: choices.Choices,
    plan: AppPlan,
    browser: Browser,
    keep: Callable[[NewApp], None],
    say: Say,
) -> None:
    """Create the App in the owner's browser. `keep` stores it, before anything else can fail.

    Raises NotFinishedError, AppNotCreatedError, NotWrittenError and PageError.
    """

    async def exchange(code: str) -> str:
        made = await convert(chosen.api_url, code)
        try:
            keep(made)
        except NotWrittenError as error:
            text = f"{error}. GitHub shows the key only once: delete the App at {made.page}, and begin again"
            raise NotWrittenError(text) from None
        return f"{made.page}/installations/new"

    async with AsyncExitStack() as stack:
        page = AppPage(plan, exchange, (AppNotCreatedError, NotWrittenError))
        stack.push_async_callback(page.close)
        await page.start(browser.port)
        say(f"Open {page.url} in a browser, and create the GitHub App there.")
        say(f"Over SSH, forward the port first: ssh -L {page.port}:127.0.0.1:{page.port} THIS-HOST")
        browser.open(page.url)
        try:
            async with asyncio.timeout(browser.wait):
                await page.created()
        except TimeoutError:
            raise NotFinishedError(
                "the App was not created in time; run the same command again, or with --app-by-hand"
            ) from None


def store_app(folder: Path, chosen: choices.Choices, made: NewApp) -> None:
    """Write the key, the webhook's secret if there is a webhook, and fleet.yaml. Raises NotWrittenError."""
    write_new(folder / choices.KEY, made.private_key.encode())
    if chosen.webhook is not None:
        secret = made.webhook_secret or new_secret()
        write_new(folder / choices.SECRET, f"{secret}\n".encode())
    write_new(folder / "fleet.yaml", chosen.text(made.id).encode())


async def wait_for_installation(
    setup: AppSetup, target: Target, page: str, browser: Browser, say: Say
) -> Installation:
    """Return the installation once the owner has made it. Raises NotFinishedError and GitHubError."""
    found = await setup.installation(target)
    if found is not None:
        return found
    say(f"Install the App on {target}: {page}/installations/new")
    try:
        async with asyncio.timeout(browser.wait):
            while found is None:
                await asyncio.sleep(browser.asked_every)
                found = await setup.installation(target)
    except TimeoutError:
        raise NotFinishedError(
            f"the App is not installed on {target} yet: install it at {page}/installations/new, and run "
            "`autoscaler init` again, with the folder and no other option"
        ) from None
    return found


async def prepare_group(
    setup: AppSetup,
    caller: Installation,
    target: Target,
    group: str,
    repositories: Sequence[str],
    pages: str,
) -> tuple[str, str | None]:
    """Create the organization's runner group if it is missing. Return what was done, and what is left."""
    if target.repository is not None:
        return "", None
    try:
        if await setup.has_group(caller, target.owner, group):
            return "", None
        await setup.create_group(caller, target.owner, group, repositories)
    except GitHubError as error:
        address = f"{pages}/organizations/{target.owner}/settings/actions/runner-groups"
        return "", f"create the runner group {group} at {address}: GitHub refused ({error})"
    done = f"created the runner group {group}, without public repositories"
    if repositories:
        return f"{done}, for {', '.join(repositories)}", None
    address = f"{pages}/organizations/{target.owner}/settings/actions/runner-groups"
    return done, f"choose the repositories that may use the runner group {group}: {address}"


def permission_step(needed: Mapping[str, str], app: AppView, *, wants_event: bool) -> str | None:
    """Return what the App lacks and where the owner adds it, or None."""
    lacks = missing_permissions(needed, app.permissions)
    if wants_event and EVENT not in app.events:
        lacks.append("the event Workflow job")
    if not lacks:
        return None
    return f"open the App's settings from {app.page}, and give it what it lacks: {', '.join(lacks)}"
