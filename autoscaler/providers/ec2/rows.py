"""The small tuples that cross from the worker process: what EC2 said, without its wrapping.

Plain values of JSON. Nothing here asks or decides anything.
"""

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
    """One subnet, its zone, and how many addresses are free in it."""

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
    """One override that CreateFleet could not serve; type and zone are empty where it gave none."""

    code: str
    message: str
    instance_type: str
    zone: str


class InstanceRow(NamedTuple):
    """One machine as DescribeInstances lists it. `launch_time` is `YYYY-MM-DDTHH:MM:SSZ`.

    `ended_by` is the StateReason's code, `reason` its words; `vcpus` is 0 where EC2 does not say.
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
    """One message of an SQS queue. `receives` is how often it was given out, this time included."""

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
    """One spot price, with EC2's decimal text. It holds since `since`, in Unix seconds."""

    instance_type: str
    zone: str
    product: str
    dollars: str
    since: float
