"""The examples that `test_applied.py` does not apply."""

import asyncio
import json
import secrets
from pathlib import Path

import yaml

from lab.ec2.moto import MotoProcess
from lab.terraform.commands import Terraform, copied
from lab.terraform.front import TerraformFront
from lab.terraform.parts import Parts
from tests.terraform.account import FLEET, REGION, client, credentials, left_in
from tests.terraform.authorizations import policies_of
from tests.terraform.policy_evaluation import Authorization, allows


async def test_the_minimal_example_is_applied_and_destroyed(
    moto: MotoProcess, parts: Parts, tmp_path: Path
) -> None:
    account = str(10**11 + secrets.randbelow(9 * 10**11))
    front = TerraformFront(moto.url, account, lambda: ())
    await front.start()
    try:
        # In a thread, because the front answers in this one.
        await asyncio.to_thread(_apply_and_destroy, front.url, account, parts, tmp_path)
    finally:
        await front.close()


def _apply_and_destroy(url: str, account: str, parts: Parts, folder: Path) -> None:
    ec2 = client(url, "ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    example = copied(folder) / "examples" / "minimal"
    values = {"fleet": FLEET, "region": REGION, "vpc_id": vpc, "subnet_ids": [subnet]}
    (example / "terraform.tfvars.json").write_text(json.dumps(values))
    with Terraform(parts, example, folder, credentials(url)) as terraform:
        terraform.init()
        terraform.succeed("apply", "-auto-approve", "-no-color", "-input=false")
        assert "No changes." in terraform.succeed("plan", "-detailed-exitcode", "-no-color")

        outputs = terraform.outputs()
        provider = yaml.safe_load(outputs["provider_yaml"])[REGION]["ec2"]
        (group,) = ec2.describe_security_groups(GroupIds=provider["security_groups"])[
            "SecurityGroups"
        ]
        assert (group["VpcId"], provider["subnets"]) == (vpc, [subnet])
        assert provider["interruption_queue"] in client(url, "sqs").list_queues()["QueueUrls"]
        iam = client(url, "iam")
        profile = iam.get_instance_profile(InstanceProfileName=provider["instance_profile"])
        # As an operator gives the policy to the controller's role.
        iam.create_role(RoleName="controller", AssumeRolePolicyDocument="{}")
        iam.attach_role_policy(RoleName="controller", PolicyArn=outputs["policy_arn"])
        policies = policies_of(iam, "controller")
        role = profile["InstanceProfile"]["Roles"][0]["Arn"]
        context = {"iam:PassedToService": "ec2.amazonaws.com"}
        assert allows(policies, Authorization("iam:PassRole", role, context))
        for one, allowed in ((subnet, True), ("subnet-0b", False)):
            arn = f"arn:aws:ec2:{REGION}:{account}:subnet/{one}"
            assert allows(policies, Authorization("ec2:RunInstances", arn)) is allowed
        iam.detach_role_policy(RoleName="controller", PolicyArn=outputs["policy_arn"])
        iam.delete_role(RoleName="controller")

        terraform.succeed("destroy", "-auto-approve", "-no-color", "-input=false")
        assert left_in(url) == []
