"""The EC2 actions that the front answers itself or refuses; moto answers all others.

moto does not know the lab's instances, so every action on instances is answered or refused here. moto
answers actions on networks, security groups and instance types.
"""

import base64
from collections.abc import Awaitable, Callable

from lab.ec2.describing import InstanceList, found, state_shown
from lab.ec2.fleets import create_fleet
from lab.ec2.idempotency import ClientTokens
from lab.ec2.image_making import ImageMaking
from lab.ec2.instances import InstanceState
from lab.ec2.launching import Launcher, run_instances
from lab.ec2.paging import empty_page
from lab.ec2.price_list import PriceList
from lab.ec2.query import Ec2Error, Tree, answer, element, nest, timestamp
from lab.ec2.volumes import Volumes

Handler = Callable[[dict[str, str], Tree], Awaitable[str]]
MAX_TERMINATED = 1000
MAX_CONSOLE = 64 * 1024
"""EC2 keeps this many bytes of console output, the last ones (EC2 User Guide, "Instance console output")."""
RESULTS = {
    "DescribeCapacityReservations": "capacityReservationSet",
    "DescribeInstances": "reservationSet",
    "DescribeLaunchTemplates": "launchTemplates",
    "DescribeSpotPriceHistory": "spotPriceHistorySet",
    "DescribeVolumes": "volumeSet",
}
"""Element that holds the results of a list action. These lists may begin with an empty page."""

REFUSED = frozenset(
    {
        "AttachVolume",
        "DeleteFleets",
        "DescribeFleetInstances",
        "DescribeFleets",
        "CopyImage",
        "CreateVolume",
        "DescribeInstanceAttribute",
        "DescribeInstanceStatus",
        "DescribeTags",
        "DetachVolume",
        "ModifyFleet",
        "ModifyInstanceAttribute",
        "RebootInstances",
        "RegisterImage",
        "RequestSpotFleet",
        "RequestSpotInstances",
        "StartInstances",
    }
)


class Actions:
    """The actions of one account's EC2."""

    def __init__(
        self, launcher: Launcher, listing: InstanceList, volumes: Volumes, prices: PriceList
    ) -> None:
        self._launcher = launcher
        self._listing = listing
        self._tokens = ClientTokens()
        images, templates = launcher.images, launcher.templates
        making = ImageMaking(launcher.instances, launcher.lifecycle, images)
        self._handlers: dict[str, Handler] = {
            "CreateFleet": self._create_fleet,
            "RunInstances": self._run_instances,
            "TerminateInstances": self._terminate,
            "DescribeInstances": _plain(listing.describe),
            "DescribeCapacityReservations": _plain(launcher.reservations.describe),
            "DescribeInstanceTypeOfferings": _plain(launcher.sales.describe),
            "DescribeSpotPriceHistory": _plain(prices.spot_history),
            "DescribeVolumes": _plain(volumes.describe),
            "DeleteVolume": _plain(volumes.delete),
            "DescribeImages": _plain(images.describe),
            "DeregisterImage": _plain(images.deregister),
            "CreateImage": _plain(making.create),
            "ModifyImageAttribute": _plain(making.modify_attribute),
            "StopInstances": _plain(making.stop),
            "DescribeSnapshots": _plain(images.snapshots.describe),
            "DeleteSnapshot": _plain(images.snapshots.delete),
            "GetConsoleOutput": _plain(self._console),
            "CreateLaunchTemplate": self._create_template,
            "CreateLaunchTemplateVersion": _plain(templates.create_version),
            "DeleteLaunchTemplate": _plain(templates.delete),
            "DescribeLaunchTemplates": _plain(templates.describe),
            "DescribeLaunchTemplateVersions": _plain(templates.describe_versions),
            "ModifyLaunchTemplate": _plain(templates.modify),
        }

    def answers(self, fields: dict[str, str]) -> bool:
        """Return True if the front answers or refuses this request."""
        return fields["Action"] in self._handlers or fields["Action"] in REFUSED or _tags(fields)

    async def perform(self, fields: dict[str, str]) -> str:
        """Answer a request that the front answers. Raises Ec2Error."""
        action = fields["Action"]
        if action in REFUSED:
            raise Ec2Error("UnsupportedOperation", f"The lab does not do {action}.")
        if fields.get("DryRun", "false") == "true":
            raise Ec2Error(
                "DryRunOperation", "Request would have succeeded, but DryRun flag is set."
            )
        params = nest(fields)
        if action in RESULTS and self._launcher.faults.begins_empty(params):
            return empty_page(action, RESULTS[action], params)
        handler = self._tag if _tags(fields) else self._handlers[action]
        return await handler(fields, params)

    async def _create_fleet(self, fields: dict[str, str], params: Tree) -> str:
        return await self._tokens.once(fields, lambda: create_fleet(self._launcher, params))

    async def _run_instances(self, fields: dict[str, str], params: Tree) -> str:
        async def run() -> str:
            launched = await run_instances(self._launcher, params)
            return answer("RunInstances", self._listing.reservation(launched))

        return await self._tokens.once(fields, run)

    async def _create_template(self, fields: dict[str, str], params: Tree) -> str:
        async def create() -> str:
            return self._launcher.templates.create(params)

        return await self._tokens.once(fields, create)

    def _console(self, params: Tree) -> str:
        launcher = self._launcher
        (one,) = found(launcher.instances, launcher.lifecycle, [params.text("InstanceId")])
        written = launcher.lifecycle.console(one)
        shown = base64.b64encode(written.encode()[-MAX_CONSOLE:]).decode()
        return answer(
            "GetConsoleOutput",
            element("instanceId", one.id)
            + element("timestamp", timestamp(launcher.now()))
            + element("output", shown),
        )

    async def _terminate(self, _: dict[str, str], params: Tree) -> str:
        ids = dict.fromkeys(params.texts("InstanceId"))
        if not ids or len(ids) > MAX_TERMINATED:
            raise Ec2Error("InvalidParameterValue", f"Name 1 to {MAX_TERMINATED} instances")
        launcher = self._launcher
        named = found(launcher.instances, launcher.lifecycle, ids)
        launcher.throttling.terminate(len(named))
        changes = []
        for one in named:
            before = one.state
            launcher.lifecycle.terminate(one)
            ended = one.state is InstanceState.TERMINATED
            # The fault: EC2 answers as if a leaking instance terminated.
            after = InstanceState.TERMINATED if ended else InstanceState.SHUTTING_DOWN
            changes.append(
                {
                    "instanceId": one.id,
                    "currentState": state_shown(after),
                    "previousState": state_shown(before),
                }
            )
        return answer("TerminateInstances", element("instancesSet", changes))

    async def _tag(self, fields: dict[str, str], params: Tree) -> str:
        launcher, images = self._launcher, self._launcher.images
        ids = params.texts("ResourceId")
        named = [one for one in ids if not one.startswith(("ami-", "snap-"))]
        instances = found(launcher.instances, launcher.lifecycle, named)
        shown = [images.find(one) for one in ids if one.startswith("ami-")]
        snapshots = [images.snapshots.find(one) for one in ids if one.startswith("snap-")]
        change = _tag_change(fields["Action"] == "CreateTags", params)
        for instance in instances:
            instance.tags = change(instance.tags)
        for image in shown:
            images.change(image.id, tags=change(image.tags))
        for snapshot in snapshots:
            snapshot.tags = change(snapshot.tags)
        return answer(fields["Action"], element("return", True))


def _tag_change(adding: bool, params: Tree) -> Callable[[dict[str, str]], dict[str, str]]:
    """Return what CreateTags or DeleteTags makes of a resource's tags."""
    said = {
        tag.text("Key"): tag.text("Value") if "Value" in tag else None
        for tag in params.structures("Tag")
    }

    def added(tags: dict[str, str]) -> dict[str, str]:
        return tags | {key: value or "" for key, value in said.items()}

    def left(tags: dict[str, str]) -> dict[str, str]:
        return {
            key: value
            for key, value in tags.items()
            if not (key in said and said[key] in (None, value))
        }

    return added if adding else left


def _tags(fields: dict[str, str]) -> bool:
    """Return True if a request tags instances, images or snapshots; moto tags all other resources."""
    if fields["Action"] not in ("CreateTags", "DeleteTags"):
        return False
    return fields.get("ResourceId.1", "").startswith(("i-", "ami-", "snap-"))


def _plain(handler: Callable[[Tree], str]) -> Handler:
    async def handle(_: dict[str, str], params: Tree) -> str:
        return handler(params)

    return handle
