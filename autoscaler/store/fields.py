"""Reads typed values out of a JSON object, and says which key is not what it should be.

A key that is absent takes the default its caller names, so that rows written before a field
existed can still be read; a key of another type is an error and never guessed at.
"""

import json
from enum import StrEnum
from typing import Final, TypeVar, cast

Choice = TypeVar("Choice", bound=StrEnum)


class CorruptRecordError(Exception):
    """A stored record is not what this code writes."""


class _Required:
    """Stands for no default."""


_REQUIRED: Final = _Required()


class Fields:
    """One JSON object. Every reader raises CorruptRecordError."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, object]) -> None:
        self._values = values

    @classmethod
    def parse(cls, text: str) -> "Fields":
        """From JSON text that holds one object."""
        try:
            return cls(_object(json.loads(text), "record"))
        except ValueError as error:
            raise CorruptRecordError(f"not JSON: {error}") from error

    def text(self, key: str, default: str | _Required = _REQUIRED) -> str:
        """A string."""
        value = self._value(key, default)
        if not isinstance(value, str):
            raise _wrong(key, "a string")
        return value

    def text_or_none(self, key: str) -> str | None:
        """A string, or None where it is null or absent."""
        return None if self._values.get(key) is None else self.text(key)

    def whole(self, key: str, default: int | _Required = _REQUIRED) -> int:
        """An integer."""
        value = self._value(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise _wrong(key, "an integer")
        return value

    def whole_or_none(self, key: str) -> int | None:
        """An integer, or None where it is null or absent."""
        return None if self._values.get(key) is None else self.whole(key)

    def number(self, key: str, default: float | _Required = _REQUIRED) -> float:
        """A number, as a float."""
        value = self._value(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _wrong(key, "a number")
        return float(value)

    def number_or_none(self, key: str) -> float | None:
        """A number as a float, or None where it is null or absent."""
        return None if self._values.get(key) is None else self.number(key)

    def flag(self, key: str, default: bool | _Required = _REQUIRED) -> bool:
        """True or false."""
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise _wrong(key, "true or false")
        return value

    def flag_or_none(self, key: str) -> bool | None:
        """True or false, or None where it is null or absent."""
        return None if self._values.get(key) is None else self.flag(key)

    def choice(self, key: str, of: type[Choice]) -> Choice:
        """A member of an enumeration, by its value."""
        try:
            return of(self.text(key))
        except ValueError as error:
            raise _wrong(key, f"one of {', '.join(of)}") from error

    def choice_or_none(self, key: str, of: type[Choice]) -> Choice | None:
        """A member of an enumeration, or None where it is null or absent."""
        return None if self._values.get(key) is None else self.choice(key, of)

    def texts(self, key: str, default: tuple[str, ...] | _Required = _REQUIRED) -> tuple[str, ...]:
        """A list of strings."""
        value = self._value(key, default)
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise _wrong(key, "a list of strings")
        return tuple(cast("list[str]", value))

    def amounts(self, key: str) -> tuple[tuple[str, int], ...]:
        """A list of [name, integer] pairs."""
        value = self._value(key, _REQUIRED)
        if not isinstance(value, list) or not all(_is_amount(item) for item in value):
            raise _wrong(key, "a list of [name, integer]")
        return tuple((name, units) for name, units in value)

    def part(self, key: str) -> "Fields":
        """An object within this one."""
        return Fields(_object(self._value(key, _REQUIRED), key))

    def part_or_none(self, key: str) -> "Fields | None":
        """An object within this one, or None where it is null or absent."""
        return None if self._values.get(key) is None else self.part(key)

    def _value(self, key: str, default: object) -> object:
        value = self._values.get(key, default)
        if value is _REQUIRED:
            raise CorruptRecordError(f"{key} is missing")
        return value


def _object(value: object, key: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _wrong(key, "an object")
    return cast("dict[str, object]", value)


def _is_amount(item: object) -> bool:
    return (
        isinstance(item, list)
        and len(item) == 2
        and isinstance(item[0], str)
        and isinstance(item[1], int)
    )


def _wrong(key: str, wanted: str) -> CorruptRecordError:
    return CorruptRecordError(f"{key} is not {wanted}")
