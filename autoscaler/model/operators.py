"""The operators of a fleet: who they are, and what their tokens allow."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

OperatorName = NewType("OperatorName", str)
"""The name of a token, which the history shows beside each request of its owner."""


class Role(StrEnum):
    """What a token allows. `operate` includes `read`."""

    READ = "read"
    OPERATE = "operate"


@dataclass(frozen=True, slots=True)
class Operator:
    """The owner of a token."""

    name: OperatorName
    role: Role

    @property
    def may_operate(self) -> bool:
        """Return True if the owner may change the fleet."""
        return self.role is Role.OPERATE
