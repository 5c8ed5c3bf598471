"""What is made to go wrong on purpose, all of it in one place.

Calls that fail or whose answers are lost; pools, subnets and roles that are not there; zones that do
not sell a type; machines that never run, leak, leave their disks or are not seen at first. Quotas
(`quotas`) and EC2's request limits (`throttling`) are not faults and stand beside it. Never fails by
itself: without a word from the outside everything is plenty and works.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from lab.ec2.instances import Instance, Pool
from lab.ec2.query import Ec2Error

Setting = TypeVar("Setting")
Witness = Callable[[Mapping[str, str]], None]
"""Is told a request's parameters."""
NO_CAPACITY = "InsufficientInstanceCapacity"
NO_SPOT_ROLE = (
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
    "The provided credentials do not have permission to create the service-linked role for "
    "EC2 Spot Instances.",
)


@dataclass(slots=True)
class _FailingCalls:
    code: str
    message: str
    left: int


def _nobody(_: Mapping[str, str]) -> None:
    """Does nothing."""


@dataclass(slots=True)
class _BrokenCalls:
    left: int
    silence: float
    then: Witness

    def strike(self, fields: Mapping[str, str], struck: Counter[str]) -> bool:
        """Whether this call is one of them; it is counted then, and the witness told."""
        if self.left <= 0:
            return False
        self.left -= 1
        struck[fields["Action"]] += 1
        self.then(fields)
        return True


@dataclass(slots=True)
class _FailingStarts:
    reason: tuple[str, str]
    pool: Pool | None
    left: int


@dataclass(frozen=True, slots=True)
class _ForAWhile(Generic[Setting]):
    """A setting and until when it holds, in Unix seconds of lab time."""

    value: Setting
    until: float


class Faults:
    """Switches, all to be turned at any time. Seconds are lab seconds; left out, for good.

    `lost` counts the answers that were lost and `cut` the calls that were never carried out, by
    action. `spot_role` is whether the account has the service-linked role that spot needs.
    `pools_tried` is how many pools without an instance a fleet tries before it labels the others
    UnfulfillableCapacity untried (measured, some three); None is all.
    `pending_late` is by how much the `pendingTime` of new machines' identity documents comes after the
    `LaunchTime` that they are listed with.
    `machines_unseen` and `templates_unseen` are how long new ones stay unknown to every other
    call (EC2 Developer Guide, "Eventual consistency").
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._capacity: dict[Pool, _ForAWhile[int]] = {}
        self._refusals: dict[Pool, _ForAWhile[tuple[str, str]]] = {}
        self._addresses: dict[str, int] = {}
        self._unsold: dict[str, set[str]] = {}
        self._failing: dict[str, _FailingCalls] = {}
        self._losing: dict[str, _BrokenCalls] = {}
        self._cutting: dict[str, _BrokenCalls] = {}
        self._empty_pages: Counter[str] = Counter()
        self._starts: list[_FailingStarts] = []
        self._doomed: dict[str, tuple[str, str]] = {}
        self._leaking: set[str] = set()
        self._leak_next = 0
        self._leave_disks = 0
        self.lost: Counter[str] = Counter()
        self.cut: Counter[str] = Counter()
        self.spot_role = True
        self.pools_tried: int | None = None
        self.machines_unseen = 0.0
        self.pending_late = 0.0
        self.templates_unseen = 0.0

    def set_capacity(self, pool: Pool, machines: int | None, seconds: float = float("inf")) -> None:
        """Let a pool hold so many instances at once; None is no bound. Ends none that are there."""
        if machines is None:
            self._capacity.pop(pool, None)
        else:
            self._capacity[pool] = _ForAWhile(machines, self._now() + seconds)

    def refuse(
        self,
        pool: Pool,
        code: str | None,
        message: str = "Refused by the lab.",
        seconds: float = float("inf"),
    ) -> None:
        """Answer launches in this pool with an error, such as Unsupported; None ends it."""
        if code is None:
            self._refusals.pop(pool, None)
        else:
            self._refusals[pool] = _ForAWhile((code, message), self._now() + seconds)

    def stop_selling(self, instance_type: str, *zones: str) -> None:
        """Sell a type in these zones no more, for good; no zones: sell it as AWS does again."""
        self._unsold[instance_type] = set(zones)

    def unsold(self, instance_type: str) -> set[str]:
        """The zones that do not sell a type by word of a test."""
        return self._unsold.get(instance_type, set())

    def set_addresses(self, subnet: str, addresses: int | None) -> None:
        """Let a subnet have so many addresses in all; None is what its CIDR block has."""
        if addresses is None:
            self._addresses.pop(subnet, None)
        else:
            self._addresses[subnet] = addresses

    def fail_calls(
        self, action: str, code: str, calls: int, message: str = "Refused by the lab."
    ) -> None:
        """Answer the next calls of an action, such as CreateFleet, with an error; 0 ends it."""
        self._failing[action] = _FailingCalls(code, message, calls)

    def lose_answers(
        self, action: str, calls: int, silence: float = 0.0, then: Witness = _nobody
    ) -> None:
        """Carry out the next calls of an action that can be, and break the connection instead of
        answering, after so many seconds in which nothing is said; 0 calls end it. `then` is called
        once such a call is carried out."""
        self._losing[action] = _BrokenCalls(calls, silence, then)

    def cut_calls(self, action: str, calls: int, then: Witness = _nobody) -> None:
        """Break the connection of the next calls of an action, and do nothing; 0 ends it.

        `then` is called when such a call has arrived."""
        self._cutting[action] = _BrokenCalls(calls, 0.0, then)

    def empty_pages(self, action: str, lists: int) -> None:
        """Begin the next lists of an action, such as DescribeInstances, with a page that has a token
        and no result (EC2 API Reference, DescribeInstances: NextToken); 0 ends it."""
        self._empty_pages[action] = lists

    def fail_starts(
        self,
        machines: int,
        code: str,
        message: str = "Failed by the lab.",
        pool: Pool | None = None,
    ) -> None:
        """Take the next machines (of this pool) from `pending` to `terminated`, with a StateReason
        such as Client.VolumeLimitExceeded; 0 ends every earlier order of this code."""
        self._starts = [one for one in self._starts if machines or one.reason[0] != code]
        if machines:
            self._starts.append(_FailingStarts((code, message), pool, machines))

    def leak(self, instance_id: str, *, leaks: bool = True) -> None:
        """Have nothing end an instance that is there, though every attempt is answered as if it did."""
        (self._leaking.add if leaks else self._leaking.discard)(instance_id)

    def leak_next(self, machines: int) -> None:
        """Have nothing end the next instances that are launched, though every attempt is answered
        as if it did."""
        self._leak_next = machines

    def leave_disks(self, machines: int) -> None:
        """Have the next instances that are launched leave their root volumes behind."""
        self._leave_disks = machines

    def room(self, pool: Pool, taken: int) -> int | None:
        """How many more a pool has; None is no bound."""
        bound = self._capacity.get(pool)
        if bound is None or bound.until <= self._now():
            return None
        return max(0, bound.value - taken)

    def refusal(self, pool: Pool) -> tuple[str, str] | None:
        """The code and message that a pool's launches are refused with."""
        refusal = self._refusals.get(pool)
        return None if refusal is None or refusal.until <= self._now() else refusal.value

    def addresses(self, subnet: str, in_block: int) -> int:
        """How many addresses a subnet has in all, whose CIDR block has `in_block`."""
        return self._addresses.get(subnet, in_block)

    def check_call(self, action: str) -> None:
        """Raise Ec2Error if this call of the action is one to fail."""
        failing = self._failing.get(action)
        if failing is not None and failing.left > 0:
            failing.left -= 1
            raise Ec2Error(failing.code, failing.message)

    def cuts_call(self, fields: Mapping[str, str]) -> bool:
        """Whether this call is one to cut off before anything is done."""
        cutting = self._cutting.get(fields["Action"])
        return cutting is not None and cutting.strike(fields, self.cut)

    def loses_answer(self, fields: Mapping[str, str]) -> float | None:
        """The silence before the connection breaks, if this call's answer is one to lose."""
        losing = self._losing.get(fields["Action"])
        if losing is None or not losing.strike(fields, self.lost):
            return None
        return losing.silence

    def begins_empty(self, fields: Mapping[str, str]) -> bool:
        """Whether this request begins a list whose first page is to be empty; it is counted then."""
        action = fields["Action"]
        if "NextToken" in fields or self._empty_pages[action] <= 0:
            return False
        self._empty_pages[action] -= 1
        return True

    def launched(self, instance: Instance) -> None:
        """Take note of a launch, and decide what is to go wrong with it."""
        instance.visible_at = self._now() + self.machines_unseen
        instance.pending_late = self.pending_late
        if self._leak_next > 0:
            self._leak_next -= 1
            self._leaking.add(instance.id)
        if self._leave_disks > 0:
            self._leave_disks -= 1
            instance.leaves_disk = True
        for order in self._starts:
            if order.left > 0 and order.pool in (None, instance.pool):
                order.left -= 1
                self._doomed[instance.id] = order.reason
                return

    def start_failure(self, instance: Instance) -> tuple[str, str] | None:
        """The StateReason with which this instance never runs."""
        return self._doomed.get(instance.id)

    def leaks(self, instance: Instance) -> bool:
        """Whether attempts to end it are ignored."""
        return instance.id in self._leaking
