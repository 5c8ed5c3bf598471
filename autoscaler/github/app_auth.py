"""Who we are to GitHub: Apps, and their installations on organisations and users.

Decides which App speaks for an account (the first that is installed there) and when tokens are
renewed. Keeps secrets in memory only, out of every repr and message.

Lifetimes: docs.github.com "Generating a JSON Web Token (JWT) for a GitHub App" (10 minutes at
most, `iat` 60 s back against drift) and "installation access token" (1 hour).
"""

from collections.abc import Sequence
from typing import Annotated

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from pydantic import BaseModel, ConfigDict, Field

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import OperatorError
from autoscaler.github.api import Api, read_as
from autoscaler.github.exchange import Request
from autoscaler.github.settings import AppKey
from autoscaler.github.single_flight import SingleFlight
from autoscaler.github.targets import Target
from autoscaler.github.timestamps import instant_of
from autoscaler.model.identifiers import Instant, Seconds

_DRIFT: Seconds = 60.0
_JWT_LIFETIME: Seconds = 480.0
_JWT_MARGIN: Seconds = 120.0
_TOKEN_LIFETIME: Seconds = 3600.0
_TOKEN_MARGIN: Seconds = 300.0


class _InstallationAnswer(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    id: Annotated[int, Field(gt=0)]


class _TokenAnswer(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", hide_input_in_errors=True)
    # Printable ASCII without blanks: it goes into a header.
    token: Annotated[str, Field(pattern=r"^[!-~]{1,1024}$", repr=False)]
    expires_at: str | None = None


class App:
    """One GitHub App. Its key is loaded once (28 ms) and its JWT kept for some minutes.

    Raises ValueError on a key that is no RSA private key in PEM.
    """

    def __init__(self, key: AppKey, clock: Clock) -> None:
        self.id = key.id
        self._key = _load(key)
        self._clock = clock
        self._token = ""
        self._renew_at: Instant = 0.0

    @property
    def name(self) -> str:
        """`app 1234`."""
        return f"app {self.id}"

    async def token(self) -> str:
        """A JWT with two minutes of life or more."""
        now = self._clock.now()
        if now >= self._renew_at:
            claims = {
                "iat": int(now - _DRIFT),
                "exp": int(now + _JWT_LIFETIME),
                "iss": str(self.id),
            }
            self._token = jwt.encode(claims, self._key, algorithm="RS256")
            self._renew_at = now + _JWT_LIFETIME - _JWT_MARGIN
        return self._token

    def refused(self, token: str) -> None:
        """Make another one next time."""
        if token == self._token:
            self._renew_at = 0.0


class Installation:
    """One App on one account, with its access token."""

    def __init__(
        self, app: App, account: str, installation_id: int, api: Api, clock: Clock
    ) -> None:
        self.app = app
        self.account = account
        self.id = installation_id
        self.gone = False
        self._api = api
        self._clock = clock
        self._token = ""
        self._renew_at: Instant = 0.0
        self._flights: SingleFlight[str] = SingleFlight()

    @property
    def name(self) -> str:
        """`app 1234 on acme`."""
        return f"{self.app.name} on {self.account}"

    async def token(self) -> str:
        """An access token with five minutes of life or more; asked for once however many want it."""
        if self._clock.now() >= self._renew_at:
            return await self._flights.run("token", self._renew)
        return self._token

    def refused(self, token: str) -> None:
        """Ask for another one next time."""
        if token == self._token:
            self._renew_at = 0.0

    async def close(self) -> None:
        """Stop asking. Idempotent."""
        await self._flights.close()

    async def _renew(self) -> str:
        request = Request(
            # A POST that may be repeated: a token nobody received harms nobody.
            "POST",
            "/app/installations/{installation_id}/access_tokens",
            {"installation_id": self.id},
            body={},
            expected=frozenset({404}),
        )
        asked_at = self._clock.now()
        answer = await self._api.ask(request, self.app)
        if not answer.ok:
            self.gone = True
            raise OperatorError(f"{self.name}: the installation is gone")
        granted = read_as(_TokenAnswer, request, answer)
        self._token = granted.token
        self._renew_at = _expiry(granted, asked_at) - _TOKEN_MARGIN
        return self._token


class Installations:
    """The installations in use, found when first asked for. One account's trouble stays its own."""

    def __init__(self, apps: Sequence[App], api: Api, clock: Clock) -> None:
        self._apps = apps
        self._api = api
        self._clock = clock
        self._known: dict[str, Installation] = {}
        self._flights: SingleFlight[Installation] = SingleFlight()

    async def of(self, target: Target) -> Installation:
        """Who speaks for this target. Raises OperatorError where no App is installed."""
        known = self._known.get(target.account)
        if known is not None and not known.gone:
            return known
        return await self._flights.run(str(target).lower(), lambda: self._find(target))

    async def close(self) -> None:
        """Stop asking. Idempotent."""
        await self._flights.close()
        for installation in self._known.values():
            await installation.close()

    async def _find(self, target: Target) -> Installation:
        request = Request(
            "GET",
            f"{target.route}/installation",
            target.variables,
            expected=frozenset({404}),
        )
        for app in self._apps:
            answer = await self._api.ask(request, app)
            if answer.ok:
                found = read_as(_InstallationAnswer, request, answer)
                installation = Installation(app, target.account, found.id, self._api, self._clock)
                self._known[target.account] = installation
                return installation
        raise OperatorError(f"no configured App is installed on {target}")


def _load(key: AppKey) -> RSAPrivateKey:
    refused = ValueError(f"App {key.id}: the key is no unencrypted RSA private key in PEM")
    try:
        loaded = load_pem_private_key(key.private_key_pem.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise refused from None
    if not isinstance(loaded, RSAPrivateKey):
        raise refused
    return loaded


def _expiry(granted: _TokenAnswer, asked_at: Instant) -> Instant:
    # By both clocks, the earlier: ours may be behind GitHub's, or the answer's time unreadable.
    ours = asked_at + _TOKEN_LIFETIME
    try:
        return min(instant_of(granted.expires_at) or ours, ours)
    except (ValueError, OverflowError):
        return ours
