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
    """An error of EC2. `status` is the HTTP status: EC2's for the code, 400 for most codes."""

    def __init__(self, code: str, message: str, status: int | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status or STATUS_OF_CODE.get(code, 400)

    def body(self) -> str:
        """Return the error in EC2's XML."""
        error = element("Errors", {"Error": {"Code": self.code, "Message": self.message}})
        return f"<Response>{error}<RequestID>{request_id()}</RequestID></Response>"


def request_id() -> str:
    """Return a new request ID."""
    return secrets.token_hex(16)


def parse_query(body: bytes) -> dict[str, str]:
    """Read a form. Raises Ec2Error if it is too large, not UTF-8 or has no action."""
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

    Every method raises Ec2Error if the parameter has another form.
    """

    def text(self, name: str, default: str = "") -> str:
        """Return a single value."""
        return self._checked(name, self.get(name, default), str)

    def texts(self, name: str) -> list[str]:
        """Return a list of values; empty if the parameter is missing."""
        return [self._checked(name, one, str) for one in self._listed(name)]

    def structure(self, name: str) -> "Tree":
        """Return a structure; empty if the parameter is missing."""
        return self._checked(name, self.get(name, Tree()), Tree)

    def structures(self, name: str) -> list["Tree"]:
        """Return a list of structures; empty if the parameter is missing."""
        return [self._checked(name, one, Tree) for one in self._listed(name)]

    def plain(self) -> dict[str, str]:
        """Return all parameters, which must be single values."""
        return {name: self.text(name) for name in self}

    def _listed(self, name: str) -> list[Any]:
        return self._checked(name, self.get(name, []), list)

    def _checked(self, name: str, value: Any, shape: type[Shape]) -> Shape:
        if not isinstance(value, shape):
            raise Ec2Error("InvalidParameterValue", f"{name} has the wrong shape.")
        return value


def nest(fields: Mapping[str, str]) -> Tree:
    """Turn `A.1.B=x` into `{"A": [{"B": "x"}]}`. Raises Ec2Error if names contradict each other."""
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
    """Return an XML element. Mappings become children, sequences become `item`s, `None` is omitted."""
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
    """Return a successful answer with these rendered elements."""
    return (
        f'<{action}Response xmlns="{NAMESPACE}"><requestId>{request_id()}</requestId>'
        f"{content}</{action}Response>"
    )


def tag_set(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags in EC2's XML."""
    return [{"key": key, "value": value} for key, value in tags.items()]


def timestamp(instant: float, fraction: str = ".000") -> str:
    """Return a time (Unix seconds) in EC2's format, in whole seconds."""
    moment = datetime.fromtimestamp(int(instant), UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + fraction + "Z"


def read_xml(body: bytes) -> Any:
    """Return an answer as nested dicts, lists (of `item`s) and text, without namespaces.

    Raises Ec2Error if the answer is an error.
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
