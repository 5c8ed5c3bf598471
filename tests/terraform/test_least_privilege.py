"""The controller's policy allows the calls that the controller makes, and nothing outside its fleet.

`test_applied.py` shows that it allows every request of a whole lab run.
"""

import botocore.session
import pytest

from autoscaler.providers.ec2.worker.operations import OPERATIONS
from tests.terraform.controller_policy import FILE, allowed_actions, documented, rendered
from tests.terraform.policy_evaluation import Authorization, allows

WITHOUT_PERMISSION = {"sts:GetCallerIdentity"}
"""Needs none: Service Authorization Reference, AWS STS."""

ACTION_OF_OPERATION = {"sqs:DeleteMessageBatch": "sqs:DeleteMessage"}
"""The actions of SQS's batch operations (SQS Developer Guide, "Amazon SQS API permissions")."""

DEPENDENT = {
    "ec2:RunInstances",  # CreateFleet of the type `instant`
    "ec2:CreateTags",  # every operation that tags what it creates
    "iam:PassRole",  # the instance profile of a launch template
    # Encrypted disks (docs/ec2.md, "Customer-managed keys").
    "kms:CreateGrant",
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:GenerateDataKey*",
    "kms:ReEncrypt*",
}
"""Actions that AWS checks without an operation of their own."""


def actions_of_the_code() -> set[str]:
    """Return the IAM action of each call of the EC2 provider, by botocore's service models."""
    session = botocore.session.get_session()
    found = set()
    for name, operation in OPERATIONS.items():
        model = session.get_service_model(operation.service)
        action = f"{model.signing_name}:{model.operation_model(name).name}"
        found.add(ACTION_OF_OPERATION.get(action, action))
    return found - WITHOUT_PERMISSION


def test_the_policy_allows_exactly_what_the_code_can_call() -> None:
    values = dict.fromkeys(("FLEET", "ACCOUNT", "REGION", "PARTITION"), "x")
    policy = rendered(values | dict.fromkeys(("SUBNET", "ROLE", "QUEUE", "KEY"), "x"))
    assert allowed_actions(policy) == actions_of_the_code() | DEPENDENT


def test_the_documented_policy_is_that_of_the_module() -> None:
    names = ("FLEET", "ACCOUNT", "REGION", "SUBNET", "ROLE", "QUEUE", "KEY")
    assert documented() == rendered({name: name for name in names} | {"PARTITION": "aws"}), FILE


REGION, ACCOUNT = "us-east-1", "123456789012"
OURS, THEIRS = (
    {"aws:ResourceTag/autoscaler:fleet": "ci"},
    {"aws:ResourceTag/autoscaler:fleet": "ml"},
)
MADE = {"aws:RequestTag/autoscaler:fleet": "ci"}
POLICY = rendered(
    {
        "FLEET": "ci",
        "PARTITION": "aws",
        "REGION": REGION,
        "ACCOUNT": ACCOUNT,
        "SUBNET": "subnet-0a",
        "ROLE": "ci-runner-us-east-1",
        "QUEUE": "ci-interruptions",
        "KEY": "1",
    }
)


def ec2(action: str, resource: str, region: str = REGION, **context: str) -> Authorization:
    place = f"arn:aws:ec2:{region}:{'' if resource.startswith('image') else ACCOUNT}"
    return Authorization(f"ec2:{action}", f"{place}:{resource}", context)


def key(action: str, number: str = "1", **context: str) -> Authorization:
    via = {"kms:ViaService": f"ec2.{REGION}.amazonaws.com"}
    arn = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{number}"
    return Authorization(
        f"kms:{action}", arn, via | {k.replace("_", ":"): v for k, v in context.items()}
    )


def role(name: str, service: str) -> Authorization:
    arn = f"arn:aws:iam::{ACCOUNT}:role/{name}"
    return Authorization("iam:PassRole", arn, {"iam:PassedToService": service})


def queue(action: str, name: str) -> Authorization:
    return Authorization(f"sqs:{action}", f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}")


def subnet(name: str) -> dict[str, str]:
    return {"ec2:Subnet": f"arn:aws:ec2:{REGION}:{ACCOUNT}:subnet/{name}"}


FOR_DISKS = {"kms_GrantIsForAWSResource": "true"}
INSIDE = {
    "terminate a machine of the fleet": ec2("TerminateInstances", "instance/i-1", **OURS),
    "launch a machine with the tag": ec2("RunInstances", "instance/*", **MADE),
    "launch by a template of the fleet": ec2("CreateFleet", "launch-template/lt-1", **OURS),
    "launch from any image": ec2("RunInstances", "image/ami-1"),
    "launch into a subnet of the fleet": ec2("RunInstances", "subnet/subnet-0a"),
    "connect a machine in a subnet of the fleet": ec2(
        "RunInstances", "network-interface/*", **subnet("subnet-0a")
    ),
    "make a fleet, where EC2 names no subnet": ec2("CreateFleet", "network-interface/*"),
    "tag a machine in the launch": ec2(
        "CreateTags", "instance/i-1", **MADE, **{"ec2:CreateAction": "CreateFleet"}
    ),
    "read the console of a machine of the fleet": ec2("GetConsoleOutput", "instance/i-1", **OURS),
    "pass the machines' role to EC2": role("ci-runner-us-east-1", "ec2.amazonaws.com"),
    "read the fleet's queue": queue("ReceiveMessage", "ci-interruptions"),
    "let EC2 use the key of disks": key("CreateGrant", **FOR_DISKS),
}
OUTSIDE = {
    "terminate another team's instance": ec2("TerminateInstances", "instance/i-1", **THEIRS),
    "terminate an instance without tags": ec2("TerminateInstances", "instance/i-1"),
    "terminate in another region": ec2("TerminateInstances", "instance/i-1", "eu-west-1", **OURS),
    "stop a machine": ec2("StopInstances", "instance/i-1", **OURS),
    "change a machine": ec2("ModifyInstanceAttribute", "instance/i-1", **OURS),
    "tag another team's instance": ec2("CreateTags", "instance/i-1", **MADE, **THEIRS),
    "tag an instance in a launch for another fleet": ec2(
        "CreateTags",
        "instance/i-1",
        **{"aws:RequestTag/autoscaler:fleet": "ml", "ec2:CreateAction": "CreateFleet"},
    ),
    "tag a snapshot that it creates": ec2(
        "CreateTags", "snapshot/snap-1", **MADE, **{"ec2:CreateAction": "CreateSnapshot"}
    ),
    "remove tags": ec2("DeleteTags", "instance/i-1", **OURS),
    "launch without the tag": ec2("RunInstances", "instance/*"),
    "launch with another fleet's tag": ec2(
        "CreateFleet", "instance/*", **{"aws:RequestTag/autoscaler:fleet": "ml"}
    ),
    "make a disk without the tag": ec2("RunInstances", "volume/*"),
    "make a fleet without the tag": ec2("CreateFleet", "fleet/*"),
    "launch into another team's subnet": ec2("RunInstances", "subnet/subnet-0b"),
    "use an interface in another team's subnet": ec2(
        "RunInstances", "network-interface/eni-1", **subnet("subnet-0b")
    ),
    "launch by another team's template": ec2("CreateFleet", "launch-template/lt-1", **THEIRS),
    "make a template without the tag": ec2("CreateLaunchTemplate", "launch-template/*"),
    "delete another team's template": ec2("DeleteLaunchTemplate", "launch-template/lt-1", **THEIRS),
    "change a template": ec2("CreateLaunchTemplateVersion", "launch-template/lt-1", **OURS),
    "delete another team's volume": ec2("DeleteVolume", "volume/vol-1", **THEIRS),
    "delete the volume of its own store": ec2("DeleteVolume", "volume/vol-1"),
    "read another team's console": ec2("GetConsoleOutput", "instance/i-1", **THEIRS),
    "delete an image": ec2("DeregisterImage", "image/ami-1"),
    "open a security group": ec2("AuthorizeSecurityGroupIngress", "security-group/sg-1"),
    "pass another role": role("admin", "ec2.amazonaws.com"),
    "pass the machines' role to another service": role(
        "ci-runner-us-east-1", "lambda.amazonaws.com"
    ),
    "change a role": Authorization("iam:AttachRolePolicy", f"arn:aws:iam::{ACCOUNT}:role/ci"),
    "read another team's queue": queue("ReceiveMessage", "ml-interruptions"),
    "forge an interruption": queue("SendMessage", "ci-interruptions"),
    "delete the queue": queue("DeleteQueue", "ci-interruptions"),
    "use another key": key("Decrypt", "2"),
    "use the key outside EC2": key("Decrypt", kms_ViaService="s3.us-east-1.amazonaws.com"),
    "give the key to a person": key("CreateGrant", kms_GrantIsForAWSResource="false"),
    "raise a quota": Authorization("servicequotas:RequestServiceQuotaIncrease", "*"),
}


@pytest.mark.parametrize("asked", INSIDE.values(), ids=INSIDE)
def test_the_policy_allows_what_the_fleet_needs(asked: Authorization) -> None:
    assert allows([POLICY], asked), asked


@pytest.mark.case(
    "credentials of the controller that were stolen reach nothing outside its fleet",
    topic="EC2's API",
    source="EC2: IAM policies",
)
@pytest.mark.parametrize("asked", OUTSIDE.values(), ids=OUTSIDE)
def test_the_policy_denies_what_is_outside_the_fleet(asked: Authorization) -> None:
    assert not allows([POLICY], asked), asked


@pytest.mark.parametrize("sid", [one["Sid"] for one in POLICY["Statement"] if "Condition" in one])
def test_without_its_condition_each_statement_would_allow_too_much(sid: str) -> None:
    """The requests above would notice if a condition were lost."""
    loose = [
        {k: v for k, v in one.items() if k != "Condition" or one["Sid"] != sid}
        for one in POLICY["Statement"]
    ]
    assert any(allows([{"Statement": loose}], asked) for asked in OUTSIDE.values())
