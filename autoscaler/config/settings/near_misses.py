"""Refuses values in another form than their key wants: the fix has what was meant in the right form.

A URL for an organization, a client ID for an App ID, an image's id for its name, a file for the URL of a store.
"""

import re
from urllib.parse import parse_qsl, urlsplit

from autoscaler.config.problems import show
from autoscaler.config.settings.scalars import wrong

_URL = re.compile(r"(https?://[^/]+/|git@[^:]+:|github\.com/)(?P<path>.*)")
_CLIENT_ID = re.compile(r"Iv[0-9][A-Za-z0-9.]+")
_IMAGE_ID = re.compile(r"ami-[0-9a-z]+")
_SQLITE = "sqlite:///"
_FILES_OF_LIBPQ = ("password_file", "passfile", "sslrootcert", "sslcert", "sslkey", "sslcrl")
"""libpq takes relative names from the folder in which the controller was started."""


def check_owner(text: str) -> str:
    """Return the name of an organization. Raises ValueError for its URL, and for a repository."""
    parts = _path(text)
    if len(parts) == 1 and parts[0] != text:
        raise wrong(f"{show(text)} is a URL", f"write the name alone: org: {parts[0]}")
    if len(parts) == 2 and "*" in parts[1]:
        fix = f"write org: {parts[0]}, and repositories: [{show(text)}] beside it"
        raise wrong(f"{show(text)} is a glob over repositories", fix)
    if len(parts) == 2:
        fix = f"write repo: {'/'.join(parts)} instead of org"
        raise wrong(f"{show(text)} is a repository", fix)
    return text


def check_repository(text: str) -> str:
    """Return a repository as OWNER/NAME. Raises ValueError for its URL, and for a glob."""
    parts = _path(text)
    if len(parts) == 2 and "*" in parts[1]:
        fix = f"write org: {parts[0]} instead, and repositories: [{show(text)}] beside it"
        raise wrong(f"{show(text)} is a glob over repositories", fix)
    if len(parts) == 2 and "/".join(parts) != text:
        raise wrong(f"{show(text)} is not OWNER/NAME", f"write {'/'.join(parts)}")
    return text


def check_app_id(value: object) -> object:
    """Return the number of a GitHub App. Raises ValueError for its client ID.

    Both are on the settings page of the App (docs.github.com, "Generating a JSON Web Token for a GitHub App").
    """
    if isinstance(value, str) and _CLIENT_ID.fullmatch(value):
        fix = "write the App ID: the number on the same page of the App's settings"
        raise wrong(f"{show(value)} is the App's client ID", fix)
    return value


def check_image_name(text: str) -> str:
    """Return a glob over names of images. Raises ValueError for an image's id."""
    if _IMAGE_ID.fullmatch(text):
        fix = (
            'write image: {name: "NAME-*"}: images are found by their names, and '
            f"aws ec2 describe-images --image-ids {text} shows the name of this one"
        )
        raise wrong(f"{show(text)} is the id of an image, not its name", fix)
    return text


def check_resources(value: object) -> object:
    """Return resources of a container by name. Raises ValueError for the form that a Pod has."""
    if isinstance(value, dict) and ("limits" in value or "requests" in value):
        fix = 'write the amounts alone, such as resources: {cpu: "4", memory: 16Gi}'
        raise wrong("has limits and requests, which are the same for a runner", fix)
    return value


def parse_store(text: str) -> str:
    """Parse `sqlite:///relative`, `sqlite:////absolute` or `postgresql://user@host/database`."""
    fix = "write sqlite:///FILE or postgresql://USER@HOST/DATABASE"
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise wrong("contains control characters", fix)
    if text.startswith("postgres://"):
        raise wrong("begins with postgres:", "write postgresql:")
    if text.startswith("postgresql://"):
        return _postgres(text, fix)
    if not text.startswith(_SQLITE) or text.endswith("/") or "?" in text or "#" in text:
        raise wrong("is not a SQLite file", _sqlite_fix(text) or fix)
    if text == "sqlite:///:memory:":
        raise wrong("is an in-memory database, which a restart would lose", fix)
    return text


def _postgres(text: str, fix: str) -> str:
    try:
        url = urlsplit(text)
        given = dict(parse_qsl(url.query, keep_blank_values=True))
        secret, named = url.password is not None, url.hostname and url.path.strip("/")
    except ValueError:
        raise wrong("is not a URL", fix) from None
    if secret or {"password", "sslpassword"} & {name.lower() for name in given}:
        raise wrong("contains a password", "leave it out, and add ?password_file=/FILE")
    if not named:
        raise wrong("has no host or no database", fix)
    for name in _FILES_OF_LIBPQ:
        if name in given and not given[name].startswith("/") and given[name] != "system":
            raise wrong(f"has a relative {name}", f"write {name}=/ and the whole path")
    return text


def _sqlite_fix(text: str) -> str | None:
    """Return the fix for the path of a file, and for a URL with too few slashes, or None."""
    file = text.removeprefix("sqlite:").removeprefix("//")
    if not re.fullmatch(r"[A-Za-z0-9._/-]*[A-Za-z0-9._-]", file) or text.startswith(_SQLITE):
        return None
    return f"write {_SQLITE}{file}: three slashes, and the path of the file"


def _path(text: str) -> list[str]:
    """Return the parts of the path of a URL at GitHub, or of a text that is none."""
    found = _URL.fullmatch(text)
    path = found["path"] if found else text
    return path.strip("/").removesuffix(".git").split("/")
