"""Evaluates IAM policies as AWS documents it, for the parts of the language that the project uses.

"Policy evaluation logic", "IAM JSON policy elements" and "Condition operators" of the IAM User Guide. Raises
ValueError for anything else, so that a policy cannot pass by being misunderstood.

No package does this: moto ignores conditions, and Principal Mapper has had no release since 2022.
"""

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Authorization:
    """What AWS decides about one request and one resource. `context` has the condition keys of the request."""

    action: str
    resource: str
    context: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.action} on {self.resource} with {dict(self.context)}"


def allows(policies: Iterable[Mapping[str, Any]], asked: Authorization) -> bool:
    """Return whether these identity-based policies allow a request: one allows it, and none denies it.

    Raises ValueError for an element that this module does not know.
    """
    effects = {
        statement["Effect"]
        for policy in policies
        for statement in policy["Statement"]
        if _applies(statement, asked)
    }
    return effects == {"Allow"}


def _applies(statement: Mapping[str, Any], asked: Authorization) -> bool:
    unknown = set(statement) - {"Sid", "Effect", "Action", "Resource", "Condition"}
    if unknown or statement["Effect"] not in ("Allow", "Deny"):
        raise ValueError(f"unknown elements {unknown} or effect in {statement}")
    return (
        # Actions ignore case; ARNs do not.
        any(_like(asked.action.lower(), one.lower()) for one in _listed(statement["Action"]))
        and any(_like(asked.resource, one) for one in _listed(statement["Resource"]))
        and all(
            _holds(operator, key, _listed(values), asked.context)
            for operator, keys in statement.get("Condition", {}).items()
            for key, values in keys.items()
        )
    )


def _holds(operator: str, key: str, wanted: Sequence[str], context: Mapping[str, str]) -> bool:
    if operator not in _OPERATORS:
        raise ValueError(f"unknown condition operator {operator}")
    # Names of condition keys ignore case, but not the key of a tag within them.
    found = {_folded(name): value for name, value in context.items()}.get(_folded(key))
    # A condition on a key that the request does not have is false.
    return found is not None and any(_OPERATORS[operator](found, one) for one in wanted)


def _folded(key: str) -> str:
    name, slash, tag = key.partition("/")
    return name.lower() + slash + tag


def _like(value: str, pattern: str) -> bool:
    """Match `*` and `?` alone; fnmatch would also read brackets."""
    escaped = re.sub(r"\[", "[[]", pattern)
    return fnmatch.fnmatchcase(value, escaped)


def _listed(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


_OPERATORS: Mapping[str, Callable[[str, str], bool]] = {
    "StringEquals": lambda found, wanted: found == wanted,
    "StringLike": _like,
    "ArnEquals": _like,
    "ArnLike": _like,
    "Bool": lambda found, wanted: found.lower() == wanted.lower(),
}
