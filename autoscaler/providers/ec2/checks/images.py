"""Finds the image that a SKU's machines would have, as a launch does, with its version of actions/runner."""

from dataclasses import dataclass

from autoscaler.providers.ec2.checks.account import Account
from autoscaler.providers.ec2.launching.requests import newest_image
from autoscaler.providers.ec2.settings import Ec2Sku
from autoscaler.providers.ec2.worker.operations import OPERATIONS
from autoscaler.providers.ec2.worker.rows import ImageRow

RUNNER = "autoscaler:image-runner"
"""The tag of the recipes in ami/ with the version of actions/runner in the image."""


@dataclass(frozen=True, slots=True)
class FoundImage:
    """An image, and the version of actions/runner in it: empty if its tags do not say."""

    row: ImageRow
    runner: str


async def find_image(account: Account, sku: Ec2Sku) -> FoundImage:
    """Return the SKU's newest usable image.

    Raises ProviderError if there is none, AwsRefusedError and AwsNotAskedError.
    """
    describe = OPERATIONS["DescribeImages"]
    wanted = {"name": sku.image.name, "owner": sku.image.owner}
    answer = await account.call("DescribeImages", **describe.parameters(wanted))
    rows = describe.result(answer, wanted)
    assert isinstance(rows, list)
    newest = newest_image(sku, rows)
    shown = next(one for one in answer["Images"] if one["ImageId"] == newest.id)
    tags = {one["Key"]: one["Value"] for one in shown.get("Tags", ())}
    return FoundImage(newest, tags.get(RUNNER, ""))
