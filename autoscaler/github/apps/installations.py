"""Authenticates to GitHub as an App, and as its installation on the account of each scope.

Renews tokens before they expire. Keeps secrets in memory only, and shows none in a repr or a message. Leaves
out Apps without an installation, and looks for them again every five minutes. An error of one App does not
affect the others.

Lifetimes: docs.github.com "Generating a JSON Web Token (JWT) for a GitHub App" (10 minutes at
most, `iat` 60 s back against clock drift) and "installation access token" (1 hour).
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Annotated

import jwt
import structlog
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from pydantic import Field

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import GitHubError, OperatorError
from autoscaler.github.apps.targets import Target
from autoscaler.github.requests.api import Api, read_as
from autoscaler.github.requests.exchange import Importance, Request
from autoscaler.github.requests.outcomes import NotAllowedError, error_of_all
from autoscaler.github.requests.received import Received, instant_of
from autoscaler.github.requests.single_flight import SingleFlight
from autoscaler.github.settings import AppKey
from autoscaler.model.identifiers import Instant, Seconds

_DRIFT: Seconds = 60.0
_JWT_LIFETIME: Seconds = 480.0
_JWT_MARGIN: Seconds = 120.0
_TOKEN_LIFETIME: Seconds = 3600.0
_TOKEN_MARGIN: Seconds = 300.0


class _TokenAnswer(Received):
    # Visible ASCII only, because it is sent in a header. GitHub's tokens have about 520 characters since
    # 2026, and their length varies (github.com/mongodb/kingfisher/issues/359).
    token: Annotated[str, Field(pattern=r"^[!-~]{1,8192}$", repr=False)]
    expires_at: str | None = None


class App:
    """One GitHub App. Loads its key once (28 ms) and reuses each JWT for six minutes.

    `wall` is the clock that GitHub compares with its own (Unix seconds); it may be set back.

    Raises ValueError if the key is not an unencrypted RSA private key in PEM format.
    """

    def __init__(self, key: AppKey, wall: Callable[[], Instant]) -> None:
        self.app_id = key.id
        self.account = ""
        self._key = _load(key)
        self._wall = wall
        self._token = ""
        self._signed_at: Instant = 0.0
        self._renew_at: Instant = 0.0

    @property
    def name(self) -> str:
        """The name in logs, such as `app 1234`."""
        return f"app {self.app_id}"

    async def token(self) -> str:
        """Return a JWT that is valid for two more minutes or longer."""
        now = self._wall()
        if not self._signed_at <= now < self._renew_at:
            claims = {
                "iat": int(now - _DRIFT),
                "exp": int(now + _JWT_LIFETIME),
                "iss": str(self.app_id),
            }
            self._token = jwt.encode(claims, self._key, algorithm="RS256")
            self._signed_at = now
            self._renew_at = now + _JWT_LIFETIME - _JWT_MARGIN
        return self._token

    def reject_token(self, token: str) -> None:
        """Create a new JWT for the next request."""
        if token == self._token:
            self._renew_at = 0.0


class Installation:
    """One App on one account, with its access token."""

    def __init__(
        self, app: App, account: str, installation_id: int, api: Api, clock: Clock
    ) -> None:
        self.app = app
        self.app_id = app.app_id
        self.account = account
        self.id = installation_id
        self.uninstalled = False
        self._api = api
        self._clock = clock
        self._token = ""
        self._renew_at: Instant = 0.0
        self._flights: SingleFlight[str] = SingleFlight()

    @property
    def name(self) -> str:
        """The name in logs, such as `app 1234 on acme`."""
        return f"{self.app.name} on {self.account}"

    async def token(self) -> str:
        """Return an access token that is valid for five more minutes or longer.

        Concurrent callers share one request for a new token.
        """
        if self._clock.now() >= self._renew_at:
            return await self._flights.run("token", self._renew)
        return self._token

    def reject_token(self, token: str) -> None:
        """Request a new access token for the next request."""
        if token == self._token:
            self._renew_at = 0.0

    async def close(self) -> None:
        """Cancel requests for tokens. Idempotent."""
        await self._flights.close()

    async def _renew(self) -> str:
        request = Request(
            # This POST may be repeated: a token that was created and not received does no harm.
            "POST",
            "/app/installations/{installation_id}/access_tokens",
            {"installation_id": self.id},
            body={},
            importance=Importance.REGISTER,
            expected=frozenset({404}),
        )
        asked_at = self._clock.now()
        answer = await self._api.ask(request, self.app)
        if not answer.ok:
            self.uninstalled = True
            raise NotAllowedError(
                f"{self.name}: the installation does not exist any more; install the App again"
            )
        created = read_as(_TokenAnswer, request, answer)
        self._token = created.token
        self._renew_at = _expiry(created, asked_at) - _TOKEN_MARGIN
        return self._token


# OpenSSL tests the primes of a key each time: 60 ms of CPU.
@lru_cache(maxsize=16)
def _load(key: AppKey) -> RSAPrivateKey:
    invalid = ValueError(
        f"App {key.id}: the key is not an unencrypted RSA private key in PEM format"
    )
    try:
        loaded = load_pem_private_key(key.private_key_pem.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise invalid from None
    if not isinstance(loaded, RSAPrivateKey):
        raise invalid
    return loaded


def _expiry(created: _TokenAnswer, asked_at: Instant) -> Instant:
    # The earlier of the two times: the local clock may be behind GitHub's.
    latest = asked_at + _TOKEN_LIFETIME
    try:
        return min(instant_of(created.expires_at) or latest, latest)
    except (ValueError, OverflowError):
        return latest


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
