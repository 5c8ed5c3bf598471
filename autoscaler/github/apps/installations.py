"""Finds each App's installation on the account of each scope.

Leaves out Apps without an installation, and looks for them again every five minutes. An error of one
App does not affect the others.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated

import structlog
from pydantic import Field

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import GitHubError, OperatorError
from autoscaler.github.apps.authentication import App, Installation
from autoscaler.github.apps.targets import Target
from autoscaler.github.requests.api import Api, read_as
from autoscaler.github.requests.exchange import Importance, Request
from autoscaler.github.requests.received import Received
from autoscaler.github.requests.refusals import error_of_all
from autoscaler.github.requests.single_flight import SingleFlight
from autoscaler.model.identifiers import Instant, Seconds

_LOOK_AGAIN: Seconds = 300.0
"""Seconds until the controller looks again for an installation that it did not find."""

_log = structlog.get_logger(__name__)


class _InstallationAnswer(Received):
    id: Annotated[int, Field(gt=0)]


class Installations:
    """The known installations; finds each when it is first needed."""

    def __init__(self, apps: Sequence[App], api: Api, clock: Clock) -> None:
        self._apps = apps
        self._api = api
        self._clock = clock
        self._known: dict[tuple[int, str], Installation] = {}
        self._looked_at: dict[tuple[int, str], Instant] = {}
        self._flights: SingleFlight[bool] = SingleFlight()

    async def of_scope(self, target: Target) -> tuple[Installation, ...]:
        """Return the installations on a configured scope, at least one, after looking for every App.

        Raises OperatorError if no App is installed, and as `Api.ask` if every request fails.
        """
        place = str(target).lower()
        missing = [app for app in self._apps if self._live(app, target) is None]
        never = [app for app in missing if (app.app_id, place) not in self._looked_at]
        if never or len(missing) == len(self._apps):
            return await self._find(target, missing)
        for app in missing:
            if self._clock.now() >= self._looked_at[app.app_id, place] + _LOOK_AGAIN:
                # In the background, because other installations can be used meanwhile.
                self._start(app, target)
        return self.known(target)

    async def of_repository(self, target: Target) -> tuple[Installation, ...]:
        """Return the installations on the account of a repository. Raises as `of_scope`.

        Sends no request if one is known, because an installation usually covers the whole account.
        """
        return self.known(target) or await self._find(target, self._apps)

    def known(self, target: Target) -> tuple[Installation, ...]:
        """Return the installations on the account of a target that were found so far."""
        found = (self._live(app, target) for app in self._apps)
        return tuple(installation for installation in found if installation is not None)

    async def close(self) -> None:
        """Cancel requests. Idempotent."""
        await self._flights.close()
        for installation in self._known.values():
            await installation.close()

    def _live(self, app: App, target: Target) -> Installation | None:
        known = self._known.get((app.app_id, target.account))
        return known if known is not None and not known.uninstalled else None

    async def _find(self, target: Target, apps: Sequence[App]) -> tuple[Installation, ...]:
        flights = [asyncio.shield(self._start(app, target)) for app in apps]
        outcomes = await asyncio.gather(*flights, return_exceptions=True)
        if found := self.known(target):
            return found
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if unlisted := [error for error in errors if not isinstance(error, GitHubError)]:
            raise unlisted[0]
        if errors:
            raise error_of_all([error for error in errors if isinstance(error, GitHubError)])
        text = f"no configured App is installed on {target}; install one there"
        if target.repository is not None:
            text += ", unless the repository was deleted or renamed: GitHub answers 404 for both"
        raise OperatorError(text)

    def _start(self, app: App, target: Target) -> "asyncio.Task[bool]":
        place = str(target).lower()
        return self._flights.start(f"{app.app_id} {place}", lambda: self._look(app, target, place))

    async def _look(self, app: App, target: Target, place: str) -> bool:
        request = Request(
            "GET",
            f"{target.route}/installation",
            target.variables,
            importance=Importance.REGISTER,
            expected=frozenset({404}),
        )
        try:
            answer = await self._api.ask(request, app)
            found = read_as(_InstallationAnswer, request, answer) if answer.ok else None
        except GitHubError as error:
            _log.warning(
                "installation_lookup_failed", app=app.app_id, scope=place, error=str(error)
            )
            raise
        finally:
            self._looked_at[app.app_id, place] = self._clock.now()
        if found is not None:
            installation = Installation(app, target.account, found.id, self._api, self._clock)
            self._known[app.app_id, target.account] = installation
        return found is not None
