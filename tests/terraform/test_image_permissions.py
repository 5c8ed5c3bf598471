"""The build role and the key of the module `images` allow what image builds need, and nothing of others.

The policies are those that Terraform creates, read from IAM and KMS.
"""

import ast
import asyncio
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import autoscaler.providers.ec2.images
from autoscaler.providers.ec2.images.smoke_test import FAILED
from autoscaler.providers.ec2.tags import PUBLISHED
from lab.ec2.moto import MotoProcess
from lab.laboratory import LabFleet, Laboratory
from lab.terraform.commands import Terraform, copied
from lab.terraform.parts import Parts
from tests.terraform.account import REGION, client, credentials
from tests.terraform.authorizations import policies_of
from tests.terraform.controller_policy import allowed_actions
from tests.terraform.image_builds import ACCOUNT, IN_LAUNCH, Builds, ec2, tagged, write_template
from tests.terraform.policy_evaluation import Authorization, allows

Policy = Mapping[str, Any]
OTHER, STRANGER = "210987654321", "310987654321"
SET = "autoscaler:image-set"
OURS = {f"aws:ResourceTag/{SET}": "gpu"}
THEIRS = {"aws:ResourceTag/autoscaler:fleet": "ci-gpu"}
MADE = {f"aws:RequestTag/{SET}": "gpu"}

PACKER = {
    "ec2:AuthorizeSecurityGroupIngress",
    "ec2:CreateImage",
    "ec2:CreateKeyPair",
    "ec2:CreateSecurityGroup",
    "ec2:CreateTags",
    "ec2:DeleteKeyPair",
    "ec2:DeleteSecurityGroup",
    "ec2:DeregisterImage",
    "ec2:DeleteSnapshot",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceStatus",
    "ec2:DescribeInstances",
    "ec2:DescribeRegions",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSnapshots",
    "ec2:DescribeSubnets",
    "ec2:DescribeTags",
    "ec2:DescribeVolumes",
    "ec2:RunInstances",
    "ec2:StopInstances",
    "ec2:TerminateInstances",
}
"""What the amazon-ebs builder needs with the recipes in ami/.

Of the list in its documentation, without what copies images, changes their attributes, makes disks of its own
and reads Windows' passwords.
"""

OF_THE_KEY = {
    "kms:CreateGrant",
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey*",
    "kms:ReEncrypt*",
}
"""What EC2 does with the key of a snapshot for the caller."""


@pytest.fixture(scope="module")
def applied(
    moto: MotoProcess, parts: Parts, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[Policy], Policy]:
    """The policies of the build role, and that of the key."""
    folder = tmp_path_factory.mktemp("images")
    module = copied(folder) / "modules" / "images"
    values = {
        "name": "gpu",
        "builder_arns": [f"arn:aws:iam::{ACCOUNT}:role/ci"],
        "account_ids": [OTHER],
    }
    (module / "terraform.tfvars.json").write_text(json.dumps(values))
    settings = credentials(moto.url) | {"AWS_REGION": REGION}
    with Terraform(parts, module, folder, settings) as terraform:
        terraform.init()
        terraform.succeed("apply", "-auto-approve", "-no-color", "-input=false")
        key = terraform.outputs()["key_arn"]
    role = policies_of(client(moto.url, "iam"), f"gpu-images-{REGION}")
    kms = client(moto.url, "kms")
    return [*role], json.loads(kms.get_key_policy(KeyId=key, PolicyName="default")["Policy"])


INSIDE = {
    "launch a build machine": ec2("RunInstances", "instance/*", **MADE),
    "launch from any image": ec2("RunInstances", "image/ami-1"),
    "tag the network interface of a launch": tagged(
        "network-interface/*", SET, "Name", **MADE, **IN_LAUNCH
    ),
    "make a temporary key": ec2("CreateKeyPair", "key-pair/packer_1"),
    "open the temporary security group": ec2(
        "AuthorizeSecurityGroupIngress", "security-group/sg-1"
    ),
    "stop a build machine": ec2("StopInstances", "instance/i-1", **OURS),
    "make an image of a build machine": ec2("CreateImage", "instance/i-1", **OURS),
    "name the new image": ec2("CreateImage", "image/*"),
    "tag the new image": tagged("image/ami-1", SET, "autoscaler:image-recipe", "Name"),
    "tag its snapshot": tagged("snapshot/snap-1", SET, "Name"),
    "publish an image": tagged("image/ami-1", PUBLISHED),
    "hide an image that failed": tagged("image/ami-1", FAILED),
    "show it again": tagged("image/ami-1", FAILED, action="DeleteTags"),
    "read the console of a machine that tests an image": ec2(
        "GetConsoleOutput", "instance/i-1", **OURS
    ),
    "delete an old image": ec2("DeregisterImage", "image/ami-1", **OURS),
    "delete its snapshot": ec2("DeleteSnapshot", "snapshot/snap-1", **OURS),
    "read a public parameter that names an image": Authorization(
        "ssm:GetParameters",
        f"arn:aws:ssm:{REGION}::parameter/aws/service/ami-amazon-linux-latest/a",
    ),
}
OUTSIDE = {
    "launch a machine without the tag": ec2("RunInstances", "instance/*"),
    "launch by a template": ec2("RunInstances", "launch-template/lt-1"),
    "terminate a machine of a fleet": ec2("TerminateInstances", "instance/i-1", **THEIRS),
    "stop a machine without tags": ec2("StopInstances", "instance/i-1"),
    "change a machine": ec2("ModifyInstanceAttribute", "instance/i-1", **OURS),
    "tag a machine that exists": tagged("instance/i-1", SET, **MADE),
    "copy the disks of a machine of a fleet": ec2("CreateImage", "instance/i-1", **THEIRS),
    "copy another team's disk": ec2("CreateSnapshot", "volume/vol-1"),
    "make an image of another team's snapshot": ec2("RegisterImage", "snapshot/snap-1"),
    "read another team's console": ec2("GetConsoleOutput", "instance/i-1", **THEIRS),
    "read another team's user data": ec2("DescribeInstanceAttribute", "instance/i-1"),
    "read Windows' password": ec2("GetPasswordData", "instance/i-1", **OURS),
    "give an image to anyone": ec2("ModifyImageAttribute", "image/ami-1", **OURS),
    "give a snapshot to anyone": ec2("ModifySnapshotAttribute", "snapshot/snap-1", **OURS),
    "delete another team's image": ec2("DeregisterImage", "image/ami-1", **THEIRS),
    "delete another team's snapshot": ec2("DeleteSnapshot", "snapshot/snap-1"),
    "tag an image as a fleet's": tagged("image/ami-1", "autoscaler:fleet"),
    "tag an image with one more key": tagged("image/ami-1", "Name", "Team"),
    "remove all tags of an image": ec2("DeleteTags", "image/ami-1"),
    "delete another team's key pair": ec2("DeleteKeyPair", "key-pair/admin"),
    "read a parameter of the account": Authorization(
        "ssm:GetParameters", f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/database"
    ),
    "delete a volume": ec2("DeleteVolume", "volume/vol-1", **OURS),
    "give a machine a role": Authorization("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/admin"),
}


@pytest.mark.parametrize("asked", INSIDE.values(), ids=INSIDE)
def test_the_build_role_allows_what_builds_need(
    applied: tuple[list[Policy], Policy], asked: Authorization
) -> None:
    assert allows(applied[0], asked), asked


@pytest.mark.case(
    "the role of image builds stops, terminates and images no machine of others, and shares nothing",
    topic="EC2's API",
    source="EC2: IAM policies",
)
@pytest.mark.parametrize("asked", OUTSIDE.values(), ids=OUTSIDE)
def test_the_build_role_denies_what_belongs_to_others(
    applied: tuple[list[Policy], Policy], asked: Authorization
) -> None:
    assert not allows(applied[0], asked), asked


def test_without_a_condition_the_build_role_would_allow_too_much(
    applied: tuple[list[Policy], Policy],
) -> None:
    """The requests above would notice if a condition on EC2's actions were lost."""
    statements = [one for policy in applied[0] for one in policy["Statement"]]
    for lost in statements:
        for operator in lost.get("Condition", {}) if lost["Sid"] != "Encrypt" else ():
            kept = {k: v for k, v in lost["Condition"].items() if k != operator}
            loose = [one if one is not lost else lost | {"Condition": kept} for one in statements]
            found = [name for name, one in OUTSIDE.items() if allows([{"Statement": loose}], one)]
            assert found, (lost["Sid"], operator)


def test_the_build_role_allows_exactly_what_packer_and_the_commands_call(
    applied: tuple[list[Policy], Policy],
) -> None:
    allowed = set().union(*(allowed_actions(policy) for policy in applied[0]))
    # EC2 reads parameters of images in the caller's name.
    assert allowed == PACKER | actions_of_the_commands() | OF_THE_KEY | {"ssm:GetParameters"}


def actions_of_the_commands() -> set[str]:
    """Return the actions of all calls and lists in `providers/ec2/images/`."""
    found = set()
    for file in Path(autoscaler.providers.ec2.images.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="call" | "pages"), args=[ast.Constant(str(api)), *_]
                ):
                    found.add(f"ec2:{api}")
    return found


def kms(action: str, account: str, **context: str | tuple[str, ...]) -> Authorization:
    arn = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1"
    return Authorization(f"kms:{action}", arn, context, f"arn:aws:iam::{account}:root")


BY_EC2 = {"kms:ViaService": f"ec2.{REGION}.amazonaws.com"}
BY_S3 = {"kms:ViaService": f"s3.{REGION}.amazonaws.com"}
FOR_DISKS = {"kms:GrantOperations": ("Decrypt", "GenerateDataKeyWithoutPlaintext")}
KEY_ALLOWS = {
    "the account administers its key": kms("PutKeyPolicy", ACCOUNT),
    "EC2 reads a snapshot for another account": kms("Decrypt", OTHER, **BY_EC2),
    "EC2 makes a disk for another account": kms("GenerateDataKeyWithoutPlaintext", OTHER, **BY_EC2),
    "another account gives spot's role a KMS grant": kms("CreateGrant", OTHER, **FOR_DISKS),
    "another account revokes its KMS grant": kms("RevokeGrant", OTHER),
}
KEY_DENIES = {
    "an account that is not named reads a snapshot": kms("Decrypt", STRANGER, **BY_EC2),
    "an account that is not named gives a KMS grant": kms("CreateGrant", STRANGER, **FOR_DISKS),
    "another account decrypts outside EC2": kms("Decrypt", OTHER),
    "another account decrypts through S3": kms("Decrypt", OTHER, **BY_S3),
    "another account gives a KMS grant for signing": kms(
        "CreateGrant", OTHER, **{"kms:GrantOperations": ("Decrypt", "Sign")}
    ),
    "another account changes the policy": kms("PutKeyPolicy", OTHER, **BY_EC2),
    "another account deletes the key": kms("ScheduleKeyDeletion", OTHER, **BY_EC2),
    "another account disables the key": kms("DisableKey", OTHER),
}


@pytest.mark.parametrize("asked", KEY_ALLOWS.values(), ids=KEY_ALLOWS)
def test_the_key_of_images_allows_launches_of_the_named_accounts(
    applied: tuple[list[Policy], Policy], asked: Authorization
) -> None:
    assert allows([applied[1]], asked), asked


@pytest.mark.parametrize("asked", KEY_DENIES.values(), ids=KEY_DENIES)
def test_the_key_of_images_denies_everything_else(
    applied: tuple[list[Policy], Policy], asked: Authorization
) -> None:
    assert not allows([applied[1]], asked), asked


async def test_the_build_role_allows_every_request_of_packer(
    applied: tuple[list[Policy], Policy], tmp_path: Path
) -> None:
    write_template(tmp_path)
    option = {"provider": "lab", "instance_types": ["m7i.large"]}
    fleet = LabFleet("acme", ("widgets",), {"linux": {"on": [option]}}, scale=60.0)
    async with Laboratory(fleet) as lab:
        lab.ec2.images.add("stock-1", root_device="/dev/sda1", snapshot_gb=8)
        own = yaml.safe_load((lab.folder / "fleet.yaml").read_text())
        values = dict.fromkeys(
            (
                "recipe",
                "image_name",
                "runner_version",
                "runner_url",
                "runner_sha256",
                "agent_sha256",
            ),
            "1",
        )
        values |= {"image_set": "gpu", "source_name": "stock-1", "source_owner": "self"}
        values |= {"agent_file": __file__, "region": REGION, "instance_type": "m7i.large"}
        values |= {"subnet_id": own["providers"]["lab"]["ec2"]["subnets"][0]}
        values |= {"endpoint": lab.ec2.endpoint_url, "poll_seconds": "1"}
        (tmp_path / "values.json").write_text(json.dumps(values))
        builds = Builds(lab)
        lab.ec2.record(builds)
        done = await asyncio.to_thread(
            subprocess.run,
            ["packer", "build", f"-var-file={tmp_path / 'values.json'}", str(tmp_path)],
            env=os.environ | credentials(lab.ec2.endpoint_url) | {"CHECKPOINT_DISABLE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    called = {one.action for one in builds.asked}
    assert {"ec2:RunInstances", "ec2:CreateImage", "ec2:CreateTags", "ec2:DeleteKeyPair"} <= called
    assert [str(one) for one in builds.asked if not allows(applied[0], one)] == []
