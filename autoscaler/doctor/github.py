"""Examines GitHub for one fleet: its Apps, their installations, runner groups, webhooks and runner versions."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from urllib.parse import urlsplit

from autoscaler.app.translation import catalogue, github_settings
from autoscaler.config import Configuration, ConfigurationError
from autoscaler.config.examinations import Check, Examination, skipped, unknown, wrong
from autoscaler.console.links import GitHubPages
from autoscaler.controller.ports.github import GitHubError
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.controller.system import SystemClock
from autoscaler.doctor.github_judgement import (
    Needed,
    judge_app,
    judge_group,
    judge_installation,
    judge_limits,
    judge_runner,
    judge_server,
    judge_silence,
    unreadable,
)
from autoscaler.doctor.webhook_judgement import OwnWebhook, judge_deliveries, judge_hook
from autoscaler.github.apps.permissions import permissions_for
from autoscaler.github.apps.targets import target_of_scope
from autoscaler.github.client import GitHubClient
from autoscaler.github.inspection import AppFacts, Inspection
from autoscaler.github.requests.outcomes import NotShownError
from autoscaler.images.load import load_versions
from autoscaler.model.catalogue import Catalogue, Scope
from autoscaler.model.identifiers import InstallationId, Installations, Seconds
from autoscaler.model.jobs.runner_group_excess import RunnerGroup
from autoscaler.providers.registry import provider_kinds

GROUP, WEBHOOK, RUNNER = "GitHub", "Webhook", "Runner"


def examinations(configuration: Configuration, within: Seconds) -> Iterator[Examination]:
    """Return the checks of each App: itself, each scope, and its webhook; and those of runner versions."""
    fleet = _Fleet(configuration, within)
    github = configuration.settings.github
    for app in github.apps:
        file = str(app.private_key_file)
        yield fleet.examination(GROUP, f"App {app.id}", partial(fleet.app, app.id, file))
        for scope in fleet.catalogue.scopes:
            name = f"App {app.id} on {scope.key}"
            yield fleet.examination(GROUP, name, partial(fleet.scope, app.id, scope))
        yield fleet.examination(WEBHOOK, f"webhook of App {app.id}", partial(fleet.webhook, app.id))
    yield fleet.examination(RUNNER, "runner versions", fleet.runners)


def catalogue_of(configuration: Configuration) -> Catalogue:
    """Return the SKUs, scopes and limits, without offerings."""
    return catalogue(configuration, Installations(InstallationId("doctor")), (), {})


class _Fleet:
    """The questions of one fleet. Each has its own connection, so that one that hangs holds up no other."""

    def __init__(self, configuration: Configuration, within: Seconds) -> None:
        """A request may take a fifth of `within` seconds: a read is sent up to three times."""
        self._configuration = configuration
        self._within = within
        self.catalogue = catalogue_of(configuration)
        self._pages = GitHubPages.of_api(configuration.settings.github.api_url)

    def examination(
        self, group: str, name: str, run: Callable[[], Awaitable[Sequence[Check]]]
    ) -> Examination:
        """Return an examination whose errors at GitHub name what to do."""

        async def asked() -> Sequence[Check]:
            try:
                return await run()
            except GitHubError as error:
                return [unreadable(name, error)]
            except ConfigurationError as error:
                said = error.problems[0]
                return [wrong(name, said.what, "the controller can ask GitHub nothing", said.fix)]

        return Examination(group, name, asked)

    async def app(self, app_id: int, key_file: str) -> list[Check]:
        """Judge one App: reachable, the clock, its key, and what it asks for."""
        try:
            async with self._inspection() as github:
                found = await github.app(app_id)
                known = await github.server(app_id) if isinstance(found, AppFacts) else None
        except GitHubError as error:
            return [judge_silence(self._configuration.settings.github.api_url, error)]
        checks = judge_app(app_id, key_file, found, self._needed(None))
        return checks if known is None else [*checks, judge_server(known)]

    async def scope(self, app_id: int, scope: Scope) -> list[Check]:
        """Judge one App's installation on a scope, and what it sees there."""
        target = target_of_scope(scope.key)
        async with self._inspection() as github:
            found = await github.installation(app_id, target)
            page = ""
            if found is None and isinstance(app := await github.app(app_id), AppFacts):
                page = app.page
            needed = self._needed(scope)
            checks = judge_installation(scope.key, app_id, page, found, needed)
            if found is None or found.suspended:
                return checks
            for name, run in (
                ("runner group", partial(self._group, github, app_id, found.id, scope)),
                ("rate limit", partial(self._limits, github, app_id, found.id, scope)),
            ):
                try:
                    checks.append(await run())
                except GitHubError as error:
                    checks.append(unreadable(f"{name} of {scope.key}", error))
        return checks

    async def webhook(self, app_id: int) -> list[Check]:
        """Judge one App's webhook by its configuration and its newest deliveries."""
        settings = self._configuration.settings
        if settings.github.webhook is not None:
            return [skipped("webhook", "github.webhook: none: jobs are found in GitHub's lists")]
        host = urlsplit(settings.server.public_url).hostname
        own = OwnWebhook(
            str(settings.github.webhook_secret_file),
            host if settings.server.webhook_listen is None else None,
        )
        async with self._inspection() as github:
            hook = await github.hook(app_id)
            checks = judge_hook(app_id, hook, own)
            if hook is not None and hook.url:
                found = await github.deliveries(app_id)
                checks += judge_deliveries(app_id, found, own, hook.url, time.time())
        return checks

    async def runners(self) -> list[Check]:
        """Judge the versions of actions/runner in the images, and in versions.yaml for stock images."""
        versions = await self._versions()
        if not versions:
            what = "no image says its version; autoscaler machines shows it after the first boot"
            return [unknown("runner versions", what)]
        scope = self.catalogue.scopes[0].key
        client = GitHubClient(
            replace(github_settings(self._configuration), timeout=self._within / 5),
            SystemClock(),
            Telemetry(),
        )
        try:
            return [
                judge_runner(
                    version,
                    source,
                    await client.lists.runner_version_end(scope, version),
                    time.time(),
                )
                for source, version in sorted(versions.items())
            ]
        finally:
            await client.close()

    async def _versions(self) -> dict[str, str]:
        configuration = self._configuration
        found: dict[str, str] = {}
        for kind in provider_kinds():
            found |= await kind.runner_versions(configuration, self._within)
        if any(sku.image is not None and sku.image.stock for _, sku in configuration.skus()):
            named = configuration.settings.versions_file
            file = None if named is None else configuration.file(named)
            read = await asyncio.to_thread(load_versions, file)
            found["stock images"] = read.versions.runner.version
        return found

    async def _group(
        self, github: Inspection, app_id: int, installation: int, scope: Scope
    ) -> Check:
        if scope.repository is not None:
            return skipped(f"runner group of {scope.key}", "a repository has the default one alone")
        found: RunnerGroup | None
        try:
            target = target_of_scope(scope.key)
            found = await github.runner_group(app_id, installation, target, scope.runner_group)
        except NotShownError:
            found = None
        return judge_group(self.catalogue, scope, found, self._pages)

    async def _limits(
        self, github: Inspection, app_id: int, installation: int, scope: Scope
    ) -> Check:
        found = await github.limits(app_id, installation, target_of_scope(scope.key))
        return judge_limits(scope.key, app_id, found)

    def _needed(self, scope: Scope | None) -> Needed:
        """Return what a scope needs of an App, or with None what all scopes do."""
        reruns = any(sku.rerun_interrupted for _, sku in self._configuration.skus())
        permissions: dict[str, str] = {}
        for one in self.catalogue.scopes if scope is None else (scope,):
            permissions |= permissions_for(repository=one.repository is not None, reruns=reruns)
        return Needed(permissions, self._configuration.settings.github.webhook is None)

    @asynccontextmanager
    async def _inspection(self) -> AsyncIterator[Inspection]:
        settings = replace(github_settings(self._configuration), timeout=self._within / 5)
        made = Inspection(settings, SystemClock(), Telemetry())
        try:
            yield made
        finally:
            await made.close()
