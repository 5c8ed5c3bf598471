"""Answers DescribeInstances: paging, filters and the XML of an instance."""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from autoscaler.model.catalogue import CapacityType
from lab.ec2.filters import Filters
from lab.ec2.instances import Instance, Instances, InstanceState
from lab.ec2.lifecycle import Lifecycle
from lab.ec2.paging import page_of
from lab.ec2.query import Ec2Error, Tree, answer, element, tag_set, timestamp
from lab.ec2.quotas import vcpus
from lab.ec2.reservations import ONLY

INSTANCE_ID_LENGTHS = (10, 19)
FILTERS = frozenset(
    {
        "architecture",
        "availability-zone",
        "client-token",
        "image-id",
        "instance-id",
        "instance-lifecycle",
        "instance-state-code",
        "instance-state-name",
        "instance-type",
        "private-ip-address",
        "reservation-id",
        "subnet-id",
        "vpc-id",
    }
)


def found(instances: Instances, lifecycle: Lifecycle, ids: Iterable[str]) -> list[Instance]:
    """Return the instances with these ids. Raises Ec2Error that names each unknown id."""
    chosen, unknown = [], []
    for instance_id in ids:
        if not instance_id.startswith("i-") or len(instance_id) not in INSTANCE_ID_LENGTHS:
            raise Ec2Error("InvalidInstanceID.Malformed", f'Invalid id: "{instance_id[:60]}"')
        instance = instances.find(instance_id)
        if instance is None or not lifecycle.listed(instance):
            unknown.append(instance_id)
        else:
            chosen.append(instance)
    if unknown:
        named = ", ".join(unknown)
        text = f"ID '{named}' does" if len(unknown) == 1 else f"IDs '{named}' do"
        raise Ec2Error("InvalidInstanceID.NotFound", f"The instance {text} not exist")
    return chosen


class InstanceList:
    """Answers DescribeInstances for one account."""

    def __init__(self, instances: Instances, lifecycle: Lifecycle, account: str) -> None:
        self._instances = instances
        self._lifecycle = lifecycle
        self._account = account
        self._rendered: dict[str, tuple[InstanceState, dict[str, str], str]] = {}

    def describe(self, params: Tree) -> str:
        """Answer DescribeInstances. Raises Ec2Error."""
        ids, filters = params.texts("InstanceId"), Filters(params, FILTERS)
        if ids and "MaxResults" in params:
            raise Ec2Error(
                "InvalidParameterCombination",
                "The parameter instancesSet cannot be used with the parameter maxResults",
            )
        everything = (
            found(self._instances, self._lifecycle, ids)
            if ids
            else [one for one in self._instances if self._lifecycle.listed(one)]
        )
        chosen = [one for one in everything if filters.admit(_attributes(one), one.tags)]
        page, more = page_of(params, chosen, lambda one: one.number)
        return answer("DescribeInstances", self.reservations(page) + more)

    def reservations(self, instances: list[Instance]) -> str:
        """Return the `reservationSet` of instances in launch order."""
        items = "".join(
            f"<item>{self.reservation(list(group))}</item>"
            for _, group in groupby(instances, key=lambda one: one.reservation)
        )
        return f"<reservationSet>{items}</reservationSet>"

    def reservation(self, instances: list[Instance]) -> str:
        """Return one reservation's content, which RunInstances also answers."""
        return (
            element("reservationId", instances[0].reservation)
            + element("ownerId", self._account)
            + "<groupSet></groupSet>"
            + f"<instancesSet>{''.join(self._item(one) for one in instances)}</instancesSet>"
        )

    def _item(self, one: Instance) -> str:
        """Render an instance once per state, because describing thousands must not block the lab."""
        kept = self._rendered.get(one.id)
        if kept is None or kept[0] is not one.state or kept[1] is not one.tags:
            kept = (one.state, one.tags, element("item", _shown(one, self._account)))
            self._rendered[one.id] = kept
        return kept[2]


def state_shown(state: InstanceState) -> dict[str, Any]:
    """Return a state as EC2 writes it."""
    return {"code": state.code, "name": state.value}


def _attributes(one: Instance) -> dict[str, str]:
    specification = one.specification
    return {
        "architecture": specification.image.architecture,
        "availability-zone": one.zone,
        "client-token": one.client_token,
        "image-id": specification.image.id,
        "instance-id": one.id,
        "instance-lifecycle": _lifecycle(one) or "",
        "instance-state-code": str(one.state.code),
        "instance-state-name": one.state.value,
        "instance-type": one.instance_type,
        "private-ip-address": one.private_ip,
        "reservation-id": one.reservation,
        "subnet-id": specification.subnet.id,
        "vpc-id": specification.subnet.vpc,
    }


def _shown(one: Instance, account: str) -> dict[str, Any]:
    specification = one.specification
    image = specification.image
    spot = one.capacity_type is CapacityType.SPOT
    return {
        "instanceId": one.id,
        "imageId": image.id,
        "instanceState": state_shown(one.state),
        "dnsName": "",
        "reason": one.transition,
        "amiLaunchIndex": 0,
        "productCodes": [],
        "instanceType": one.instance_type,
        "keyName": specification.key_name or None,
        "launchTime": timestamp(one.launched_at),
        "placement": {
            "availabilityZone": one.zone,
            "groupName": specification.placement_group,
            "tenancy": "default",
        },
        "platform": "windows" if image.platform == "windows" else None,
        "platformDetails": "Windows" if image.platform == "windows" else "Linux/UNIX",
        "monitoring": {"state": "disabled"},
        "stateReason": one.reason and {"code": one.reason[0], "message": one.reason[1]},
        "architecture": image.architecture,
        "rootDeviceType": "ebs",
        "rootDeviceName": image.root_device,
        "virtualizationType": "hvm",
        "instanceLifecycle": _lifecycle(one),
        "spotInstanceRequestId": f"sir-{one.id[-8:]}" if spot else None,
        "clientToken": one.client_token,
        "tagSet": tag_set(one.tags),
        "groupSet": [
            {"groupId": group, "groupName": group} for group in specification.security_groups
        ],
        "hypervisor": "xen",
        "iamInstanceProfile": _profile_shown(specification.instance_profile, account),
        "cpuOptions": _processor_shown(one),
        "ebsOptimized": specification.ebs_optimized,
        "enaSupport": True,
        "metadataOptions": _metadata_shown(specification.metadata_options),
        **_reserved(specification.reservation),
        **_attached(one),
    }


def _lifecycle(one: Instance) -> str | None:
    """Return EC2's word, which an on-demand instance has none of."""
    return None if one.capacity_type is CapacityType.ON_DEMAND else one.capacity_type.value


def _reserved(reservation: str) -> dict[str, Any]:
    if not reservation:
        return {"capacityReservationSpecification": {"capacityReservationPreference": "open"}}
    return {
        "capacityReservationId": reservation,
        "capacityReservationSpecification": {
            "capacityReservationPreference": ONLY,
            "capacityReservationTarget": {"capacityReservationId": reservation},
        },
    }


def _attached(one: Instance) -> dict[str, Any]:
    """Return the addresses and the disk, which an instance has until it is terminated."""
    if one.state is InstanceState.TERMINATED:
        return {"privateDnsName": "", "blockDeviceMapping": []}
    return {
        "privateDnsName": f"ip-{one.private_ip.replace('.', '-')}.ec2.internal",
        "privateIpAddress": one.private_ip,
        "ipAddress": one.public_ip or None,
        "networkInterfaceSet": [
            {
                "subnetId": one.specification.subnet.id,
                "interfaceType": interface.kind,
                "attachment": {
                    "deviceIndex": interface.device,
                    "networkCardIndex": interface.card,
                },
            }
            for interface in one.specification.interfaces
        ],
        "subnetId": one.specification.subnet.id,
        "vpcId": one.specification.subnet.vpc,
        "blockDeviceMapping": [_disk_shown(one)],
    }


def _metadata_shown(options: Mapping[str, str]) -> dict[str, str]:
    return {
        "state": "applied",
        "httpTokens": options.get("httpTokens", "required"),
        "httpPutResponseHopLimit": options.get("httpPutResponseHopLimit", "1"),
        "httpEndpoint": options.get("httpEndpoint", "enabled"),
    }


def _processor_shown(one: Instance) -> dict[str, int] | None:
    """Return cores and threads: two threads per core except on arm64; None for an unknown size."""
    count = vcpus(one.instance_type)
    if count is None:
        return None
    threads = 1 if one.specification.image.architecture == "arm64" else 2
    return {"coreCount": count // threads, "threadsPerCore": threads}


def _profile_shown(profile: str, account: str) -> dict[str, str] | None:
    if not profile:
        return None
    named = profile.startswith("arn:")
    arn = profile if named else f"arn:aws:iam::{account}:instance-profile/{profile}"
    return {"arn": arn, "id": "AIPALAB"}


def _disk_shown(one: Instance) -> dict[str, Any]:
    return {
        "deviceName": one.specification.image.root_device,
        "ebs": {
            "volumeId": one.volume_id,
            "status": "attached",
            "attachTime": timestamp(one.launched_at),
            "deleteOnTermination": one.specification.disk.delete_with_instance,
        },
    }
