"""EC2's wire format: reads query parameters and writes XML."""

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, TypeVar
from urllib.parse import parse_qsl
from xml.etree import ElementTree

NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15"
MAX_FIELDS = 20_000
MAX_DEPTH = 12
MAX_DIGITS = 6
STATUS_OF_CODE = {
    "DryRunOperation": 412,
    "InsufficientInstanceCapacity": 500,
    "InternalError": 500,
    "InternalFailure": 500,
    "RequestLimitExceeded": 503,
    "ServiceUnavailable": 503,
    "Unavailable": 503,
}
Shape = TypeVar("Shape")


class Ec2Error(Exception):
    """The answer is an error. `status` is the HTTP status: EC2's for the code, 400 for most."""

    def __init__(self, code: str, message: str, status: int | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status or STATUS_OF_CODE.get(code, 400)

    def body(self) -> str:
        """The error as EC2 writes it."""
        error = element("Errors", {"Error": {"Code": self.code, "Message": self.message}})
        return f"<Response>{error}<RequestID>{request_id()}</RequestID></Response>"


def request_id() -> str:
    """A fresh request id."""
    return secrets.token_hex(16)


def parse_query(body: bytes) -> dict[str, str]:
    """Read a form. Raises Ec2Error for anything but a bounded form in UTF-8 with an action."""
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, strict_parsing=True, max_num_fields=MAX_FIELDS
        )
    except ValueError as error:
        raise Ec2Error("MalformedQueryString", "The query string is malformed.") from error
    fields = dict(pairs)
    if "Action" not in fields:
        raise Ec2Error("MissingAction", "The request names no action.")
    return fields


class Tree(dict[str, Any]):
    """Parameters of an EC2 query: nested text, lists and structures.

    Every method raises Ec2Error if the request holds another shape.
    """

    def text(self, name: str, default: str = "") -> str:
        """A single value."""
        return self._checked(name, self.get(name, default), str)

    def texts(self, name: str) -> list[str]:
        """A list of values; empty if not there."""
        return [self._checked(name, one, str) for one in self._listed(name)]

    def structure(self, name: str) -> "Tree":
        """A structure; empty if not there."""
        return self._checked(name, self.get(name, Tree()), Tree)

    def structures(self, name: str) -> list["Tree"]:
        """A list of structures; empty if not there."""
        return [self._checked(name, one, Tree) for one in self._listed(name)]

    def plain(self) -> dict[str, str]:
        """All of it, where it holds values only."""
        return {name: self.text(name) for name in self}

    def _listed(self, name: str) -> list[Any]:
        return self._checked(name, self.get(name, []), list)

    def _checked(self, name: str, value: Any, shape: type[Shape]) -> Shape:
        if not isinstance(value, shape):
            raise Ec2Error("InvalidParameterValue", f"{name} has the wrong shape.")
        return value


def nest(fields: Mapping[str, str]) -> Tree:
    """Turn `A.1.B=x` into `{"A": [{"B": "x"}]}`. Raises Ec2Error where the names contradict."""
    root: dict[str, Any] = {}
    for name, value in fields.items():
        parts = name.split(".")
        if len(parts) > MAX_DEPTH:
            raise Ec2Error("MalformedQueryString", f"{name[:60]} is nested too deeply.")
        node: Any = root
        for part in parts[:-1]:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise Ec2Error("MalformedQueryString", f"{name[:60]} is both value and structure.")
        if parts[-1] in node:
            raise Ec2Error("MalformedQueryString", f"{name[:60]} is both value and structure.")
        node[parts[-1]] = value
    return Tree((name, _with_lists(node)) for name, node in root.items())


def _with_lists(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    if all(name.isascii() and name.isdecimal() and len(name) < MAX_DIGITS for name in node):
        return [_with_lists(node[name]) for name in sorted(node, key=int)]
    return Tree((name, _with_lists(child)) for name, child in node.items())


def whole_number(text: str, name: str, lowest: int, highest: int) -> int:
    """Read a bounded integer. Raises Ec2Error."""
    if not (text.isascii() and text.isdecimal()) or not lowest <= int(text[:12]) <= highest:
        raise Ec2Error(
            "InvalidParameterValue", f"{name} must be a number from {lowest} to {highest}."
        )
    return int(text)


def element(name: str, value: Any) -> str:
    """One XML element: mappings become children, sequences `item`s, `None` nothing at all."""
    if value is None:
        return ""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, Mapping):
        text = "".join(element(child, content) for child, content in value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str):
        text = "".join(element("item", content) for content in value)
    else:
        text = escape(str(value), quote=False)
    return f"<{name}>{text}</{name}>"


def answer(action: str, content: str) -> str:
    """A successful answer around rendered elements."""
    return (
        f'<{action}Response xmlns="{NAMESPACE}"><requestId>{request_id()}</requestId>'
        f"{content}</{action}Response>"
    )


def tag_set(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Tags as EC2 lists them."""
    return [{"key": key, "value": value} for key, value in tags.items()]


def timestamp(instant: float, fraction: str = ".000") -> str:
    """A moment (Unix seconds) as EC2 writes it, in whole seconds."""
    moment = datetime.fromtimestamp(int(instant), UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + fraction + "Z"


def read_xml(body: bytes) -> Any:
    """An answer as nested dicts, lists (of `item`s) and text, without namespaces.

    Raises Ec2Error when the answer is an error.
    """
    root = ElementTree.fromstring(body)  # noqa: S314  comes from our own moto process only
    tree = _plain(root)
    if root.tag.rpartition("}")[2] == "Response":
        error = tree["Errors"]["Error"]
        raise Ec2Error(error["Code"], error["Message"])
    return tree


def _plain(node: ElementTree.Element) -> Any:
    children = [(child.tag.rpartition("}")[2], _plain(child)) for child in node]
    if not children:
        return node.text or ""
    if all(name == "item" for name, _ in children):
        return [child for _, child in children]
    return dict(children)
