"""examples/complete with the real AWS provider, against moto: from an empty account to a job, and back."""

import asyncio
import json
import logging
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscaler.model.machines.interruptions import NoticeKind
from lab.ec2.moto import MotoProcess
from lab.laboratory import LabFleet, Laboratory
from lab.terraform.commands import Terraform
from lab.terraform.front import TerraformFront
from lab.terraform.parts import Parts
from tests.lab.system.harness import Operator, job, read_records, started, until
from tests.lab.system.pace import PATIENCE, yielding
from tests.observability.prometheus import promtool
from tests.terraform.account import (
    FLEET,
    client,
    credentials,
    front_of,
    left_in,
    write_variables,
)
from tests.terraform.authorizations import Recording, policies_of
from tests.terraform.fleet_files import check
from tests.terraform.host_files import check_host_files
from tests.terraform.policy_evaluation import Authorization, allows
from tests.terraform.test_least_privilege import actions_of_the_code

LOG = logging.getLogger(__name__)
SKU = "linux.g4dn"
OTHER_ACCOUNT = "210987654321"
SKUS = {
    SKU: {
        "on": [{"provider": "us-east-1", "instance_types": ["g4dn.xlarge"], "capacity": ["spot"]}],
        "image": {"name": f"{SKU}-*", "owner": "self"},
        "disk_gb": 50,
        "rerun_interrupted": 1,
    }
}
LAB_SKUS: dict[str, dict[str, Any]] = {SKU: {"on": SKUS[SKU]["on"]}}
"""The lab makes an image for a SKU without one."""


class Run:
    """Terraform for one account. Logs the seconds of each command."""

    def __init__(self, terraform: Terraform) -> None:
        self._terraform = terraform

    async def __call__(self, name: str, *words: str, fails: bool = False) -> str:
        began = time.monotonic()
        status, printed = await asyncio.to_thread(
            self._terraform.run, *words, "-no-color", "-input=false"
        )
        # Shown by `pytest -o log_cli=true -o log_cli_level=INFO`.
        LOG.info("terraform %s: %.1f s", name, time.monotonic() - began)
        assert (status != 0) is fails, printed
        return printed


def adapted(produced: str, lab: Laboratory) -> dict[str, Any]:
    """Return fleet.yaml with the addresses and files of the lab in place of those of the host."""
    own = yaml.safe_load((lab.folder / "fleet.yaml").read_text())
    made: dict[str, Any] = yaml.safe_load(produced)
    server = own["server"]
    made["github"] |= {
        "api_url": own["github"]["api_url"],
        "registrations": own["github"]["registrations"],
    }
    # Plain HTTP on loopback, with one listener.
    made["server"] = {
        "listen": server["listen"],
        "public_url": server["public_url"],
        "admin_token_file": made["server"]["admin_token_file"],
    }
    made["store"] = own["store"]
    (provider,) = made["providers"].values()
    # The lab signs identity documents with a certificate of its own.
    provider["ec2"]["identity_certificates"] = ["identity.pem"]
    (lab.folder / "secrets").mkdir()
    for name in ("github-app.pem", "webhook-secret", "admin-token"):
        shutil.copy(lab.folder / name, lab.folder / "secrets" / name)
    return made


async def interrupt_through_the_bus(lab: Laboratory, url: str, instance: str) -> None:
    """Put EC2's event on the account's event bus, and take the machine back."""
    detail = {"instance-id": instance, "instance-action": "terminate"}
    entry = {
        "Source": "aws.ec2",
        "DetailType": "EC2 Spot Instance Interruption Warning",
        "Detail": json.dumps(detail),
        "Time": datetime.fromtimestamp(lab.clock.now(), UTC),
    }
    events = client(url, "events")
    answer = await asyncio.to_thread(events.put_events, Entries=[entry])
    assert answer["FailedEntryCount"] == 0, answer
    await until(
        lambda: any(m.interruption.kind for m in read_records(lab).machines),
        PATIENCE,
        lab.controller.log_end,
    )
    lab.ec2.interrupt(instance, notice=False)


def kind_of_replacement(plan: str, address: str) -> str:
    """Return how a plan replaces a resource: +/- creates the new one first, -/+ deletes the old one first."""
    found = re.search(rf"# {re.escape(address)} must be replaced\n(\S+) resource", plan)
    assert found is not None, plan
    return found[1]


def machine_of(lab: Laboratory) -> str:
    (one,) = [one.id for one in lab.ec2.machines_left()]
    return one


async def serve(lab: Laboratory, front: TerraformFront, run: Run) -> None:
    """A job runs, the machine of the next one is interrupted, and destroy refuses until the last one ended."""
    await lab.start_controller()
    began = time.monotonic()
    (first,) = lab.github.push([job("first", SKU, 60.0)])
    await until(lambda: first.conclusion == "success", PATIENCE, lab.controller.log_end)
    await until(lambda: not lab.ec2.machines_left(), PATIENCE, lab.controller.log_end)
    LOG.info("job, until its machine is terminated: %.1f s", time.monotonic() - began)
    (second,) = lab.github.push([job("second", SKU, 86_400.0)])
    await until(lambda: started([second]), PATIENCE, lab.controller.log_end)
    await interrupt_through_the_bus(lab, front.url, machine_of(lab))
    await until(lambda: second.conclusion == "failure", PATIENCE, lab.controller.log_end)
    await until(
        lambda: len(lab.github.jobs) == 3 and started(lab.github.jobs),
        PATIENCE,
        lab.controller.log_end,
    )
    kinds = [m.interruption.kind for m in read_records(lab).machines if m.interruption.kind]
    assert kinds == [NoticeKind.SPOT_INTERRUPTION]

    printed = await run("refused destroy", "destroy", "-auto-approve", fails=True)
    assert "DependencyViolation" in printed
    assert machine_of(lab)
    await drain(lab)


async def drain(lab: Laboratory) -> None:
    """Drain the provider as docs/terraform.md says: its machine ends, and a queued job gets none."""
    operator = Operator(lab)
    status, printed = await operator.says("drain", "provider/us-east-1")
    assert status == 0, printed
    running = lab.github.jobs[-1]
    launched = [one.id for one in lab.ec2.instances]
    (queued,) = lab.github.push([job("queued", SKU, 60.0)])
    lab.github.end(running)
    await until(lambda: not lab.ec2.machines_left(), PATIENCE, lab.controller.log_end)
    # The controller knows the job, and launches nothing for it.
    waiting = ""
    for _ in range(100):
        status, waiting = await operator.says("jobs")
        assert status == 0, waiting
        if "paused" in waiting:
            break
    else:
        pytest.fail(waiting)
    assert [one.id for one in lab.ec2.instances] == launched
    assert not queued.starts


async def destroy_with_backups(url: str, run: Run) -> None:
    """Destroy everything, after the command of docs/terraform.md for a bucket with backups."""
    await asyncio.to_thread(back_up, url)
    words = ["-var", "destroy_data=true", "-target=module.controller.aws_s3_bucket.data"]
    await run("apply to the bucket", "apply", "-auto-approve", *words)
    await run("destroy", "destroy", "-auto-approve")
    assert await asyncio.to_thread(last_snapshots, url) == 1
    assert await asyncio.to_thread(left_in, url) == []


def remains(url: str) -> None:
    """All that the machines and the controller need is there after a refused destroy."""
    groups = client(url, "autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    assert [len(one["Instances"]) for one in groups] == [1]
    assert len(client(url, "sqs").list_queues()["QueueUrls"]) == 2
    (machines,) = client(url, "ec2").describe_security_groups(
        Filters=[{"Name": "group-name", "Values": [f"{FLEET}-runner-us-east-1"]}]
    )["SecurityGroups"]
    assert [one["IpRanges"][0]["CidrIp"] for one in machines["IpPermissionsEgress"]] == [
        "0.0.0.0/0"
    ]
    iam = client(url, "iam")
    # What image builds need.
    assert f"{FLEET}-images-us-east-1" in {one["RoleName"] for one in iam.list_roles()["Roles"]}
    assert images_key(url)["KeyState"] == "Enabled"
    profiles = {p["InstanceProfileName"] for p in iam.list_instance_profiles()["InstanceProfiles"]}
    assert profiles == {f"{FLEET}-controller", f"{FLEET}-runner-us-east-1"}
    role = iam.list_attached_role_policies(RoleName=f"{FLEET}-controller")
    assert [one["PolicyName"] for one in role["AttachedPolicies"]] == [
        f"{FLEET}-controller-us-east-1"
    ]


def images_key(url: str) -> dict[str, Any]:
    """Return the key of the module `images`, as KMS describes it."""
    kms = client(url, "kms")
    (alias,) = [
        one for one in kms.list_aliases()["Aliases"] if one["AliasName"] == f"alias/{FLEET}-images"
    ]
    found: dict[str, Any] = kms.describe_key(KeyId=alias["TargetKeyId"])["KeyMetadata"]
    return found


def back_up(url: str) -> None:
    """Put a backup into the controller's bucket, as the host does."""
    s3 = client(url, "s3")
    (bucket,) = [one["Name"] for one in s3.list_buckets()["Buckets"]]
    s3.put_object(Bucket=bucket, Key="state.db.gz", Body=b"a backup")


def prepare_disks_and_images(url: str) -> dict[str, Any]:
    """Create a key of disks and an image, as their owner does. Return the variables that name them."""
    key = client(url, "kms").create_key()["KeyMetadata"]["Arn"]
    image = client(url, "ec2").register_image(Name="shared")["ImageId"]
    accounts = [OTHER_ACCOUNT]
    return {
        "disk_key_arns": {"disks": key},
        "image_ids": [image],
        "image_account_ids": accounts,
    }


def check_made(url: str, shared: Mapping[str, Any], folder: Path) -> None:
    """Check what `apply` made beyond what the lab's run uses. `folder` is a new one."""
    check_disks_and_images(url, shared)
    check_host_files(url, folder, backup_minutes=5)


def check_scrape_config(entry: str, folder: Path) -> None:
    """Prometheus accepts the output as an entry of its scrape configuration."""
    file = folder / "prometheus.yml"
    file.write_text(f"scrape_configs:\n{entry}")
    (folder / "metrics-token").write_text("a-token")
    done = subprocess.run(
        [promtool(), "check", "config", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def check_disks_and_images(url: str, made: Mapping[str, Any]) -> None:
    """Spot's role may use the key of disks, and the other account may launch from the image."""
    made_for = client(url, "kms").list_grants(KeyId=made["disk_key_arns"]["disks"])["Grants"]
    role = "role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
    assert [
        one["GranteePrincipal"].partition(":iam::")[2].partition(":")[2] for one in made_for
    ] == [role]
    answer = client(url, "ec2").describe_image_attribute(
        ImageId=made["image_ids"][0], Attribute="launchPermission"
    )
    assert answer["LaunchPermissions"] == [{"UserId": OTHER_ACCOUNT}]


def check_nothing_shared(url: str, made: Mapping[str, Any]) -> None:
    """`destroy` has taken back the KMS grant and the launch permission."""
    assert client(url, "kms").list_grants(KeyId=made["disk_key_arns"]["disks"])["Grants"] == []
    answer = client(url, "ec2").describe_image_attribute(
        ImageId=made["image_ids"][0], Attribute="launchPermission"
    )
    assert answer["LaunchPermissions"] == []


def last_snapshots(url: str) -> int:
    """Return the number of snapshots of the controller's volume."""
    name = {"Name": "tag:Name", "Values": [f"{FLEET}-controller-store"]}
    return len(client(url, "ec2").describe_snapshots(Filters=[name])["Snapshots"])


NOT_RECORDED = {
    "ec2:DeleteLaunchTemplate": "the run leaves its launch template in use",
    "ec2:DeleteVolume": "no volume outlives its machine",
    "ec2:DescribeCapacityReservations": "no SKU has a reservation",
    "ec2:DescribeLaunchTemplates": "the run does not look for unused launch templates",
    "ec2:GetConsoleOutput": "every machine boots",
    "ec2:TerminateInstances": "each machine shuts itself down, or is interrupted",
}
"""What the controller can call and this run does not call, each with the reason."""

SESSIONS = [
    Authorization(action, "*")
    for action in (
        "ssm:UpdateInstanceInformation",
        "ssmmessages:CreateControlChannel",
        "ssmmessages:CreateDataChannel",
        "ssmmessages:OpenControlChannel",
        "ssmmessages:OpenDataChannel",
    )
]
"""What `aws ssm start-session` needs on the host."""


@pytest.mark.case(
    "an operator destroys the fleet while machines run: EC2 does not delete a security group that "
    "machines use, and everything that they need stays",
    topic="EC2's API",
    source="EC2: Delete a security group",
)
async def test_from_an_empty_account_to_a_job_and_back(
    moto: MotoProcess, parts: Parts, source: Path, tmp_path: Path
) -> None:
    folder = source / "examples" / "complete"
    async with Laboratory(
        LabFleet("acme", ("widgets",), LAB_SKUS, scale=yielding(60.0)), moto
    ) as lab:
        front = front_of(moto.url, lab.ec2)
        await front.start()
        try:
            shared = await asyncio.to_thread(prepare_disks_and_images, front.url)
            more = {
                "github": {"app_id": 1234, "scopes": [{"org": "acme", "runner_group": "gpu"}]},
                "builder_arns": [f"arn:aws:iam::{lab.ec2.account}:role/ci"],
                "destroy_data": False,
                **shared,
            }
            await asyncio.to_thread(write_variables, folder, front.url, SKUS, **more)
            with Terraform(parts, folder, tmp_path, credentials(front.url)) as terraform:
                run = Run(terraform)
                await asyncio.to_thread(terraform.init)
                await run("apply", "apply", "-auto-approve")
                printed = await run("plan", "plan", "-detailed-exitcode")
                assert "No changes." in printed
                await asyncio.to_thread(check_made, front.url, shared, tmp_path / "host")
                # The first subnet gets another zone, and with it the host.
                zones = '-var=zones=["us-east-1b", "us-east-1a"]'
                printed = await run("plan of another zone", "plan", "-refresh=false", zones)
                assert (
                    kind_of_replacement(printed, "module.controller.aws_ebs_volume.store[0]")
                    == "+/-"
                )

                outputs = await asyncio.to_thread(terraform.outputs)
                file = tmp_path / "fleet.yaml"
                file.write_text(outputs["fleet_yaml"])
                assert check(file)[0] == 0, check(file)[1]
                check_scrape_config(outputs["prometheus_scrape_config"], tmp_path)

                iam = client(front.url, "iam")
                policies = await asyncio.to_thread(policies_of, iam, f"{FLEET}-controller")
                assert [one for one in SESSIONS if not allows(policies, one)] == []
                profile = f"{FLEET}-runner-us-east-1"
                recording = Recording(
                    lab.ec2, {profile: f"arn:aws:iam::{lab.ec2.account}:role/{profile}"}
                )
                lab.ec2.record(recording)
                (lab.folder / "fleet.yaml").write_text(
                    yaml.safe_dump(adapted(outputs["fleet_yaml"], lab))
                )
                await serve(lab, front, run)
                await asyncio.to_thread(remains, front.url)
                await lab.controller.terminate()
                await destroy_with_backups(front.url, run)
                await asyncio.to_thread(check_nothing_shared, front.url, shared)
        finally:
            await front.close()
    assert actions_of_the_code() - set(NOT_RECORDED) <= {
        one.action for one in recording.asked.values()
    }
    assert [one for one in recording.asked.values() if not allows(policies, one)] == []
