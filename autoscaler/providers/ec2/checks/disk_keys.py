"""Finds the KMS key of a SKU's disks, and whether it can be used, for `autoscaler doctor`.

The policies of docs/ec2.md allow a key's use through EC2 alone (`kms:ViaService`), so that KMS itself would
refuse a trial of the controller. IAM's simulation can say that a request comes through EC2 (IAM API Reference,
SimulatePrincipalPolicy). It reads the identity's policies, and not the key's.
"""

from typing import Any

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.providers.ec2.checks.account import Account, AwsRefusedError
from autoscaler.providers.ec2.checks.images import find_image
from autoscaler.providers.ec2.checks.judgement import DENIED, DiskKey
from autoscaler.providers.ec2.settings import Ec2Sku

ACTIONS = (
    "kms:CreateGrant",
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)
"""What EC2 does with a key for the caller of a launch (docs/ec2.md, Permissions)."""

_UNKNOWN_KEY = frozenset({"NotFoundException", "InvalidArnException"})


class DiskKeys:
    """The keys of one account and region. Its methods raise AwsRefusedError and AwsNotAskedError."""

    def __init__(self, account: Account) -> None:
        self._account = account

    async def of(self, sku: Ec2Sku) -> DiskKey | None:
        """Return the key that the SKU or its image names; None if its disks have the account's default key."""
        named = sku.keys.volume.kms_key if sku.keys.volume is not None else None
        key = named or await self._of_image(sku)
        if key is None:
            return None
        try:
            shown = (await self._account.call("DescribeKey", "kms", KeyId=key))["KeyMetadata"]
        except AwsRefusedError as error:
            if error.code in _UNKNOWN_KEY:
                return DiskKey(key, exists=False)
            if error.code not in DENIED:
                raise
            return DiskKey(key, state="", denied=await self._denied(await self._arn(key)))
        if shown.get("KeyManager") == "AWS":
            return DiskKey(key, aws_managed=True)
        if shown["KeyState"] != "Enabled":
            return DiskKey(key, state=shown["KeyState"])
        return DiskKey(key, denied=await self._denied(shown["Arn"]))

    async def _of_image(self, sku: Ec2Sku) -> str | None:
        """Return the key of the image's encrypted snapshot. Snapshots of other accounts are not shown."""
        try:
            image = (await find_image(self._account, sku)).row
        except ProviderError:
            return None  # the check of the images reports it
        answer = await self._account.call("DescribeImages", ImageIds=[image.id])
        disks = [one.get("Ebs", {}) for one in answer["Images"][0].get("BlockDeviceMappings", ())]
        snapshots = [
            one["SnapshotId"] for one in disks if one.get("Encrypted") and "SnapshotId" in one
        ]
        if not snapshots:
            return None
        answer = await self._account.call("DescribeSnapshots", SnapshotIds=snapshots)
        return next((one["KmsKeyId"] for one in answer["Snapshots"] if one.get("KmsKeyId")), None)

    async def _denied(self, key: str | None) -> tuple[str, ...] | None:
        """Return the actions that the identity's policies do not allow on a key, or None if nothing says so."""
        if key is None:
            return None
        via = f"ec2.{self._account.region}.amazonaws.com"
        try:
            answer = await self._account.call(
                "SimulatePrincipalPolicy",
                "iam",
                PolicySourceArn=await self._identity(),
                ActionNames=[*ACTIONS],
                ResourceArns=[key],
                ContextEntries=[
                    _entry("kms:ViaService", via, "string"),
                    _entry("kms:GrantIsForAWSResource", "true", "boolean"),
                ],
            )
        except AwsRefusedError:
            return None
        return tuple(
            one["EvalActionName"]
            for one in answer["EvaluationResults"]
            if one["EvalDecision"] != "allowed"
        )

    async def _arn(self, key: str) -> str | None:
        """Return the ARN of a key that its ID names; None for an alias, which only KMS can resolve."""
        if key.startswith("arn:"):
            return None if ":alias/" in key else key
        if key.startswith("alias/"):
            return None
        caller = await self._account.call("GetCallerIdentity", "sts")
        partition = caller["Arn"].split(":")[1]
        return f"arn:{partition}:kms:{self._account.region}:{caller['Account']}:key/{key}"

    async def _identity(self) -> str:
        """Return the ARN of the user, or of the role behind a session, whose ARN lacks the role's path."""
        arn = str((await self._account.call("GetCallerIdentity", "sts"))["Arn"])
        if ":assumed-role/" not in arn:
            return arn
        role = arn.split("/")[1]
        return str((await self._account.call("GetRole", "iam", RoleName=role))["Role"]["Arn"])


def _entry(name: str, value: str, kind: str) -> dict[str, Any]:
    return {"ContextKeyName": name, "ContextKeyValues": [value], "ContextKeyType": kind}
