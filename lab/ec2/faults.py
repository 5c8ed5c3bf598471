"""Faults that tests switch on in the lab's EC2. Without them everything works and capacity is unlimited.

Calls can fail or lose their answers. Pools, subnets and roles can be missing. Zones can stop selling a
type. Machines can fail to start, leak, leave their volumes, or stay invisible at first. Quotas are in
`quotas`, and EC2's request limits in `throttling`.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from lab.ec2.instances import Instance, Pool
from lab.ec2.query import Ec2Error

Setting = TypeVar("Setting")
Callback = Callable[[Mapping[str, str]], None]
"""Is called with a request's parameters."""
NO_CAPACITY = "InsufficientInstanceCapacity"
EXPIRED = ("RequestExpired", "Request has expired.")
"""EC2's answer to temporary credentials that have expired (EC2 API Reference, "Error codes")."""

EXPIRED_TOKEN = ("ExpiredTokenException", "The security token included in the request is expired")
"""The answer of AWS's JSON services to the same credentials (their API references, "Common errors")."""

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


def _ignore(_: Mapping[str, str]) -> None:
    """Does nothing."""


@dataclass(slots=True)
class _BrokenCalls:
    left: int
    silence: float
    then: Callback

    def applies(self, fields: Mapping[str, str], counts: Counter[str]) -> bool:
        """Return True if this call is to break. Then count it and call `then`."""
        if self.left <= 0:
            return False
        self.left -= 1
        counts[fields["Action"]] += 1
        self.then(fields)
        return True


@dataclass(slots=True)
class _FailingStarts:
    reason: tuple[str, str]
    pool: Pool | None
    left: int


@dataclass(frozen=True, slots=True)
class _ForAWhile(Generic[Setting]):
    """A setting and the lab time (Unix seconds) until which it holds."""

    value: Setting
    until: float


class Faults:
    """Switches for faults, which tests may change at any time. Durations are lab seconds, by default endless.

    `lost` counts the lost answers, and `cut` the calls that were not carried out, by action.
    `spot_role` is True if the account has the service-linked role for spot. `pools_tried` is the number
    of pools without capacity that a fleet tries before it reports UnfulfillableCapacity for the others
    (measured: about three); None is all. `pending_late` is the delay of `pendingTime` in identity
    documents after the listed `LaunchTime`. `machines_unseen` and `templates_unseen` are how long other
    calls do not see a new one (EC2 Developer Guide, "Eventual consistency"). While `credentials_expired`, all
    services of AWS refuse all calls.
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
        self.credentials_expired = False

    def set_capacity(self, pool: Pool, machines: int | None, seconds: float = float("inf")) -> None:
        """Limit the instances that a pool holds at once; None removes the limit. Terminates none."""
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
        """Answer launches in this pool with an error such as Unsupported; None ends the fault."""
        if code is None:
            self._refusals.pop(pool, None)
        else:
            self._refusals[pool] = _ForAWhile((code, message), self._now() + seconds)

    def stop_selling(self, instance_type: str, *zones: str) -> None:
        """Stop selling a type in these zones. Without zones, sell it again wherever AWS does."""
        self._unsold[instance_type] = set(zones)

    def unsold(self, instance_type: str) -> set[str]:
        """Return the zones in which a test stopped the sale of a type."""
        return self._unsold.get(instance_type, set())

    def set_addresses(self, subnet: str, addresses: int | None) -> None:
        """Set the number of addresses of a subnet; None is the number in its CIDR block."""
        if addresses is None:
            self._addresses.pop(subnet, None)
        else:
            self._addresses[subnet] = addresses

    def fail_calls(
        self, action: str, code: str, calls: int, message: str = "Refused by the lab."
    ) -> None:
        """Answer the next calls of an action, such as CreateFleet, with an error; 0 ends the fault."""
        self._failing[action] = _FailingCalls(code, message, calls)

    def lose_answers(
        self, action: str, calls: int, silence: float = 0.0, then: Callback = _ignore
    ) -> None:
        """Carry out the next calls of an action, but break the connection instead of answering.

        The connection breaks after `silence` lab seconds. `then` is called once such a call is carried
        out. 0 calls end the fault.
        """
        self._losing[action] = _BrokenCalls(calls, silence, then)

    def cut_calls(self, action: str, calls: int, then: Callback = _ignore) -> None:
        """Break the connection of the next calls of an action without carrying them out; 0 ends the fault.

        `then` is called when such a call arrives.
        """
        self._cutting[action] = _BrokenCalls(calls, 0.0, then)

    def empty_pages(self, action: str, lists: int) -> None:
        """Begin the next lists of an action, such as DescribeInstances, with an empty page and a token.

        0 ends the fault. Source: EC2 API Reference, DescribeInstances, NextToken.
        """
        self._empty_pages[action] = lists

    def fail_starts(
        self,
        machines: int,
        code: str,
        message: str = "Failed by the lab.",
        pool: Pool | None = None,
    ) -> None:
        """Take the next machines (of this pool) from `pending` to `terminated`.

        Their StateReason has this code, such as Client.VolumeLimitExceeded. 0 ends all faults with this
        code.
        """
        self._starts = [one for one in self._starts if machines or one.reason[0] != code]
        if machines:
            self._starts.append(_FailingStarts((code, message), pool, machines))

    def leak(self, instance_id: str, *, leaks: bool = True) -> None:
        """Answer calls that terminate this instance as if they worked, but never terminate it."""
        (self._leaking.add if leaks else self._leaking.discard)(instance_id)

    def leak_next(self, machines: int) -> None:
        """Never terminate the next launched instances, but answer as if they were terminated."""
        self._leak_next = machines

    def leave_disks(self, machines: int) -> None:
        """Keep the root volumes of the next launched instances after their termination."""
        self._leave_disks = machines

    def room(self, pool: Pool, taken: int) -> int | None:
        """Return how many more instances a pool can hold, or None if it has no limit."""
        bound = self._capacity.get(pool)
        if bound is None or bound.until <= self._now():
            return None
        return max(0, bound.value - taken)

    def refusal(self, pool: Pool) -> tuple[str, str] | None:
        """Return the code and message with which launches in a pool are refused, or None."""
        refusal = self._refusals.get(pool)
        return None if refusal is None or refusal.until <= self._now() else refusal.value

    def addresses(self, subnet: str, in_block: int) -> int:
        """Return the number of addresses of a subnet whose CIDR block has `in_block`."""
        return self._addresses.get(subnet, in_block)

    def check_call(self, action: str) -> None:
        """Raise Ec2Error if this call is to fail."""
        if self.credentials_expired:
            raise Ec2Error(*EXPIRED)
        failing = self._failing.get(action)
        if failing is not None and failing.left > 0:
            failing.left -= 1
            raise Ec2Error(failing.code, failing.message)

    def cuts_call(self, fields: Mapping[str, str]) -> bool:
        """Return True if this call's connection is to break before it is carried out."""
        cutting = self._cutting.get(fields["Action"])
        return cutting is not None and cutting.applies(fields, self.cut)

    def loses_answer(self, fields: Mapping[str, str]) -> float | None:
        """Return the lab seconds before the connection breaks, or None if the answer is not lost."""
        losing = self._losing.get(fields["Action"])
        if losing is None or not losing.applies(fields, self.lost):
            return None
        return losing.silence

    def begins_empty(self, fields: Mapping[str, str]) -> bool:
        """Return True, and count it, if this request begins a list whose first page is to be empty."""
        action = fields["Action"]
        if "NextToken" in fields or self._empty_pages[action] <= 0:
            return False
        self._empty_pages[action] -= 1
        return True

    def launched(self, instance: Instance) -> None:
        """Record a launch and decide which faults it meets."""
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
        """Return the StateReason with which this instance fails to start, or None."""
        return self._doomed.get(instance.id)

    def leaks(self, instance: Instance) -> bool:
        """Return True if calls that terminate this instance have no effect."""
        return instance.id in self._leaking
