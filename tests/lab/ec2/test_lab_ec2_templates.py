"""Launch templates: created, found, listed in pages, versioned, deleted, and used by launches."""

import pytest
from botocore.exceptions import ClientError

from tests.lab.ec2.harness import Fixture, launched


async def make(ec2: Fixture, name: str, fleet: str = "ci", **data: object) -> str:
    made = await ec2.sdk(
        "create_launch_template",
        LaunchTemplateName=name,
        LaunchTemplateData={"ImageId": ec2.image.id} | data,
        TagSpecifications=[
            {"ResourceType": "launch-template", "Tags": [{"Key": "fleet", "Value": fleet}]}
        ],
    )
    return str(made["LaunchTemplate"]["LaunchTemplateId"])


async def test_a_template_is_dated_by_the_labs_clock_and_keeps_its_tags(ec2: Fixture) -> None:
    await ec2.clock.advance(7200.0)
    name = await make(ec2, "gpu")
    (shown,) = (await ec2.sdk("describe_launch_templates", LaunchTemplateIds=[name]))[
        "LaunchTemplates"
    ]
    assert shown["CreateTime"].timestamp() == ec2.clock.now()
    assert shown["Tags"] == [{"Key": "fleet", "Value": "ci"}]
    assert (shown["DefaultVersionNumber"], shown["LatestVersionNumber"]) == (1, 1)


@pytest.mark.case(
    "launch templates that nothing needs are deleted, those of others are kept",
    topic="Images and disks",
    source="EC2: launch templates",
)
async def test_templates_are_listed_by_tag_in_pages(ec2: Fixture) -> None:
    ours = [await make(ec2, f"ours-{number}") for number in range(17)]
    await make(ec2, "theirs", fleet="other")
    seen: list[str] = []
    wanted = [{"Name": "tag:fleet", "Values": ["ci"]}]
    params: dict[str, object] = {"Filters": wanted, "MaxResults": 8}
    while True:
        page = await ec2.sdk("describe_launch_templates", **params)
        seen += [one["LaunchTemplateId"] for one in page["LaunchTemplates"]]
        if not page.get("NextToken"):
            break
        params["NextToken"] = page["NextToken"]
    assert seen == ours
    # Without a size for its pages everything comes at once.
    everything = (await ec2.sdk("describe_launch_templates"))["LaunchTemplates"]
    assert len(everything) == 17 + 1 + 1


@pytest.mark.parametrize(
    ("tags", "code", "message"),
    [
        ({"aws:team": "x"}, "InvalidParameterValue", "reserved for internal use"),
        ({"AWS:team": "x"}, "InvalidParameterValue", "reserved for internal use"),
        ({"k" * 129: "x"}, "InvalidParameterValue", "128"),
        ({"k": "v" * 257}, "InvalidParameterValue", "256"),
        ({f"k{number}": "v" for number in range(51)}, "TagLimitExceeded", "More than 50"),
    ],
)
async def test_tags_that_ec2_reserves_or_does_not_store_are_refused(
    ec2: Fixture, tags: dict[str, str], code: str, message: str
) -> None:
    written = [{"Key": key, "Value": value} for key, value in tags.items()]
    with pytest.raises(ClientError) as error:
        await ec2.fleet(1, TagSpecifications=[{"ResourceType": "instance", "Tags": written}])
    found = error.value.response["Error"]
    assert (found["Code"], message in found["Message"]) == (code, True)
    assert len(ec2.lab.instances) == 0


async def test_the_tags_of_template_and_request_count_together(ec2: Fixture) -> None:
    # The fixture's template has one tag of its own.
    written = [{"Key": f"k{number}", "Value": "v"} for number in range(50)]
    answer = await ec2.fleet(1, TagSpecifications=[{"ResourceType": "instance", "Tags": written}])
    assert {one["ErrorCode"] for one in answer["Errors"]} == {"TagLimitExceeded"}


async def test_a_repeated_tag_is_refused(ec2: Fixture) -> None:
    twice = [{"Key": "k", "Value": "v"}, {"Key": "k", "Value": "w"}]
    with pytest.raises(ClientError, match="Duplicate tag key 'k'"):
        await ec2.fleet(1, TagSpecifications=[{"ResourceType": "instance", "Tags": twice}])


async def test_a_deleted_template_is_found_neither_by_id_nor_by_name(ec2: Fixture) -> None:
    name = await make(ec2, "gone")
    await ec2.sdk("delete_launch_template", LaunchTemplateName="gone")
    for params, code in (
        ({"LaunchTemplateIds": [name]}, "InvalidLaunchTemplateId.NotFound"),
        ({"LaunchTemplateNames": ["gone"]}, "InvalidLaunchTemplateName.NotFoundException"),
    ):
        with pytest.raises(ClientError) as error:
            await ec2.sdk("describe_launch_templates", **params)
        assert error.value.response["Error"]["Code"] == code
    with pytest.raises(ClientError, match=r"InvalidLaunchTemplateId\.NotFound"):
        await ec2.sdk("delete_launch_template", LaunchTemplateId=name)
    await make(ec2, "gone")
    assert "gone" in ec2.lab.templates.names


async def test_versions_are_kept_and_the_default_is_moved(ec2: Fixture) -> None:
    first = ec2.template
    newer = ec2.lab.images.publish(ec2.image, "runner-linux-2")
    made = await ec2.sdk(
        "create_launch_template_version",
        LaunchTemplateId=first,
        VersionDescription="newer image",
        LaunchTemplateData={"ImageId": newer.id, "SecurityGroupIds": ["sg-1"]},
    )
    assert made["LaunchTemplateVersion"]["VersionNumber"] == 2
    assert await _image_of(ec2, "$Default") == ec2.image.id
    assert await _image_of(ec2, "$Latest") == newer.id
    await ec2.sdk("modify_launch_template", LaunchTemplateId=first, DefaultVersion="2")
    assert await _image_of(ec2, "$Default") == newer.id
    assert await _image_of(ec2, "1") == ec2.image.id
    with pytest.raises(ClientError, match=r"InvalidLaunchTemplateId\.VersionNotFound"):
        await _image_of(ec2, "3")


async def _image_of(ec2: Fixture, version: str) -> str:
    """Which image a fleet launches from this version."""
    overrides = [{"InstanceType": "g5.xlarge", "SubnetId": ec2.network.subnets[0]}]
    template = {"LaunchTemplateId": ec2.template, "Version": version}
    configs = [{"LaunchTemplateSpecification": template, "Overrides": overrides}]
    (name,) = launched(await ec2.fleet(1, LaunchTemplateConfigs=configs))
    one = ec2.lab.instances.find(name)
    assert one is not None
    return one.specification.image.id


async def test_a_versions_data_is_shown_as_it_was_given(ec2: Fixture) -> None:
    (shown,) = (
        await ec2.sdk(
            "describe_launch_template_versions", LaunchTemplateId=ec2.template, Versions=["1"]
        )
    )["LaunchTemplateVersions"]
    data = shown["LaunchTemplateData"]
    assert shown["DefaultVersion"] is True
    assert data["ImageId"] == ec2.image.id
    assert data["SecurityGroupIds"] == [ec2.network.security_group]
    assert data["IamInstanceProfile"] == {"Name": "runner"}
    assert data["MetadataOptions"] == {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}
    (disk,) = data["BlockDeviceMappings"]
    assert disk["Ebs"] == {"VolumeSize": 100, "DeleteOnTermination": True, "Encrypted": True}
    assert data["TagSpecifications"] == [
        {"ResourceType": "instance", "Tags": [{"Key": "from", "Value": "template"}]}
    ]


async def test_the_same_token_makes_one_template(ec2: Fixture) -> None:
    request = {
        "LaunchTemplateName": "once",
        "LaunchTemplateData": {"ImageId": ec2.image.id},
        "ClientToken": "t-1",
    }
    first = await ec2.sdk("create_launch_template", **request)
    again = await ec2.sdk("create_launch_template", **request)
    assert first["LaunchTemplate"] == again["LaunchTemplate"]
    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        await ec2.sdk("create_launch_template", **(request | {"LaunchTemplateName": "twice"}))


@pytest.mark.parametrize("name", ["ab", "x" * 129])
async def test_a_name_of_the_wrong_length_is_refused(ec2: Fixture, name: str) -> None:
    with pytest.raises(ClientError) as error:
        await make(ec2, name)
    assert error.value.response["Error"]["Code"] == "InvalidLaunchTemplateName.MalformedException"
