"""Authenticates callers: an App by its JWT, an installation by its token. It uses real time."""

import base64
import binascii
import json
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from aiohttp import web
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from lab.github.settings import LabApp

JWT_LIFETIME = 600.0
CLOCK_DRIFT = 60.0


class CredentialsRefusedError(Exception):
    """The credentials are refused with 401; the message is GitHub's."""


@dataclass(frozen=True, slots=True)
class Installation:
    """One App on one organization (its login)."""

    id: int
    app_id: int
    organization: str


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller. `installation` is None for an App with its JWT."""

    app_id: int
    installation: Installation | None

    @property
    def key(self) -> str:
        """The key of this caller's rate limits."""
        if self.installation is None:
            return f"app {self.app_id}"
        return f"installation {self.installation.id}"


def _part(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _public_key(pem: bytes) -> RSAPublicKey:
    key = load_pem_public_key(pem)
    if not isinstance(key, RSAPublicKey):
        raise TypeError("an App's key is an RSA key")
    return key


class Credentials:
    """Checks JWTs, and issues and checks tokens. `wall` returns real time in Unix seconds.

    A token has `token_length` characters: GitHub's have about 520 (github.com/mongodb/kingfisher/issues/359).
    """

    def __init__(
        self, apps: Iterable[LabApp], wall: Callable[[], float], token_lifetime: float
    ) -> None:
        self._keys = {app.id: _public_key(app.public_key) for app in apps}
        self._wall = wall
        self._lifetime = token_lifetime
        self.token_length = 520
        self._tokens: dict[str, tuple[Installation, float]] = {}

    def wall(self) -> float:
        """Return GitHub's real time in Unix seconds, as its answers' `Date` shows it."""
        return self._wall()

    def app(self, jwt: str) -> Caller:
        """Return the App that signed this JWT. Raises CredentialsRefusedError."""
        claims = self._verified(jwt)
        now = self._wall()
        issued, expires = claims.get("iat"), claims.get("exp")
        if not isinstance(issued, int) or issued > now + CLOCK_DRIFT:
            raise CredentialsRefusedError(
                "'Issued at' claim ('iat') must be an Integer representing the time that the "
                "assertion was issued"
            )
        if not isinstance(expires, int) or expires <= now:
            raise CredentialsRefusedError(
                "'Expiration time' claim ('exp') must be a numeric value representing "
                "the future time at which the assertion expires"
            )
        if expires > now + JWT_LIFETIME:
            raise CredentialsRefusedError(
                "'Expiration time' claim ('exp') is too far in the future"
            )
        return Caller(int(str(claims["iss"])), None)

    def token(self, installation: Installation) -> tuple[str, float]:
        """Return a new installation token and its expiry (real Unix seconds)."""
        start = f"ghs_{installation.app_id}_"
        token = start + secrets.token_hex(self.token_length)[: self.token_length - len(start)]
        expires = self._wall() + self._lifetime
        self._tokens[token] = (installation, expires)
        return token, expires

    def installation(self, token: str) -> Caller:
        """Return the caller with this token. Raises CredentialsRefusedError if unknown or expired."""
        found = self._tokens.get(token)
        if found is None or found[1] <= self._wall():
            self._tokens.pop(token, None)
            raise CredentialsRefusedError("Bad credentials")
        return Caller(found[0].app_id, found[0])

    def holder(self, request: web.Request) -> int | None:
        """Return the ID of the installation whose token a request has, valid or expired, or None."""
        token = request.headers.get("Authorization", "").rpartition(" ")[2]
        found = self._tokens.get(token)
        return found[0].id if found is not None else None

    def revoke(self, installation: Installation | None) -> None:
        """Revoke the tokens of an installation, or of all."""
        self._tokens = {
            token: found
            for token, found in self._tokens.items()
            if installation not in {None, found[0]}
        }

    def add(self, app: LabApp) -> None:
        """Accept the JWTs of a new App."""
        self._keys[app.id] = _public_key(app.public_key)

    def forget_app(self, app_id: int) -> None:
        """Refuse an App's JWTs from now on."""
        self._keys.pop(app_id, None)

    def _verified(self, jwt: str) -> dict[str, object]:
        """Return the claims after checking algorithm, issuer and signature."""
        undecodable = CredentialsRefusedError("A JSON web token could not be decoded")
        try:
            head, body, signature = jwt.split(".")
            header, claims = json.loads(_part(head)), json.loads(_part(body))
            signed = _part(signature)
        except (ValueError, binascii.Error, RecursionError):
            raise undecodable from None
        if not isinstance(header, dict) or not isinstance(claims, dict):
            raise undecodable
        issuer = str(claims.get("iss"))
        known = issuer.isascii() and issuer.isdigit() and len(issuer) < 20
        key = self._keys.get(int(issuer)) if known else None
        if key is None:
            raise CredentialsRefusedError("Integration not found")
        if header.get("alg") != "RS256":
            raise undecodable
        try:
            key.verify(signed, f"{head}.{body}".encode(), PKCS1v15(), SHA256())
        except InvalidSignature:
            raise undecodable from None
        return claims
