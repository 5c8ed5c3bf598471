"""Capacity reservations: what they have room for, what EC2 refuses, and DescribeCapacityReservations.

EC2's messages: hashicorp/terraform-provider-aws#35745 (a reservation that does not fit or is full),
terraform-aws-modules/terraform-aws-ec2-instance#404 (a capacity block without its market type). A spot
launch that names one: no report of EC2's words was found.
"""

from collections.abc import Callable
from dataclasses import dataclass

from autoscaler.model.catalogue import CapacityType
from lab.ec2.faults import NO_CAPACITY
from lab.ec2.filters import Filters
from lab.ec2.instances import TAKING_CAPACITY, Instances, LaunchSpecification
from lab.ec2.paging import page_of
from lab.ec2.query import Ec2Error, Tree, answer, element, timestamp

TAKEN_BACK = 1800.0
"""EC2 begins to terminate a block's machines this long before its end (EC2 User Guide, "Capacity Blocks")."""
ONLY = "capacity-reservations-only"
EXCEEDED = (
    "ReservationCapacityExceeded",
    "The requested reservation does not have sufficient compatible and available capacity for this "
    "request.",
)
NOT_STARTED = (
    "InvalidCapacityReservationState.PendingActivation",
    "Your Capacity Block is not active yet.",
)
WRONG_MARKET = (
    "The market type (purchasing) option is not valid. Choose a different market type and try again"
)


@dataclass(slots=True)
class Reservation:
    """One capacity reservation. Times are in Unix seconds of lab time.

    `in_other_accounts` is how many of its machines run in accounts that share it.
    """

    id: str
    instance_type: str
    zone: str
    machines: int
    platform: str
    created_at: float
    state: str = "active"
    ends_at: float | None = None
    kind: str = "default"
    in_other_accounts: int = 0


class Reservations:
    """The account's capacity reservations. They count against no quota of the lab."""

    def __init__(self, instances: Instances, account: str, now: Callable[[], float]) -> None:
        self._instances = instances
        self._account = account
        self._now = now
        self._by_id: dict[str, Reservation] = {}

    def add(
        self,
        name: str,
        instance_type: str,
        zone: str,
        machines: int,
        platform: str = "Linux/UNIX",
    ) -> Reservation:
        """Create a targeted reservation with this id."""
        made = Reservation(name, instance_type, zone, machines, platform, self._now())
        self._by_id[name] = made
        return made

    def add_block(
        self, name: str, instance_type: str, zone: str, machines: int, ends_at: float
    ) -> Reservation:
        """Create a capacity block with this id, which has started."""
        made = self.add(name, instance_type, zone, machines)
        made.kind, made.ends_at = CapacityType.CAPACITY_BLOCK.value, ends_at
        return made

    def check(self, name: str, capacity_type: CapacityType) -> None:
        """Raise Ec2Error if EC2 refuses a launch that names this reservation; an empty name is none."""
        if name and name not in self._by_id:
            text = f"The capacity reservation ID '{name}' does not exist"
            raise Ec2Error("InvalidCapacityReservationId.NotFound", text)
        is_block = bool(name) and self._by_id[name].kind == CapacityType.CAPACITY_BLOCK
        if is_block != (capacity_type is CapacityType.CAPACITY_BLOCK):
            raise Ec2Error("InvalidParameterValue", WRONG_MARKET)
        if name and capacity_type is CapacityType.SPOT:
            text = "Spot Instances cannot run in a Capacity Reservation."
            raise Ec2Error("InvalidParameterCombination", text)

    def room(self, wanted: LaunchSpecification) -> tuple[int, tuple[str, str]]:
        """Return how many more of these instances their reservation takes, and the error for any more."""
        held = self._by_id[wanted.reservation]
        if held.state == "scheduled":
            return 0, NOT_STARTED
        windows = held.platform.startswith("Windows"), wanted.image.platform == "windows"
        fits = (
            held.state == "active"
            and (held.instance_type, held.zone) == (wanted.instance_type, wanted.subnet.zone)
            and windows[0] == windows[1]
        )
        if held.kind == CapacityType.CAPACITY_BLOCK:
            # A fleet has its own words for a block: EC2 User Guide, "Launch instances into Capacity Blocks".
            over = held.ends_at is not None and self._now() >= held.ends_at - TAKEN_BACK
            return 0 if over or not fits else self.free(held), (NO_CAPACITY, EXCEEDED[1])
        return self.free(held) if fits else 0, EXCEEDED

    def free(self, one: Reservation) -> int:
        """Return the number of machines that a reservation has left."""
        taken = one.in_other_accounts + sum(
            each.specification.reservation == one.id and each.state in TAKING_CAPACITY
            for each in self._instances
        )
        return max(0, one.machines - taken)

    def describe(self, params: Tree) -> str:
        """Answer DescribeCapacityReservations. Raises Ec2Error."""
        filters = Filters(params, frozenset({"instance-type", "state", "availability-zone"}))
        chosen = [
            (number, one)
            for number, one in enumerate(self._by_id.values())
            if filters.admit(
                {
                    "instance-type": one.instance_type,
                    "state": one.state,
                    "availability-zone": one.zone,
                },
                {},
            )
        ]
        page, more = page_of(params, chosen, lambda numbered: numbered[0], 1)
        shown = [self._shown(one) for _, one in page]
        return answer(
            "DescribeCapacityReservations", element("capacityReservationSet", shown) + more
        )

    def _shown(self, one: Reservation) -> dict[str, object]:
        return {
            "capacityReservationId": one.id,
            "ownerId": self._account,
            "instanceType": one.instance_type,
            "instancePlatform": one.platform,
            "availabilityZone": one.zone,
            "tenancy": "default",
            "totalInstanceCount": one.machines,
            "availableInstanceCount": self.free(one),
            "ebsOptimized": False,
            "state": one.state,
            "startDate": timestamp(one.created_at),
            "createDate": timestamp(one.created_at),
            "endDateType": "unlimited" if one.ends_at is None else "limited",
            "endDate": None if one.ends_at is None else timestamp(one.ends_at),
            "instanceMatchCriteria": "targeted",
            "reservationType": one.kind,
        }


def read_target(said: Tree) -> str:
    """Return the id in a CapacityReservationSpecification; empty for none. Raises Ec2Error.

    The lab knows launches into one reservation and nowhere else, and launches that name none.
    """
    target = said.structure("CapacityReservationTarget").text("CapacityReservationId")
    preference = said.text("CapacityReservationPreference", ONLY if target else "open")
    if preference != (ONLY if target else "open"):
        text = f"The lab does not do the preference {preference[:60]} here."
        raise Ec2Error("UnsupportedOperation", text)
    return target
