"""Encodes records as JSON text, and decodes them, by their fields and types in the model.

`decode(type(x), encode(x)) == x` for every record. Each field is a key, and every key is required.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from math import isfinite
from operator import attrgetter
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from autoscaler.model.changes import Record

R = TypeVar("R", bound=Record)


class CorruptRecordError(Exception):
    """A stored record is not JSON, or a key is missing or has a wrong type."""


def encode(record: Record) -> str:
    """Return JSON text.

    Raises: ValueError for a number that is not finite.
    """
    # msgspec would write null.
    if not all(map(isfinite, filter(None, _NUMBERS[type(record)](record)))):
        raise ValueError("a number that is not finite")
    with suppress(UnicodeEncodeError):
        text = _encode(record)
        if text.isascii():
            return text.decode()
    # Escaped as ASCII, since a lone surrogate in GitHub's JSON must neither fail nor change.
    return json.dumps(msgspec.to_builtins(record), separators=(",", ":"))


def decode(kind: type[R], text: str) -> R:
    """Return the record that `encode` encoded.

    Raises: CorruptRecordError.
    """
    try:
        try:
            found = _DECODERS[kind].decode(text)
        except msgspec.DecodeError:
            # msgspec's parser, three times as fast, also refuses lone surrogates.
            found = msgspec.convert(json.loads(text), _STRICT[kind])
        return msgspec.convert(found, kind, from_attributes=True)
    except msgspec.ValidationError as error:
        raise CorruptRecordError(str(error)) from error
    except ValueError as error:
        raise CorruptRecordError(f"not JSON: {error}") from error


def _with_every_key(kind: Any) -> type[msgspec.Struct]:
    """Return a type with the fields of a dataclass and of its parts, none of them with a default."""
    hints = get_type_hints(kind)
    named = ((field.name, hints[field.name]) for field in fields(kind))
    return msgspec.defstruct(
        kind.__name__,
        [(name, _with_every_key(hint) if is_dataclass(hint) else hint) for name, hint in named],
    )


def _numbers(kind: Any, prefix: str) -> Iterator[str]:
    """Yield the names of a dataclass's fields, and of its parts' fields, that hold a float."""
    for name, hint in get_type_hints(kind).items():
        if is_dataclass(hint):
            yield from _numbers(hint, f"{prefix}{name}.")
        elif hint is float or float in get_args(hint):
            yield prefix + name


_encode = msgspec.json.Encoder().encode
_STRICT = {kind: _with_every_key(kind) for kind in get_args(Record)}
_DECODERS = {kind: msgspec.json.Decoder(strict) for kind, strict in _STRICT.items()}
_NUMBERS = {kind: attrgetter(*_numbers(kind, "")) for kind in get_args(Record)}
