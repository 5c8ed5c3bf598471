"""Required node affinities, and whether a node with `LABELS` matches them.

The tests in tests/cluster ask the real API server and scheduler about the same ones.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

LABELS: Mapping[str, str] = MappingProxyType(
    {"rack": "r1", "empty": "", "size": "8", "huge": str(2**64), "odd": "1_000"}
)


def required(*terms: Mapping[str, Any]) -> dict[str, Any]:
    """The `spec.affinity` of a pod that needs a node of one of these terms."""
    selector = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def expressions(*found: tuple[str, str, list[str]]) -> dict[str, Any]:
    """A term with expressions about labels: key, operator and values."""
    return {
        "matchExpressions": [
            {"key": key, "operator": operator, **({"values": values} if values else {})}
            for key, operator, values in found
        ]
    }


def label(key: str, operator: str, *values: str) -> dict[str, Any]:
    return required(expressions((key, operator, list(values))))


def name(operator: str, *values: str) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": operator, "values": list(values)}
    return required({"matchFields": [field]})


def cases(node: str) -> list[tuple[dict[str, Any], bool]]:
    """The affinities, for a node with this name."""
    rack, other = ("rack", "In", ["r1"]), ("rack", "In", ["r2"])
    return [
        (label("rack", "In", "r0", "r1"), True),
        (label("rack", "In", "r2"), False),
        (label("none", "In", ""), False),
        (label("rack", "In"), False),
        (label("rack", "NotIn", "r2"), True),
        (label("rack", "NotIn", "r1", "r2"), False),
        (label("none", "NotIn", "r1"), True),
        (label("rack", "NotIn"), False),
        (label("rack", "Exists"), True),
        (label("empty", "Exists"), True),
        (label("none", "Exists"), False),
        (label("rack", "Exists", "r1"), False),
        (label("none", "DoesNotExist"), True),
        (label("rack", "DoesNotExist"), False),
        (label("none", "DoesNotExist", "r1"), False),
        (label("size", "Gt", "7"), True),
        (label("size", "Gt", "8"), False),
        (label("size", "Gt", "007"), True),
        (label("size", "Lt", "9"), True),
        (label("size", "Lt", "8"), False),
        (label("none", "Lt", "8"), False),
        (label("rack", "Gt", "0"), False),
        (label("size", "Gt", "6", "7"), False),
        (label("size", "Lt", "1_000"), False),
        (label("size", "Lt", str(2**64)), False),
        (label("size", "Lt", str(2**63 - 1)), True),
        (label("odd", "Gt", "5"), False),
        (label("huge", "Gt", "5"), False),
        (label("size", "Gt", "-1"), False),
        (label("rack", "NotIn", "not a label's value"), False),
        (label("rack", "Is", "r1"), False),
        (name("In", node), True),
        (name("In", "another"), False),
        (name("NotIn", "another"), True),
        (name("NotIn", node), False),
        (name("In", node, "another"), False),
        (name("Exists", node), False),
        (required(), False),
        (required({}), False),
        (required({}, expressions(rack)), True),
        (required(expressions(other), expressions(rack)), True),
        (required(expressions(rack, ("size", "Gt", ["8"]))), False),
        (required(expressions(rack) | name_field(node)), True),
        (required(expressions(other) | name_field(node)), False),
        (required(expressions(rack) | name_field("another")), False),
        (preferred(other), True),
        ({}, True),
    ]


def name_field(node: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}


def preferred(expression: tuple[str, str, list[str]]) -> dict[str, Any]:
    """An affinity that only prefers nodes."""
    term = {"weight": 1, "preference": expressions(expression)}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
