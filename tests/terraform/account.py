"""An AWS account for Terraform: moto's, beside a laboratory, with what an operator creates by hand."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3

from lab.ec2.service import LabEc2
from lab.terraform.front import TerraformFront

FLEET = "ci-gpu"
REGION = "us-east-1"
SECRETS = ("github_app_private_key", "webhook_secret", "admin_token", "metrics_token")


def credentials(url: str) -> dict[str, str]:
    """Return the variables for programs that use AWS's SDKs."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "lab",
        "AWS_SECRET_ACCESS_KEY": "lab",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def client(url: str, service: str) -> Any:
    """Return a boto3 client."""
    return boto3.client(
        service,  # type: ignore[call-overload]
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id="lab",
        aws_secret_access_key="lab",
    )


def groups_in_use(ec2: LabEc2) -> set[str]:
    """Return the security groups of the lab's machines that are not terminated."""
    found: set[str] = set()
    for one in ec2.machines_left():
        found |= {*one.specification.security_groups}
        found |= {group for card in one.specification.interfaces for group in card.groups}
    return found


def front_of(moto_url: str, ec2: LabEc2) -> TerraformFront:
    """Return a front for the account of a laboratory."""
    return TerraformFront(moto_url, ec2.account, lambda: groups_in_use(ec2))


def create_secrets(url: str, values: Mapping[str, str]) -> dict[str, str]:
    """Create the secrets that an operator creates. Return their ARNs by name."""
    secrets = client(url, "secretsmanager")
    return {
        name: secrets.create_secret(Name=name, SecretString=values.get(name, name))["ARN"]
        for name in SECRETS
    }


def write_variables(folder: Path, url: str, skus: Mapping[str, Any], **more: Any) -> None:
    """Write terraform.tfvars.json for examples/complete, with a certificate and secrets."""
    certificate = client(url, "acm").request_certificate(DomainName="fleet.example.com")
    values = {
        "fleet": FLEET,
        "region": REGION,
        "max_zones": 2,
        "domain_name": "fleet.example.com",
        "certificate_arn": certificate["CertificateArn"],
        "image": "registry.example.com/gpu-runner-autoscaler:0.1.0",
        "secret_arns": create_secrets(url, {}),
        "limits": {"machines": 10, "dollars_per_hour": 20},
        "skus": skus,
        "create_spot_role": True,
        "destroy_data": True,
        "tags": {"Team": "ci"},
    }
    (folder / "terraform.tfvars.json").write_text(json.dumps(values | more))


def left_in(url: str) -> list[str]:
    """Describe everything that Terraform can have made and that still exists."""
    ec2, iam = client(url, "ec2"), client(url, "iam")
    ended = ("terminated", "shutting-down")
    found = [
        *(v["VpcId"] for v in ec2.describe_vpcs()["Vpcs"] if not v["IsDefault"] and _named(v)),
        *(
            g["GroupId"]
            for g in ec2.describe_security_groups()["SecurityGroups"]
            if _ours(g["GroupName"])
        ),
        *(v["VolumeId"] for v in ec2.describe_volumes()["Volumes"] if _named(v)),
        *(t["LaunchTemplateName"] for t in ec2.describe_launch_templates()["LaunchTemplates"]),
        *(a["AllocationId"] for a in ec2.describe_addresses()["Addresses"]),
        *(
            i["InstanceId"]
            for r in ec2.describe_instances()["Reservations"]
            for i in r["Instances"]
            if i["State"]["Name"] not in ended
        ),
        *(
            n["NatGatewayId"]
            for n in ec2.describe_nat_gateways()["NatGateways"]
            if n["State"] != "deleted"
        ),
        *(r["RoleName"] for r in iam.list_roles()["Roles"] if _ours(r["RoleName"])),
        *(p["Arn"] for p in iam.list_policies(Scope="Local")["Policies"]),
        *(p["InstanceProfileName"] for p in iam.list_instance_profiles()["InstanceProfiles"]),
        *client(url, "sqs").list_queues().get("QueueUrls", []),
        *(r["Name"] for r in client(url, "events").list_rules()["Rules"]),
        *(b["Name"] for b in client(url, "s3").list_buckets()["Buckets"]),
        *(
            g["AutoScalingGroupName"]
            for g in client(url, "autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
        ),
        *(
            b["LoadBalancerName"]
            for b in client(url, "elbv2").describe_load_balancers()["LoadBalancers"]
        ),
        *(
            t["TargetGroupName"]
            for t in client(url, "elbv2").describe_target_groups()["TargetGroups"]
        ),
        *(g["logGroupName"] for g in client(url, "logs").describe_log_groups()["logGroups"]),
        *(
            a["AliasName"]
            for a in client(url, "kms").list_aliases()["Aliases"]
            if _ours(a["AliasName"].removeprefix("alias/"))
        ),
        *(a["AlarmName"] for a in client(url, "cloudwatch").describe_alarms()["MetricAlarms"]),
    ]
    return [str(one) for one in found]


def _ours(name: str) -> bool:
    return name.startswith(FLEET)


def _named(resource: Mapping[str, Any]) -> bool:
    return any(tag["Key"] == "Name" and _ours(tag["Value"]) for tag in resource.get("Tags", []))
