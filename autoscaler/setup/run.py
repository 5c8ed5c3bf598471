"""Carries out `autoscaler init`, in an order in which an interruption loses nothing that was made."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from autoscaler.app.preflight import load_for_service
from autoscaler.config import Configuration, ConfigurationError, Problem, load
from autoscaler.config.credentials import read_private_keys
from autoscaler.console.links import GitHubPages
from autoscaler.controller.system import SystemClock
from autoscaler.github.app_setup import AppSetup, NewApp
from autoscaler.github.apps.permissions import permissions_for
from autoscaler.github.apps.targets import target_of_scope
from autoscaler.github.settings import AppKey, GitHubSettings
from autoscaler.observability.metrics import PrometheusTelemetry
from autoscaler.providers.registry import provider_kinds
from autoscaler.setup import choices
from autoscaler.setup.github_app import (
    Browser,
    Say,
    create_app,
    permission_step,
    prepare_group,
    store_app,
    wait_for_installation,
)
from autoscaler.setup.local_files import new_secret, write_missing
from autoscaler.setup.manifest import AppPlan
from autoscaler.setup.private_files import NotWrittenError, write_new
from autoscaler.setup.private_files import replace as replace_file

FLEET = "fleet.yaml"
_SERVER = "\nserver:\n"


@dataclass(frozen=True, slots=True)
class OwnApp:
    """An App that the owner has created by hand: its ID, and the key's PEM."""

    id: int
    private_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Result:
    """What `init` leaves: problems of fleet.yaml, and steps for the owner, in order."""

    problems: tuple[Problem, ...]
    steps: tuple[str, ...]


def make_folder(folder: Path) -> None:
    """Create the folder, for its owner alone, if it does not exist. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def app_plan(chosen: choices.Choices, name: str) -> AppPlan:
    """Return the App that a fleet needs."""
    return AppPlan(
        name,
        GitHubPages.of_api(chosen.api_url).base,
        chosen.owner,
        chosen.personal,
        permissions_for(repository=chosen.repository is not None),
        chosen.webhook,
    )


async def begin(
    folder: Path,
    chosen: choices.Choices,
    name: str,
    own: OwnApp | None,
    browser: Browser,
    say: Say,
) -> None:
    """Write the files of a new fleet, and create its App. Afterwards fleet.yaml exists.

    Raises NotFinishedError, AppNotCreatedError, NotWrittenError and PageError.
    """
    for line in write_missing(folder, chosen.fleet, chosen.host, datetime.now(UTC)):
        say(line)

    def keep(made: NewApp) -> None:
        store_app(folder, chosen, made)
        say(f"wrote {folder / choices.KEY} and {folder / FLEET}: the App {made.id}, {made.page}")

    if own is not None:
        key = folder / choices.KEY
        if key.exists():
            write_new(folder / FLEET, chosen.text(own.id).encode())
            return
        keep(NewApp(own.id, "whose key you gave", own.private_key, None))
        return
    await create_app(chosen, app_plan(chosen, name), browser, keep, say)


async def go_on(folder: Path, webhook: str | None, browser: Browser, say: Say) -> Result:
    """Do what is missing for a folder that has a fleet.yaml.

    Raises ConfigurationError, NotFinishedError, NotWrittenError and GitHubError.
    """
    configuration = load(folder / FLEET, provider_kinds(), files=False)
    github = configuration.settings.github
    host = choices.host_of(configuration.settings.server.public_url)
    for line in write_missing(folder, configuration.settings.fleet, host, datetime.now(UTC)):
        say(line)
    key = read_private_keys(configuration)[0]
    settings = GitHubSettings(
        github.api_url, (AppKey(key.id, key.private_key.get_secret_value().decode()),)
    )
    telemetry = PrometheusTelemetry([], [], version("gpu-runner-autoscaler"))
    setup = AppSetup(settings, SystemClock(), telemetry)
    try:
        steps = await _at_github(setup, configuration, webhook, browser, say)
    finally:
        await setup.close()
    return Result(_problems(folder), tuple(steps))


async def _at_github(
    setup: AppSetup,
    configuration: Configuration,
    webhook: str | None,
    browser: Browser,
    say: Say,
) -> list[str]:
    scope = configuration.settings.github.scopes[0]
    view = await setup.app()
    target = target_of_scope(f"org:{scope.org}" if scope.org else f"repo:{scope.repo}")
    pages = GitHubPages.of_api(configuration.settings.github.api_url).base
    has_webhook = webhook is not None or configuration.settings.github.webhook is None
    reruns = any(sku.rerun_interrupted for _, sku in configuration.skus())
    needed = permissions_for(repository=scope.org is None, reruns=reruns)
    steps = [permission_step(needed, view, wants_event=has_webhook)]
    caller = await wait_for_installation(setup, target, view.page, browser, say)
    done, left = await prepare_group(
        setup, caller, target, scope.runner_group, _named(scope.repositories), pages
    )
    if done:
        say(done)
    steps.append(left)
    if webhook is not None:
        steps.append(await _point_webhook(setup, configuration, webhook, view.page, say))
    return [step for step in steps if step is not None]


async def _point_webhook(
    setup: AppSetup, configuration: Configuration, url: str, page: str, say: Say
) -> str | None:
    """Set the App's webhook, and name its secret in fleet.yaml. Return what is left for the owner."""
    folder, file = configuration.path.parent, configuration.path
    secret = folder / choices.SECRET
    if not secret.exists():
        write_new(secret, f"{new_secret()}\n".encode())
        say(f"wrote {secret}: the webhook's secret")
    known = secret.read_text().split()
    if not known:
        raise NotWrittenError(f"{secret} is empty: remove it, and run the same command again")
    if not await setup.point_webhook(url, known[-1]):
        return (
            f"open the App's settings from {page}, tick Active under Webhook, write the URL {url}, save, and "
            f"run: autoscaler init {shlex.quote(str(folder))} --webhook {url}"
        )
    say(f"the App's webhook leads to {url}")
    server = configuration.settings.server
    text = file.read_text()
    if choices.NO_WEBHOOK in text:
        text = text.replace(choices.NO_WEBHOOK, choices.WEBHOOK, 1)
        say(f"{file}: webhook: none is now webhook_secret_file: {choices.SECRET}")
        if server.webhook_listen is None and _SERVER in text:
            added = choices.webhook_listen(server.public_url)
            text = text.replace(_SERVER, _SERVER + added, 1)
            say(f"{file}: added {added.strip()}")
        replace_file(file, text.encode())
    return None


def _named(globs: Sequence[str]) -> list[str]:
    """Return the repositories that a scope names, without globs, which a runner group cannot have."""
    return [one for one in globs if not set("*?[") & set(one)]


def _problems(folder: Path) -> tuple[Problem, ...]:
    try:
        return load_for_service(folder / FLEET).warnings
    except ConfigurationError as error:
        return (*error.problems, *error.warnings)
