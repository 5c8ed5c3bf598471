"""The static files, each under an address that has a digest of its content."""

import hashlib
from dataclasses import dataclass
from importlib.resources import files

_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file: its name, its address, its content and type. A changed file gets another address."""

    name: str
    address: str
    body: bytes
    content_type: str


def read_assets() -> tuple[Asset, ...]:
    """Return all static files of the console."""
    folder = files("autoscaler.console") / "static"
    return tuple(
        _asset(file.name, file.read_bytes())
        for file in sorted(folder.iterdir(), key=lambda one: one.name)
        if file.name.rpartition(".")[2] in _TYPES
    )


def _asset(name: str, body: bytes) -> Asset:
    stem, _, kind = name.rpartition(".")
    digest = hashlib.sha256(body).hexdigest()[:16]
    return Asset(name, f"/static/{stem}-{digest}.{kind}", body, _TYPES[kind])
