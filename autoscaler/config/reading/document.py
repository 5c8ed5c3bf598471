"""Reads YAML into plain values, and the line of each.

Accepts the subset that a configuration needs, limited in size, depth and expansion: mappings
with text keys, lists, and the scalars of YAML 1.2 (`on` and `no` are text; only `true` and `false`
are booleans). Never builds an object of any other type.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from autoscaler.config.problems import ConfigurationError, KeyPath, Problem, dotted
from autoscaler.config.reading.syntax_errors import TEMPLATE, not_yaml

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 32
MAX_VALUES = 200_000
"""Counted after aliases are expanded, so that a small file cannot become a huge one."""

Scalar = str | int | float | bool | None

_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]{1,30}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]{1,30}|[0-9]{1,30}(\.[0-9]{0,30})?)([eE][-+]?[0-9]{1,2})?")
_TEXT_TAGS = {None, "!", "tag:yaml.org,2002:str"}


@dataclass(frozen=True, slots=True)
class Document:
    """A file's content: plain dicts, lists and scalars. `problems` are its duplicate keys.

    `lines` has the line (from 1) of each value: where it starts, or the line of its key.
    """

    file: str
    content: Any
    lines: Mapping[KeyPath, int]
    problems: tuple[Problem, ...] = ()

    def line(self, path: KeyPath) -> int:
        """Return the line of the deepest existing part of a path."""
        return next(
            found
            for end in range(len(path), -1, -1)
            if (found := self.lines.get(path[:end])) is not None
        )

    def value(self, path: KeyPath) -> Any:
        """Return the value at a path as it is written, or None if there is none."""
        found = self.content
        for part in path:
            try:
                found = found[part]
            except (KeyError, IndexError, TypeError):
                return None
        return found

    def problem(self, path: KeyPath, what: str, fix: str, *, warning: bool = False) -> Problem:
        """Return a problem at a path."""
        return Problem(self.file, self.line(path), dotted(path), what, fix, warning)


def values_in(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Return a value and all below it with their paths, in their order."""
    yield path, value
    for key, child in children(value):
        yield from values_in(child, (*path, key))


def children(value: Any) -> Iterator[tuple[str | int, Any]]:
    """Return the keys or positions of a mapping or list with the values below; nothing for a scalar."""
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


def parse(
    content: bytes, file: str, *, if_empty: str = "start from examples/fleet.yaml"
) -> Document:
    """Read one YAML document. Raises ConfigurationError when it cannot be read at all.

    `if_empty` is the fix for an empty file.
    """
    if len(content) > MAX_BYTES:
        raise _unreadable(file, 1, f"is larger than {MAX_BYTES // 1024} KiB", "make it smaller")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _unreadable(file, line, "is not UTF-8", "save the file as UTF-8") from None
    try:
        reader = _Reader(file, yaml.parse(text, Loader=yaml.CSafeLoader))
        root = reader.document()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, max(error.position, 0)) + 1
        what = "contains a control character"
        raise _unreadable(file, line, what, "remove it") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = mark.line + 1 if mark is not None else 1
        raise _unreadable(file, *not_yaml(error, text, line)) from None
    if root is None:
        raise _unreadable(file, 1, "is empty", if_empty)
    return Document(file, root, reader.lines, tuple(reader.problems))


def _unreadable(file: str, line: int, what: str, fix: str) -> ConfigurationError:
    return ConfigurationError([Problem(file, line, "", what, fix)])


@dataclass(slots=True)
class _Reader:
    """Reads values from the parser's events. Its recursion is at most MAX_DEPTH deep."""

    file: str
    events: Iterator[Any]
    lines: dict[KeyPath, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    _anchors: dict[str, tuple[KeyPath, Any]] = field(default_factory=dict)
    _line: int = 1

    def document(self) -> Any:
        """Return the value of the only document, or None if there is none."""
        root = None
        for event in self.events:
            self._line = event.start_mark.line + 1
            if isinstance(event, yaml.DocumentStartEvent):
                if self.lines:
                    raise self._error("contains a second document", "keep one document")
                root = self._value((), next(self.events))
        return root

    def _value(self, path: KeyPath, event: Any) -> Any:
        self._line = event.start_mark.line + 1
        self._place(path, self._line)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                fix = "put text that begins with * in quotes, or write the value out"
                raise self._error("an alias has no anchor above it", fix)
            source, value = self._anchors[event.anchor]
            self._repeat(source, value, path)
            return value
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event)
        elif event.tag is not None:
            raise self._error("has a tag, which is not supported", "remove the tag")
        elif isinstance(event, yaml.MappingStartEvent):
            value = self._mapping(path)
        else:
            value = self._list(path)
        if event.anchor is not None:
            self._anchors[event.anchor] = path, value
        return value

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar:
        if event.tag not in _TEXT_TAGS:
            raise self._error("has a tag, which is not supported", "remove the tag")
        is_plain = event.tag is None and event.implicit[0]
        return _resolve(event.value) if is_plain else str(event.value)

    def _mapping(self, path: KeyPath) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            self._line = event.start_mark.line + 1
            if isinstance(event, yaml.MappingStartEvent):
                raise self._error(*TEMPLATE)
            if not isinstance(event, yaml.ScalarEvent):
                raise self._error("has a key that is not plain text", "write a plain key")
            key = str(event.value)
            if key == "<<":
                fix = "write the keys out, or alias whole values"
                raise self._error("merge keys (<<) are not supported", fix)
            below = (*path, key)
            if key in found:
                what = f"is repeated; the first one is on line {self.lines[below]}"
                fix = "rename or remove one of them"
                self.problems.append(Problem(self.file, self._line, dotted(below), what, fix))
            self._place(below, self._line)
            value = self._value(below, next(self.events))
            found.setdefault(key, value)
        return found

    def _list(self, path: KeyPath) -> list[Any]:
        found: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            found.append(self._value((*path, len(found)), event))
        return found

    def _repeat(self, source: KeyPath, value: Any, target: KeyPath) -> None:
        """Give the values below an alias the lines of those below its anchor."""
        for key, child in children(value):
            self._place((*target, key), self.lines[*source, key])
            self._repeat((*source, key), child, (*target, key))

    def _place(self, path: KeyPath, line: int) -> None:
        if len(path) > MAX_DEPTH:
            raise self._error(f"is nested deeper than {MAX_DEPTH} levels", "flatten it")
        self.lines.setdefault(path, line)
        if len(self.lines) > MAX_VALUES:
            what = f"has more than {MAX_VALUES} values after aliases are expanded"
            raise self._error(what, "use fewer aliases")

    def _error(self, what: str, fix: str) -> ConfigurationError:
        return _unreadable(self.file, self._line, what, fix)


def _resolve(text: str) -> Scalar:
    """Return the value of a plain scalar (YAML 1.2's core schema, with decimal numbers only)."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
