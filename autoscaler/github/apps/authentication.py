"""Authenticates to GitHub as an App, and as its installation on an organization or a user.

Renews tokens before they expire. Keeps secrets in memory only, and shows none in a repr or a message.

Lifetimes: docs.github.com "Generating a JSON Web Token (JWT) for a GitHub App" (10 minutes at
most, `iat` 60 s back against clock drift) and "installation access token" (1 hour).
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from pydantic import Field

from autoscaler.controller.ports.clock import Clock
from autoscaler.github.requests.api import Api, read_as
from autoscaler.github.requests.exchange import Importance, Request
from autoscaler.github.requests.outcomes import NotAllowedError
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
