"""Says whether a node matches a pod's required node affinity, as the scheduler does. Pure.

Terms are alternatives. All expressions and fields of a term must match. A term that is empty, or that the
scheduler cannot parse, matches no node; the other terms still count.

Sources: k8s.io/component-helpers `scheduling/corev1/nodeaffinity/nodeaffinity.go`, and k8s.io/apimachinery
`pkg/labels/selector.go` (`NewRequirement`, `Requirement.Matches`).
"""

import re
from collections.abc import Mapping
from typing import Any

from autoscaler.providers.kubernetes.identity.ownership import metadata_of

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
"""A label's value (Kubernetes documentation, "Labels and Selectors": syntax)."""

_INTEGER = re.compile("[0-9]{1,63}")
"""What Go's `strconv.ParseInt(text, 10, 64)` reads in a label's value, which has no sign: only ASCII digits."""


def admits(affinity: object, node: Mapping[str, Any]) -> bool:
    """Return True if a node matches the required node affinity of a pod's `spec.affinity`, if there is one.

    Preferred terms never keep a pod from a node. What is malformed matches no node: the API server refuses it.
    """
    required = _child(_child(affinity, "nodeAffinity"), _REQUIRED)
    if required is None:
        return True
    terms = _child(required, "nodeSelectorTerms")
    return isinstance(terms, list) and any(_term_matches(term, node) for term in terms)


def _term_matches(term: object, node: Mapping[str, Any]) -> bool:
    expressions = _child(term, "matchExpressions") or []
    fields = _child(term, "matchFields") or []
    if not isinstance(expressions, list) or not isinstance(fields, list):
        return False
    if not expressions and not fields:
        return False
    labels, name = metadata_of(node, "labels"), node["metadata"]["name"]
    return all(_label_matches(one, labels) for one in expressions) and all(
        _field_matches(one, {"metadata.name": name}) for one in fields
    )


def _label_matches(expression: object, labels: Mapping[str, str]) -> bool:
    """Return whether labels match an expression. False if the scheduler cannot parse it."""
    key, values = _child(expression, "key"), _child(expression, "values") or []
    if not isinstance(key, str) or not isinstance(values, list):
        return False
    if not all(isinstance(one, str) and _VALUE.fullmatch(one) for one in values):
        return False
    has, value = key in labels, labels.get(key, "")
    match _child(expression, "operator"):
        case "In":
            return has and value in values
        case "NotIn":
            return bool(values) and not (has and value in values)
        case "Exists":
            return has and not values
        case "DoesNotExist":
            return not has and not values
        case "Gt" | "Lt" as operator if has and len(values) == 1:
            found, limit = _integer(value), _integer(values[0])
            if found is None or limit is None:
                return False
            return found > limit if operator == "Gt" else found < limit
    return False


def _field_matches(expression: object, fields: Mapping[str, str]) -> bool:
    """Return whether a node's fields match an expression, which has exactly one value."""
    values = _child(expression, "values")
    if not isinstance(values, list) or len(values) != 1:
        return False
    same = fields.get(str(_child(expression, "key")), "") == values[0]
    operator = _child(expression, "operator")
    return same if operator == "In" else operator == "NotIn" and not same


def _integer(text: str) -> int | None:
    """Return a 64-bit integer, or None if the text is none."""
    if not _INTEGER.fullmatch(text):
        return None
    found = int(text)
    return found if found < 2**63 else None


def _child(value: object, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None
