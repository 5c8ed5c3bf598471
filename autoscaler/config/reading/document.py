"""Reads YAML into plain values with line numbers.

Accepts the subset that a configuration needs, limited in size, depth and expansion: mappings
with text keys, lists, and the scalars of YAML 1.2 (`on` and `no` are text; only `true` and `false`
are booleans). Never builds an object of any other type.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from autoscaler.config.problems import ConfigurationError, KeyPath, Problem, dotted

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 32
MAX_NODES = 200_000
"""Counted after aliases are expanded, so that a small file cannot become a huge one."""

Scalar = str | int | float | bool | None

_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]{1,30}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]{1,30}|[0-9]{1,30}(\.[0-9]{0,30})?)([eE][-+]?[0-9]{1,2})?")
_TEXT_TAGS = {None, "!", "tag:yaml.org,2002:str"}


@dataclass(slots=True)
class Node:
    """A value and its line (from 1): where it starts, or the line of its key.

    `size` and `height` count the values and the levels below it, with aliases expanded.
    """

    line: int
    value: "Scalar | dict[str, Node] | list[Node]" = None
    size: int = 1
    height: int = 0

    def get(self, *path: str | int) -> "Node | None":
        """Return the value at `path` below this one, if there is one."""
        node: Node | None = self
        for part in path:
            if node is None:
                return None
            node = node.child(part)
        return node

    def child(self, part: str | int) -> "Node | None":
        """Return the value under a key or at a position, if there is one."""
        if isinstance(self.value, dict):
            return self.value.get(str(part))
        if isinstance(self.value, list) and isinstance(part, int) and part < len(self.value):
            return self.value[part]
        return None

    def entries(self) -> "Iterator[tuple[str, Node]]":
        """Return keys and values; nothing if this is not a mapping."""
        if isinstance(self.value, dict):
            yield from self.value.items()

    def items(self) -> "Iterator[tuple[int, Node]]":
        """Return positions and values; nothing if this is not a list."""
        if isinstance(self.value, list):
            yield from enumerate(self.value)

    def plain(self) -> Any:
        """Return the value as plain dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


@dataclass(frozen=True, slots=True)
class Document:
    """A file's content. `problems` are its duplicate keys."""

    file: str
    root: Node
    problems: tuple[Problem, ...] = ()

    def problem(self, path: KeyPath, what: str, fix: str, *, warning: bool = False) -> Problem:
        """Return a problem at `path`, with the line of the deepest existing part of the path."""
        node, line = self.root, self.root.line
        for part in path:
            child = node.child(part)
            if child is None:
                break
            node, line = child, child.line
        return Problem(self.file, line, dotted(path), what, fix, warning)


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
    builder = _Builder(file)
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            builder.take(event)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, max(error.position, 0)) + 1
        what = "contains a control character"
        raise _unreadable(file, line, what, "remove it") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = mark.line + 1 if mark is not None else 1
        raise _unreadable(file, line, *_not_yaml(error, text)) from None
    if builder.root is None or builder.root.value is None:
        raise _unreadable(file, 1, "is empty", if_empty)
    return Document(file, builder.root, tuple(builder.problems))


def _not_yaml(error: yaml.MarkedYAMLError, text: str) -> tuple[str, str]:
    """Return the error and the fix for a text that the parser refuses.

    YAML indents with spaces alone (YAML 1.2.2, 6.1), and reserves @ and ` (5.3).
    """
    mark = error.problem_mark
    lines = text.split("\n")
    line = lines[mark.line] if mark is not None and mark.line < len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "is indented with a tab", "indent with spaces: YAML does not allow tabs there"
    start = line[mark.column : mark.column + 1] if mark is not None else ""
    if start and start in "@`%":
        return f"has a value that begins with {start}", "put the value in quotes"
    what = f"is not YAML: {error.problem or 'unreadable'}"
    return what, "look at indentation, quotes and brackets here and just above"


def _unreadable(file: str, line: int, what: str, fix: str) -> ConfigurationError:
    return ConfigurationError([Problem(file, line, "", what, fix)])


@dataclass(slots=True)
class _Open:
    """A mapping or list that is not complete yet; `key` waits for its value."""

    node: Node
    anchor: str | None
    key: tuple[str, int] | None = None


@dataclass(slots=True)
class _Builder:
    """Puts the parser's events together without recursion, so depth costs no stack."""

    file: str
    root: Node | None = None
    problems: list[Problem] = field(default_factory=list)
    _open: list[_Open] = field(default_factory=list)
    _anchors: dict[str, Node] = field(default_factory=dict)
    _documents: int = 0

    def take(self, event: yaml.Event) -> None:
        """Process one parser event. Raises ConfigurationError if it is not supported."""
        line = event.start_mark.line + 1 if event.start_mark is not None else 1
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise _unreadable(
                    self.file, line, "contains a second document", "keep one document"
                )
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event.anchor, line)
        elif isinstance(event, yaml.ScalarEvent):
            self._scalar(event, line)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._start(event, line)
        elif isinstance(event, yaml.CollectionEndEvent):
            opened = self._open.pop()
            if opened.anchor is not None:
                self._anchors[opened.anchor] = opened.node
            self._add(opened.node, line)

    def _alias(self, anchor: str | None, line: int) -> None:
        target = self._anchors.get(anchor or "")
        if target is None:
            what = "an alias has no anchor above it"
            raise _unreadable(self.file, line, what, "write the value out")
        self._add(Node(line, target.value, target.size, target.height), line)

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        if event.tag not in _TEXT_TAGS:
            raise _unreadable(
                self.file, line, "has a tag, which is not supported", "remove the tag"
            )
        opened = self._open[-1] if self._open else None
        if opened and isinstance(opened.node.value, dict) and opened.key is None:
            self._key(opened, event.value, line)
            return
        plain = event.tag is None and event.implicit[0]
        node = Node(line, _resolve(event.value) if plain else event.value)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        self._add(node, line)

    def _key(self, opened: _Open, key: str, line: int) -> None:
        if key == "<<":
            what = "merge keys (<<) are not supported"
            raise _unreadable(self.file, line, what, "write the keys out, or alias whole values")
        opened.key = (key, line)

    def _start(self, event: yaml.CollectionStartEvent, line: int) -> None:
        if event.tag is not None:
            raise _unreadable(
                self.file, line, "has a tag, which is not supported", "remove the tag"
            )
        opened = self._open[-1] if self._open else None
        if opened and isinstance(opened.node.value, dict) and opened.key is None:
            raise _unreadable(
                self.file, line, "has a key that is not plain text", "write a plain key"
            )
        self._check_depth(len(self._open) + 1, line)
        mapping = isinstance(event, yaml.MappingStartEvent)
        self._open.append(_Open(Node(line, {} if mapping else []), event.anchor))

    def _add(self, node: Node, line: int) -> None:
        if not self._open:
            self.root = node
            return
        opened = self._open[-1]
        parent = opened.node
        parent.size += node.size
        parent.height = max(parent.height, node.height + 1)
        self._check_depth(len(self._open) + node.height, line)
        if parent.size > MAX_NODES:
            what = f"has more than {MAX_NODES} values after aliases are expanded"
            raise _unreadable(self.file, line, what, "use fewer aliases")
        if isinstance(parent.value, list):
            parent.value.append(node)
        elif isinstance(parent.value, dict) and opened.key is not None:
            key, node.line = opened.key
            opened.key = None
            self._pair(parent.value, key, node)

    def _check_depth(self, depth: int, line: int) -> None:
        if depth > MAX_DEPTH:
            what = f"is nested deeper than {MAX_DEPTH} levels"
            raise _unreadable(self.file, line, what, "flatten it")

    def _pair(self, mapping: dict[str, Node], key: str, node: Node) -> None:
        if key not in mapping:
            mapping[key] = node
            return
        what = f"is repeated; the first one is on line {mapping[key].line}"
        key_path = dotted((*self._path(), key))
        fix = "rename or remove one of them"
        self.problems.append(Problem(self.file, node.line, key_path, what, fix))

    def _path(self) -> KeyPath:
        path: list[str | int] = []
        for opened in self._open[:-1]:
            value = opened.node.value
            if opened.key is not None:
                path.append(opened.key[0])
            elif isinstance(value, list):
                path.append(len(value))
        return tuple(path)


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
