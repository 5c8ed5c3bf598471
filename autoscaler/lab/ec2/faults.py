"""What is made to go wrong on purpose: capacity, refusals, failing calls, lost answers, leaks.

Decides how much a pool gives and which calls fail. Never fails by itself: without a word from
the outside everything is plenty and works.
"""

from dataclasses import dataclass

from autoscaler.lab.ec2.instances import Instance, Pool
from autoscaler.lab.ec2.query import Ec2Error

NO_CAPACITY = "InsufficientInstanceCapacity"


@dataclass(slots=True)
class _FailingCalls:
    code: str
    message: str
    left: int


class Faults:
    """Switches, all to be turned at any time."""

    def __init__(self) -> None:
        self._capacity: dict[Pool, int] = {}
        self._refusals: dict[Pool, tuple[str, str]] = {}
        self._failing: dict[str, _FailingCalls] = {}
        self._losing: dict[str, int] = {}
        self._leaking: set[str] = set()
        self._leak_next = 0

    def set_capacity(self, pool: Pool, machines: int | None) -> None:
        """Let a pool hold so many instances at once; None is no bound. Ends none that are there."""
        if machines is None:
            self._capacity.pop(pool, None)
        else:
            self._capacity[pool] = machines

    def refuse(self, pool: Pool, code: str | None, message: str = "Refused by the lab.") -> None:
        """Answer launches in this pool with an error, such as VcpuLimitExceeded; None ends it."""
        if code is None:
            self._refusals.pop(pool, None)
        else:
            self._refusals[pool] = (code, message)

    def fail_calls(
        self, action: str, code: str, calls: int, message: str = "Refused by the lab."
    ) -> None:
        """Answer the next calls of an action, such as CreateFleet, with an error; 0 ends it."""
        self._failing[action] = _FailingCalls(code, message, calls)

    def lose_answers(self, action: str, calls: int) -> None:
        """Carry out the next calls of an action, and break the connection instead of answering."""
        self._losing[action] = calls

    def leak(self, instance_id: str) -> None:
        """From now on nothing ends this instance, though every attempt is answered as if it did."""
        self._leaking.add(instance_id)

    def leak_next(self, machines: int) -> None:
        """Leak the next instances that are launched."""
        self._leak_next = machines

    def room(self, pool: Pool, taken: int) -> int | None:
        """How many more a pool has; None is no bound."""
        bound = self._capacity.get(pool)
        return None if bound is None else max(0, bound - taken)

    def refusal(self, pool: Pool) -> tuple[str, str] | None:
        """The code and message that a pool's launches are refused with."""
        return self._refusals.get(pool)

    def check_call(self, action: str) -> None:
        """Raise Ec2Error if this call of the action is one to fail."""
        failing = self._failing.get(action)
        if failing is not None and failing.left > 0:
            failing.left -= 1
            raise Ec2Error(failing.code, failing.message)

    def loses_answer(self, action: str) -> bool:
        """Whether this call's answer is one to lose."""
        left = self._losing.get(action, 0)
        if left > 0:
            self._losing[action] = left - 1
        return left > 0

    def launched(self, instance: Instance) -> None:
        """Take note of a launch, for `leak_next`."""
        if self._leak_next > 0:
            self._leak_next -= 1
            self._leaking.add(instance.id)

    def leaks(self, instance: Instance) -> bool:
        """Whether attempts to end it are ignored."""
        return instance.id in self._leaking
