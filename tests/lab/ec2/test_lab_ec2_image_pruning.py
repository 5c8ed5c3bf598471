"""`autoscaler images prune` and `publish` against the lab's EC2."""

import asyncio
import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from autoscaler.providers.ec2.images.account import SET, AwsBuilds, AwsImages, ImageEc2Error
from autoscaler.providers.ec2.images.pruning import RECIPE, AwsPruning, choose, delete_all
from lab.ec2.instances import Instance
from tests.lab.ec2.harness import Fixture
from tests.lab.system.harness import until
from tests.patience import PATIENCE


async def test_only_old_unused_images_of_the_set_are_deleted_with_their_snapshots(
    ec2: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", ec2.lab.endpoint_url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "lab")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "lab")
    tags = {SET: "ours", RECIPE: "linux-cpu", "autoscaler:published": "2026-11-23T21:00:00Z"}
    images = ec2.lab.images
    old, launched, named, middle, last = (
        images.add(f"autoscaler/{name}", tags=tags) for name in "abcde"
    )
    other = images.add("autoscaler/other", tags=tags | {SET: "theirs"})
    newest = images.add("autoscaler/newest", tags=tags)
    gone = images.add("autoscaler/gone", tags=tags)
    for one in (old, launched, named, middle, last, other, newest, gone):
        images.snapshots.find(one.snapshot_id).tags = one.tags
    await ec2.sdk("deregister_image", ImageId=gone.id)
    place = {"InstanceType": "m7i.large", "SubnetId": ec2.network.subnets[0]}
    await ec2.sdk("run_instances", ImageId=launched.id, MinCount=1, MaxCount=1, **place)
    template = {"LaunchTemplateName": "template", "LaunchTemplateData": {"ImageId": named.id}}
    await ec2.sdk("create_launch_template", **template)
    # Neither the default version nor the latest one, and the latest one without being the default.
    for version in (middle, newest, last):
        data: Any = {"LaunchTemplateData": {"ImageId": version.id}}
        await ec2.sdk("create_launch_template_version", LaunchTemplateName="template", **data)
    await ec2.sdk("modify_launch_template", LaunchTemplateName="template", DefaultVersion="3")

    aws = AwsPruning(ec2.lab.region, "ours")
    found = await asyncio.to_thread(aws.find)
    later = datetime.fromtimestamp(ec2.clock.now(), UTC) + timedelta(days=30)
    deletions = choose(found, later, 1, timedelta(days=14))
    await asyncio.to_thread(delete_all, aws, deletions, lambda _: None)
    left = {one.name for one in images.named("autoscaler/*")}
    assert left == {one.name for one in (launched, named, middle, last, other, newest)}
    snapshots = set(images.snapshots.left())
    assert {old.snapshot_id, gone.snapshot_id} & snapshots == set()
    assert {launched.snapshot_id, named.snapshot_id, other.snapshot_id} < snapshots


async def test_an_image_that_a_parameter_names_in_a_launch_template_is_in_use(
    ec2: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", ec2.lab.endpoint_url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "lab")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "lab")
    named = ec2.lab.images.add("autoscaler/named", tags={SET: "ours"})
    template = {"ImageId": "resolve:ssm:/golden:3"}
    words = {"LaunchTemplateName": "template", "LaunchTemplateData": template}
    await ec2.sdk("create_launch_template", **words)
    aws = AwsPruning(ec2.lab.region, "ours")
    with pytest.raises(
        ImageEc2Error, match=r"lt-\w+: EC2 does not say which image is resolve:ssm:"
    ):
        await asyncio.to_thread(aws.find)
    ec2.lab.templates.parameters["/golden:3"] = named.id
    assert named.id in (await asyncio.to_thread(aws.find)).in_use


async def test_a_snapshot_that_another_image_uses_is_kept_and_named(
    ec2: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", ec2.lab.endpoint_url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "lab")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "lab")
    image = ec2.lab.images.add("autoscaler/old", tags={SET: "ours"})
    aws = AwsPruning(ec2.lab.region, "ours")
    assert await asyncio.to_thread(aws.delete_snapshot, image.snapshot_id) is False
    (found,) = (await asyncio.to_thread(aws.find)).images
    assert await asyncio.to_thread(aws.delete_image, found) == ()


async def test_the_machine_that_tests_an_image_has_the_tag_of_its_set(
    ec2: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the tag, the build role of the Terraform module `images` may not terminate it."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", ec2.lab.endpoint_url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "lab")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "lab")
    image = ec2.lab.images.add("autoscaler/new", tags={SET: "ours"})
    aws = AwsImages(ec2.lab.region, ec2.network.subnets[0], "m7i.large")
    instance = await asyncio.to_thread(aws.launch, image.id, "")
    (machine,) = [one for one in ec2.lab.instances if one.id == instance]
    assert machine.tags[SET] == "ours"


async def test_sigterm_terminates_the_machine_that_tests_an_image(ec2: Fixture) -> None:
    image = ec2.lab.images.add("autoscaler/new", tags={SET: "ours"})
    place = ["--region", ec2.lab.region, "--subnet", ec2.network.subnets[0]]
    words = ["images", "publish", image.id, *place, "--instance-type", "m7i.large"]
    secrets = {"AWS_ACCESS_KEY_ID": "lab", "AWS_SECRET_ACCESS_KEY": "lab"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from autoscaler.cli import main; main()",
        *words,
        env={**os.environ, **secrets, "AWS_ENDPOINT_URL": ec2.lab.endpoint_url},
        stderr=asyncio.subprocess.PIPE,
    )

    def found() -> list[Instance]:
        return [one for one in ec2.lab.instances if one.specification.image == image]

    await until(lambda: bool(found()), PATIENCE, lambda: "no machine")
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(PATIENCE):
        _, errors = await process.communicate()
    assert (
        errors.decode() == f"{image.id}: the test was interrupted, and no machine of it is left\n"
    )
    assert (process.returncode, image.tags) == (130, {SET: "ours"})
    assert [one.state for one in found()] == ["shutting-down"]


async def test_check_asks_ec2_for_the_base_images(
    ec2: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", ec2.lab.endpoint_url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "lab")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "lab")
    ec2.lab.images.add("stock-1")
    there = AwsImages(ec2.lab.region)
    assert await asyncio.to_thread(there.exists, "stock-1", "self")
    assert not await asyncio.to_thread(there.exists, "stock-2", "self")


async def test_the_machine_of_a_build_is_found_by_its_name_and_terminated(
    ec2: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", ec2.lab.endpoint_url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "lab")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "lab")
    builds = AwsBuilds(ec2.lab.region, "linux-cpu-x64-1")
    assert await asyncio.to_thread(builds.state) is None
    assert await asyncio.to_thread(builds.terminate) == ()
    image = ec2.lab.images.add("stock-1")
    tags = [{"Key": "Name", "Value": "build of linux-cpu-x64-1"}]
    launched = await ec2.sdk(
        "run_instances",
        ImageId=image.id,
        InstanceType="m7i.large",
        SubnetId=ec2.network.subnets[0],
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    machine = launched["Instances"][0]["InstanceId"]
    assert await asyncio.to_thread(builds.state) in {"pending", "running"}
    assert await asyncio.to_thread(AwsBuilds(ec2.lab.region, "another").state) is None
    assert await asyncio.to_thread(builds.terminate) == (machine,)
    assert await asyncio.to_thread(builds.state) in {"shutting-down", "terminated"}
    assert await asyncio.to_thread(builds.terminate) == ()
