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
    """What AWS decides about one request and one resource.

    `context` has the condition keys of the request; a multivalued key has a tuple. `principal` is the ARN that
    a resource's policy must name: that of the caller's account, which stands for all identities in it.
    """

    action: str
    resource: str
    context: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    principal: str = ""

    def __str__(self) -> str:
        return f"{self.action} on {self.resource} with {dict(self.context)}"


def allows(policies: Iterable[Mapping[str, Any]], asked: Authorization) -> bool:
    """Return whether these policies allow a request: one allows it, and none denies it.

    They are all those of an identity, or the one of a resource, whose statements have a principal.

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
    unknown = set(statement) - {"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}
    if unknown or statement["Effect"] not in ("Allow", "Deny"):
        raise ValueError(f"unknown elements {unknown} or effect in {statement}")
    return (
        _is_for(statement.get("Principal"), asked.principal)
        # Actions ignore case; ARNs do not.
        and any(_like(asked.action.lower(), one.lower()) for one in _listed(statement["Action"]))
        and any(_like(asked.resource, one) for one in _listed(statement["Resource"]))
        and all(
            _holds(operator, key, _listed(values), asked.context)
            for operator, keys in statement.get("Condition", {}).items()
            for key, values in keys.items()
        )
    )


def _is_for(principal: Mapping[str, Any] | None, caller: str) -> bool:
    """Return whether a statement is for this caller. Statements of identities have no principal."""
    if principal is None:
        return not caller
    if set(principal) != {"AWS"}:
        raise ValueError(f"unknown principal {principal}")
    return caller in _listed(principal["AWS"])


def _holds(
    operator: str,
    key: str,
    wanted: Sequence[str],
    context: Mapping[str, str | tuple[str, ...]],
) -> bool:
    # Names of condition keys ignore case, but not the key of a tag within them.
    found = {_folded(name): value for name, value in context.items()}.get(_folded(key))
    if operator == "Null":
        return wanted == [str(found is None).lower()]
    every, _, single = operator.rpartition(":")
    optional, single = single.endswith("IfExists"), single.removesuffix("IfExists")
    if single not in _OPERATORS or every not in ("", "ForAllValues"):
        raise ValueError(f"unknown condition operator {operator}")
    if every:
        # It also holds for a key without values, and for one that the request does not have.
        values = (found,) if isinstance(found, str) else found or ()
        return all(any(_OPERATORS[single](one, what) for what in wanted) for one in values)
    if optional and found is None:
        return True
    # Otherwise a condition on a missing key is false, and so is one that expects a single value.
    return isinstance(found, str) and any(_OPERATORS[single](found, one) for one in wanted)


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
