"""Reads typed values from a JSON object. An error names the key that is missing or has a wrong type."""

import json
from enum import StrEnum
from typing import TypeVar, cast

Choice = TypeVar("Choice", bound=StrEnum)


class CorruptRecordError(Exception):
    """A stored record is not JSON, or a key is missing or has a wrong type."""


class Fields:
    """One JSON object. Each method raises CorruptRecordError for a missing key or a wrong type."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, object]) -> None:
        self._values = values

    @classmethod
    def parse(cls, text: str) -> "Fields":
        """Parse JSON text that holds one object."""
        try:
            return cls(_object(json.loads(text), "record"))
        except ValueError as error:
            raise CorruptRecordError(f"not JSON: {error}") from error

    def text(self, key: str) -> str:
        """Return a string."""
        value = self._value(key)
        if not isinstance(value, str):
            raise _wrong(key, "a string")
        return value

    def text_or_none(self, key: str) -> str | None:
        """Return a string, or None for null."""
        return None if self._value(key) is None else self.text(key)

    def whole(self, key: str) -> int:
        """Return an integer."""
        value = self._value(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise _wrong(key, "an integer")
        return value

    def whole_or_none(self, key: str) -> int | None:
        """Return an integer, or None for null."""
        return None if self._value(key) is None else self.whole(key)

    def number(self, key: str) -> float:
        """Return a number as a float."""
        value = self._value(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _wrong(key, "a number")
        return float(value)

    def number_or_none(self, key: str) -> float | None:
        """Return a number as a float, or None for null."""
        return None if self._value(key) is None else self.number(key)

    def flag(self, key: str) -> bool:
        """Return True or False."""
        value = self._value(key)
        if not isinstance(value, bool):
            raise _wrong(key, "true or false")
        return value

    def flag_or_none(self, key: str) -> bool | None:
        """Return True or False, or None for null."""
        return None if self._value(key) is None else self.flag(key)

    def choice(self, key: str, of: type[Choice]) -> Choice:
        """Return the member of an enumeration that has this value."""
        try:
            return of(self.text(key))
        except ValueError as error:
            raise _wrong(key, f"one of {', '.join(of)}") from error

    def choice_or_none(self, key: str, of: type[Choice]) -> Choice | None:
        """Return a member of an enumeration, or None for null."""
        return None if self._value(key) is None else self.choice(key, of)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of strings as a tuple."""
        value = self._value(key)
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise _wrong(key, "a list of strings")
        return tuple(cast("list[str]", value))

    def amounts(self, key: str) -> tuple[tuple[str, int], ...]:
        """Return a list of [name, integer] pairs as tuples."""
        value = self._value(key)
        if not isinstance(value, list) or not all(_is_amount(item) for item in value):
            raise _wrong(key, "a list of [name, integer]")
        return tuple((name, units) for name, units in value)

    def part(self, key: str) -> "Fields":
        """Return a nested object."""
        return Fields(_object(self._value(key), key))

    def part_or_none(self, key: str) -> "Fields | None":
        """Return a nested object, or None for null."""
        return None if self._value(key) is None else self.part(key)

    def _value(self, key: str) -> object:
        if key not in self._values:
            raise CorruptRecordError(f"{key} is missing")
        return self._values[key]


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
