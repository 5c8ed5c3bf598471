"""Answers CreateFleet of type `instant`: one synchronous try that returns instances and errors.

The fleet tries pools in the order of the request, or by priority if the strategy says so; it does not
consider prices. It never retries, because an instant fleet ends with its answer.
"""

import secrets
from dataclasses import dataclass
from typing import Any

from autoscaler.model.catalogue import CapacityType
from lab.ec2.instances import Instance
from lab.ec2.launch_data import LaunchData, requested_tags
from lab.ec2.launching import Launcher, Order, capacity_type_of
from lab.ec2.query import Ec2Error, Tree, answer, element, whole_number
from lab.ec2.templates import Template

MAX_MACHINES = 10_000
NOT_SOLD = "InvalidFleetConfiguration"
"""Of one override, in an answer with HTTP 200 (hashicorp/packer#9946)."""
NOT_TRIED = (
    "UnfulfillableCapacity",
    "Unable to fulfill capacity due to your request configuration. Please adjust your request and "
    "try again.",
)
FLEET_PARAMETERS = frozenset(
    {
        "Action",
        "Version",
        "ClientToken",
        "DryRun",
        "LaunchTemplateConfigs",
        "OnDemandOptions",
        "SpotOptions",
        "TagSpecification",
        "TargetCapacitySpecification",
        "Type",
    }
)
OVERRIDE_PARAMETERS = frozenset(
    {"AvailabilityZone", "ImageId", "InstanceType", "MaxPrice", "Priority", "SubnetId"}
)
OPTIONS = {CapacityType.SPOT: "SpotOptions", CapacityType.ON_DEMAND: "OnDemandOptions"}


@dataclass(frozen=True, slots=True)
class _Candidate:
    """One override: what it launches, and how the answer describes it."""

    template: Template
    override: dict[str, str]
    data: LaunchData
    zone: str

    def shown(self) -> dict[str, Any]:
        """Return LaunchTemplateAndOverrides as the answer contains it."""
        names = {name: name[:1].lower() + name[1:] for name in self.override}
        overrides = {names[name]: value for name, value in self.override.items()}
        return {
            "launchTemplateSpecification": {
                "launchTemplateId": self.template.id,
                "version": self.template.version,
            },
            "overrides": overrides | {"availabilityZone": self.zone},
        }


class _Fleet:
    """One CreateFleet request while it is answered."""

    def __init__(self, launcher: Launcher, params: Tree) -> None:
        self.id = "fleet-" + secrets.token_hex(16)
        self._launcher = launcher
        self._params = params
        self._instances: list[dict[str, Any]] = []
        self._errors: list[dict[str, Any]] = []

    async def fill(
        self, candidates: list[_Candidate], capacity_type: CapacityType, wanted: int
    ) -> None:
        """Launch from one candidate after another until the target is reached."""
        most = self._launcher.faults.pools_tried
        for candidate in candidates:
            if wanted == 0:
                return
            if most is not None and len(self._errors) >= most:
                self._fail(candidate, capacity_type, NOT_TRIED)
                continue
            try:
                order = await self._order(candidate, capacity_type)
                self._launcher.sales.check(order.pool, NOT_SOLD)
                room, error_here = self._launcher.room(order, wanted)
            except Ec2Error as error:
                self._fail(candidate, capacity_type, (error.code, error.message))
                continue
            if error_here is not None:
                self._fail(candidate, capacity_type, error_here)
            if room > 0:
                self._add(candidate, order, self._launcher.launch(order, room))
                wanted -= room

    async def _order(self, candidate: _Candidate, capacity_type: CapacityType) -> Order:
        specification = await self._launcher.specify(candidate.data, capacity_type)
        system_tags = {
            "aws:ec2:fleet-id": self.id,
            "aws:ec2launchtemplate:id": candidate.template.id,
            "aws:ec2launchtemplate:version": candidate.template.version,
        }
        token = self._params.text("ClientToken")
        return Order(specification, capacity_type, token, system_tags)

    def _add(self, candidate: _Candidate, order: Order, instances: list[Instance]) -> None:
        specification = order.specification
        self._instances.append(
            {
                "launchTemplateAndOverrides": candidate.shown(),
                "lifecycle": order.capacity_type.value,
                "instanceIds": [instance.id for instance in instances],
                "instanceType": specification.instance_type,
                "platform": "windows" if specification.image.platform == "windows" else None,
                "availabilityZone": specification.subnet.zone,
                "subnetId": specification.subnet.id,
            }
        )

    def _fail(
        self, candidate: _Candidate, capacity_type: CapacityType, error: tuple[str, str]
    ) -> None:
        self._errors.append(
            {
                "launchTemplateAndOverrides": candidate.shown(),
                "lifecycle": capacity_type.value,
                "errorCode": error[0],
                "errorMessage": error[1],
            }
        )

    def answer(self) -> str:
        """Return the XML of the answer."""
        return answer(
            "CreateFleet",
            element("fleetId", self.id)
            + element("errorSet", self._errors)
            + element("fleetInstanceSet", self._instances),
        )


async def create_fleet(launcher: Launcher, params: Tree) -> str:
    """Answer CreateFleet. Raises Ec2Error if EC2 refuses the whole call."""
    _only(params, FLEET_PARAMETERS)
    if params.text("Type", "maintain") != "instant":
        raise Ec2Error("UnsupportedOperation", "The lab has instant fleets only.")
    targets = _targets(params.structure("TargetCapacitySpecification"))
    candidates = await _candidates(launcher, params)
    pools = {(candidate.data.instance_type, candidate.zone) for candidate in candidates}
    if len(pools) < len(candidates):
        raise Ec2Error(
            "InvalidFleetConfig", "The fleet configuration contains duplicate instance pools"
        )
    launcher.throttling.launch(sum(wanted for _, wanted in targets))
    fleet = _Fleet(launcher, params)
    for capacity_type, wanted in targets:
        ordered = _ordered(candidates, params.structure(OPTIONS.get(capacity_type, "")))
        await fleet.fill(ordered, capacity_type, wanted)
    return fleet.answer()


def _only(params: Tree, known: frozenset[str]) -> None:
    unknown = params.keys() - known
    if unknown:
        raise Ec2Error("UnsupportedOperation", f"The lab does not do {sorted(unknown)[0]}.")


def _targets(specification: Tree) -> list[tuple[CapacityType, int]]:
    total = whole_number(
        specification.text("TotalTargetCapacity"), "TotalTargetCapacity", 1, MAX_MACHINES
    )
    default = capacity_type_of(specification.text("DefaultTargetCapacityType", "on-demand"))
    wanted = {
        capacity_type: whole_number(specification.text(name, "0"), name, 0, total)
        for capacity_type, name in (
            (CapacityType.ON_DEMAND, "OnDemandTargetCapacity"),
            (CapacityType.SPOT, "SpotTargetCapacity"),
        )
    }
    if default is CapacityType.CAPACITY_BLOCK:
        if any(wanted.values()):
            # EC2 User Guide, "Launch instances into Capacity Blocks".
            text = "Another target capacity is not supported beside capacity-block"
            raise Ec2Error("InvalidFleetConfig", text)
        return [(default, total)]
    rest = total - sum(wanted.values())
    if rest < 0:
        raise Ec2Error("InvalidFleetConfig", "The target capacities exceed the total")
    wanted[default] += rest
    return list(wanted.items())


async def _candidates(launcher: Launcher, params: Tree) -> list[_Candidate]:
    fleet_tags = LaunchData(
        tags=requested_tags(params, "instance"), volume_tags=requested_tags(params, "volume")
    )
    candidates = []
    for config in params.structures("LaunchTemplateConfigs"):
        template = launcher.templates.find(config.structure("LaunchTemplateSpecification"))
        for override in config.structures("Overrides") or [Tree()]:
            _only(override, OVERRIDE_PARAMETERS)
            said = LaunchData(
                image=override.text("ImageId"),
                instance_type=override.text("InstanceType"),
                subnet=override.text("SubnetId"),
            )
            data = template.data.overlaid(said).overlaid(fleet_tags)
            zone = (await launcher.subnets.find(data.subnet)).zone
            candidates.append(_Candidate(template, override.plain(), data, zone))
    if not candidates:
        raise Ec2Error("MissingParameter", "The request must contain LaunchTemplateConfigs")
    return candidates


def _ordered(candidates: list[_Candidate], options: Tree) -> list[_Candidate]:
    _only(options, frozenset({"AllocationStrategy"}))
    if not options.text("AllocationStrategy").endswith("prioritized"):
        return candidates
    # The lower the number, the sooner; what has none comes last (EC2 API, FleetLaunchTemplateOverrides).
    return sorted(candidates, key=_priority)


def _priority(candidate: _Candidate) -> float:
    try:
        return float(candidate.override.get("Priority", "inf"))
    except ValueError as error:
        raise Ec2Error("InvalidParameterValue", "Priority must be a number.") from error
