"""Removes secrets from log entries, by the name of their key and by their format.

This is a second line of defence: no code logs a secret on purpose. It also cuts long or deeply nested
values. It never raises.
"""

import re
from collections.abc import Mapping, MutableMapping
from typing import Any

from autoscaler.model.wording import counted

REDACTED = "[redacted]"
TEXT_LIMIT = 8192
"""Maximum number of characters of one value. A long value keeps its start and its end."""

_DEPTH = 6
_ITEMS = 100

_SECRET_KEYS = (
    "jit_config",
    "jitconfig",
    "token",
    "authorization",
    "nonce",
    "private_key",
    "secret",
    "password",
    "cookie",
    "signature",
    "jwt",
)

_ESCAPED = r"\\?\\(?:/|u00[0-9A-Fa-f]{2})|%[0-9A-Fa-f]{2}"
"""Escapes of base64 characters in JSON and in URLs (RFC 8259, 7; RFC 3986, 2.1)."""

_BROKEN = r"[\r\n]|\\[nr]"
"""A line break in base64, also as JSON and logs write it."""

_LETTER = r"[A-Za-z0-9+/_\-]"
_NOT_IN_ESCAPE = r"(?<!\\(?=\\?(?:/|u00[0-9A-Fa-f]{2})))(?<!%(?=[0-9A-Fa-f]{2}))"
"""Matches where no escape has begun just before."""

_NOT_IN_BREAK = r"(?<![\r\n])(?<!\\(?=[nr]))"
"""Matches where no line break has begun just before."""

_LINED = f"(?:{_LETTER}|{_ESCAPED}|{_BROKEN})"

# The patterns read each character a few times at most, whatever the text (tests/test_patterns.py): what has no
# bound is tried only where its run of characters starts, and gives back nothing that it took.
_JIT_CONFIGURATION = re.compile(
    # base64 of {".runner": ...} or of any other JSON object, on any number of lines. Only the first place of a
    # run that looks like its start can have enough characters after it.
    rf"(?<!{_LETTER}){_NOT_IN_BREAK}{_NOT_IN_ESCAPE}"
    rf"(?>{_LINED}*?(?:\b|(?<=\\[nrt]))ey[IJ]){_LINED}{{97,}}+=*+",
    re.ASCII,
)
_SECRET_TEXTS = re.compile(
    r"\bgh[a-z]_[A-Za-z0-9_.\-]{10,}+"
    r"|\bgithub_pat_\w{10,}+"
    r"|(?<![\w\-])(?=[\w\-]*?\beyJ[\w\-]{8})[\w\-]++\.[\w\-]{8,}+\.[\w\-]*+"
    rf"|(?<!{_LETTER}){_NOT_IN_ESCAPE}(?:{_LETTER}|{_ESCAPED}){{296,}}+=*+"
    # Any value that an error message quotes next to the name, whatever its length.
    r"|(?<=jit_config)[\\\"' ]{0,6}[:=][\\\"' ]{0,6}[^\\\"',}\s]++"
    r"|(?<=--jitconfig)[=\s]++\S++"
    r"|\b[0-9A-Fa-f]{64}\b"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\b(?i:bearer)\s++[^\s'\",]++"
    r"|(?<=://)[^/\s:@]++:[^/\s@]++(?=@)",
    re.ASCII | re.DOTALL,
)


def redact(_logger: object, _method: str, entry: MutableMapping[str, Any]) -> dict[str, Any]:
    """Return the entry without secrets and with bounded values. A structlog processor."""
    return {key: _clean(key, value, _DEPTH) for key, value in entry.items()}


def is_secret_key(key: str) -> bool:
    """Return True if values of this key are never logged."""
    lowered = key.lower().replace("-", "_")
    return any(word in lowered for word in _SECRET_KEYS)


def redact_text(text: str) -> str:
    """Return the text without credentials, and without its middle if it is too long."""
    if len(text) > 2 * TEXT_LIMIT:
        text = text[:TEXT_LIMIT] + text[-TEXT_LIMIT:]
    text = remove_secrets(text)
    if len(text) > TEXT_LIMIT:
        half = TEXT_LIMIT // 2
        text = f"{text[:half]} [...] {text[-half:]}"
    return text


def remove_secrets(text: str) -> str:
    """Return the whole text without credentials, however long it is."""
    # What follows a secret without a space is a run of its own only after the secret is removed.
    return _without_secrets(_without_secrets(text))


def _without_secrets(text: str) -> str:
    """Return the text without what either pattern finds in it.

    Each reads the whole text: a part that one has removed could be what shows the other where a secret is.
    """
    found = [one.span() for one in _JIT_CONFIGURATION.finditer(text)]
    found += [one.span() for one in _SECRET_TEXTS.finditer(text)]
    kept, shown_to = [], 0
    for start, end in sorted(found):
        if start >= shown_to:
            kept += [text[shown_to:start], REDACTED]
        shown_to = max(shown_to, end)
    return "".join([*kept, text[shown_to:]])


def _clean(key: str, value: object, depth: int) -> object:
    if value is None or isinstance(value, bool):
        return value
    if is_secret_key(key):
        return REDACTED
    if isinstance(value, int | float):
        return value
    if isinstance(value, str):
        return redact_text(value)
    if depth == 0:
        return "[...]"
    if isinstance(value, Mapping):
        items = list(value.items())[:_ITEMS]
        return {str(name): _clean(str(name), item, depth - 1) for name, item in items}
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean("", item, depth - 1) for item in list(value)[:_ITEMS]]
    return redact_text(_shown(value))


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        return counted(len(value), "byte")
    try:
        return str(value) if isinstance(value, BaseException) else repr(value)
    except Exception as error:  # noqa: BLE001 - a repr that raises must not lose the log line
        return f"[{type(value).__name__} whose repr raises {type(error).__name__}]"
