"""The tuples that the worker process returns: the used parts of AWS's answers, as JSON values."""

from typing import NamedTuple

MAX_TEXT = 500
"""Characters kept of any message from outside."""

MAX_BODY = 256 * 1024
"""Characters of an event in a queue: EventBridge's own limit."""


class ImageRow(NamedTuple):
    """One image. `created` is EC2's own ISO 8601 text; `root_gb` its root snapshot's size in GiB.

    `other_disks` are the image's further EBS volumes as (device, GiB).
    """

    id: str
    name: str
    created: str
    architecture: str
    root_device: str
    root_gb: int
    other_disks: tuple[tuple[str, int], ...] = ()


class SubnetRow(NamedTuple):
    """One subnet, its zone, and the number of its free addresses."""

    id: str
    zone: str
    free_addresses: int


class FleetInstanceRow(NamedTuple):
    """One machine in CreateFleet's answer."""

    id: str
    instance_type: str
    zone: str
    lifecycle: str


class FleetErrorRow(NamedTuple):
    """One error in CreateFleet's answer; type and zone are empty if EC2 names none."""

    code: str
    message: str
    instance_type: str
    zone: str


class InstanceRow(NamedTuple):
    """One machine as DescribeInstances lists it. `launch_time` is `YYYY-MM-DDTHH:MM:SSZ`.

    `ended_by` is the StateReason's code, `reason` its message; `vcpus` is 0 if EC2 reports none.
    `reservation` is the capacity reservation that its launch named.
    """

    id: str
    state: str
    instance_type: str
    zone: str
    lifecycle: str
    platform: str
    image: str
    launch_time: str
    reason: str
    installation: str
    sku: str
    launch_request: str
    fleet: str = ""
    tenancy: str = ""
    vcpus: int = 0
    ended_by: str = ""
    reservation: str = ""


class ReservationRow(NamedTuple):
    """One capacity reservation. `machines` is how many it reserves, whether they run or not.

    `platform` is AWS's word, such as `Linux/UNIX`. `kind` is `default` or `capacity-block`. `ends` is in Unix
    seconds, 0 if it has no end.
    """

    id: str
    instance_type: str
    zone: str
    platform: str
    state: str
    machines: int
    kind: str = "default"
    ends: float = 0.0


class QuotaRow(NamedTuple):
    """One quota's value in the account, by Service Quotas' code."""

    code: str
    value: float


class TemplateRow(NamedTuple):
    """One launch template. `created` is Unix seconds."""

    id: str
    name: str
    created: float


class MessageRow(NamedTuple):
    """One message of an SQS queue. `receives` counts how often it was received, with this time."""

    id: str
    receipt: str
    body: str
    receives: int


class PriceRow(NamedTuple):
    """One on-demand price of the price list. `os` is its operating system in lower case."""

    instance_type: str
    os: str
    dollars: float


class SpotPriceRow(NamedTuple):
    """One spot price, as EC2's decimal text, valid since `since` (Unix seconds)."""

    instance_type: str
    zone: str
    product: str
    dollars: str
    since: float
