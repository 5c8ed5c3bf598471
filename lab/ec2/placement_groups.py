"""Placement groups: what EC2 refuses of a launch into one.

Strategies of a type: DescribeInstanceTypes, which moto brings. A cluster group with instances has capacity in
their zone only, and a spread group holds seven instances a zone (aws/karpenter-provider-aws,
designs/placement-groups-support.md; the message from its `IsSpreadPlacementGroupLimitError`).
"""

from collections.abc import Iterator
from enum import StrEnum

from lab.ec2.faults import NO_CAPACITY
from lab.ec2.instance_types import described_type
from lab.ec2.instances import Instance, Instances, InstanceState, LaunchSpecification
from lab.ec2.query import Ec2Error

MOST_SPREAD = 7
ELSEWHERE = "The placement group has instances in another Availability Zone."
FULL = (
    "You've reached the limit of instances in this spread placement group. A spread placement group can have "
    "up to seven instances per Availability Zone."
)


class Strategy(StrEnum):
    """How a group places its instances."""

    CLUSTER = "cluster"
    PARTITION = "partition"
    SPREAD = "spread"


class PlacementGroups:
    """The account's placement groups by name."""

    def __init__(self, instances: Instances) -> None:
        self._instances = instances
        self._strategies: dict[str, Strategy] = {}

    def add(self, name: str, strategy: Strategy = Strategy.CLUSTER) -> None:
        """Create a group."""
        self._strategies[name] = strategy

    def check(self, name: str, instance_type: str) -> None:
        """Raise Ec2Error if EC2 refuses instances of this type in the group; an empty name is no group."""
        if not name:
            return
        if name not in self._strategies:
            text = f"The placement group '{name}' is unknown."
            raise Ec2Error("InvalidPlacementGroup.Unknown", text)
        supported = described_type(instance_type).get("PlacementGroupInfo", {})
        if self._strategies[name] not in supported.get("SupportedStrategies", ()):
            text = f"Placement groups may not be used with instances of type '{instance_type}'."
            raise Ec2Error("InvalidParameterCombination", text)

    def room(self, wanted: LaunchSpecification) -> tuple[int, tuple[str, str]] | None:
        """Return how many more instances the group takes, and the error for any more; None for no limit."""
        strategy = self._strategies.get(wanted.placement_group)
        zones = [one.zone for one in self._members(wanted.placement_group)] if strategy else []
        zone = wanted.subnet.zone
        if strategy is Strategy.CLUSTER and set(zones) - {zone}:
            return 0, (NO_CAPACITY, ELSEWHERE)
        if strategy is Strategy.SPREAD:
            return max(0, MOST_SPREAD - zones.count(zone)), (NO_CAPACITY, FULL)
        return None

    def _members(self, name: str) -> Iterator[Instance]:
        for one in self._instances:
            if (
                one.specification.placement_group == name
                and one.state is not InstanceState.TERMINATED
            ):
                yield one
