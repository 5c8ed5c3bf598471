"""What examples/several-regions makes for each region. Its own tests apply it with mocked providers.

Those tests compare outputs. The tests here read the resources in the state that `terraform test` leaves.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from lab.terraform.commands import Terraform
from lab.terraform.parts import Parts
from tests.terraform.fleet_files import check
from tests.terraform.policy_evaluation import Authorization, allows

REGIONS = {"us-east-1": "us-west-2", "us-west-2": "us-east-1"}
"""Each region, and the other one."""

MARKS = {"us-east-1": "0000000000000000e", "us-west-2": "0000000000000000f"}
"""The end of the IDs that the mocked provider of each region gives."""

ACCOUNT = "123456789012"


@pytest.fixture(scope="module")
def state(parts: Parts, source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The state after the only run of the example's tests."""
    folder = source / "examples" / "several-regions"
    with Terraform(parts, folder, tmp_path_factory.mktemp("several-regions")) as terraform:
        terraform.init()
        printed = terraform.succeed("test", "-json", "-verbose").splitlines()
    (found,) = (one["test_state"] for one in map(json.loads, printed) if "test_state" in one)
    made: dict[str, Any] = found
    return made


@pytest.fixture(scope="module")
def resources(state: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The values of each resource, by its address."""
    return dict(_resources(state["root_module"]))


def _resources(module: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for one in module.get("resources", ()):
        yield one["address"], one["values"]
    for below in module.get("child_modules", ()):
        yield from _resources(below)


def named(region: str) -> str:
    """Return the region as the names of modules have it."""
    return region.replace("-", "_")


def policy(resources: Mapping[str, Mapping[str, Any]], region: str) -> dict[str, Any]:
    """Return the controller's policy for one region."""
    address = f"module.{named(region)}.module.permissions.aws_iam_policy.controller"
    found: dict[str, Any] = json.loads(resources[address]["policy"])
    return found


def own_ids(fleet_file: str) -> str:
    """Return the file with an ID of its own for each subnet: a mocked provider gives all of them the same."""
    numbers = itertools.count()
    return re.sub(r"subnet-[0-9a-f]+", lambda _: f"subnet-{next(numbers):017x}", fleet_file)


def test_check_accepts_the_fleet_file(state: Mapping[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(own_ids(state["outputs"]["fleet_yaml"]["value"]))
    status, printed = check(file)
    assert status == 0, printed


def test_the_controller_has_the_policy_of_each_region(
    resources: Mapping[str, Mapping[str, Any]],
) -> None:
    for region in REGIONS:
        attached = resources[f'module.controller.aws_iam_role_policy_attachment.fleet["{region}"]']
        made = resources[f"module.{named(region)}.module.permissions.aws_iam_policy.controller"]
        assert attached["policy_arn"] == made["arn"]
        assert attached["role"] == resources["module.controller.aws_iam_role.controller"]["name"]


@pytest.mark.parametrize(("region", "other"), REGIONS.items())
def test_the_policy_of_a_region_is_for_its_own_subnets_queue_and_role(
    resources: Mapping[str, Mapping[str, Any]], region: str, other: str
) -> None:
    policies = [policy(resources, region)]
    passed = {"iam:PassedToService": "ec2.amazonaws.com"}

    def requests(place: str) -> list[Authorization]:
        subnet = f"arn:aws:ec2:{place}:{ACCOUNT}:subnet/subnet-{MARKS[place]}"
        queue = f"arn:aws:sqs:{place}:{ACCOUNT}:ci-gpu-interruptions"
        role = f"arn:aws:iam::{ACCOUNT}:role/ci-gpu-runner-{place}"
        return [
            Authorization("ec2:RunInstances", subnet),
            Authorization("sqs:ReceiveMessage", queue),
            Authorization("iam:PassRole", role, passed),
        ]

    assert [allows(policies, asked) for asked in requests(region)] == [True] * 3
    assert [allows(policies, asked) for asked in requests(other)] == [False] * 3


@pytest.mark.parametrize("region", REGIONS)
def test_the_events_of_a_region_go_into_its_queue(
    resources: Mapping[str, Mapping[str, Any]], region: str
) -> None:
    prefix = f"module.{named(region)}.module.interruptions."
    queue = resources[f"{prefix}aws_sqs_queue.events"]["arn"]
    targets = {
        address: one["arn"]
        for address, one in resources.items()
        if address.startswith(f"{prefix}aws_cloudwatch_event_target.")
    }
    assert len(targets) == 3
    assert (
        set(targets.values()) == {queue} == {f"arn:aws:sqs:{region}:{ACCOUNT}:ci-gpu-interruptions"}
    )


@pytest.mark.parametrize("region", REGIONS)
def test_the_machines_of_a_region_get_a_group_in_its_network(
    resources: Mapping[str, Mapping[str, Any]], region: str
) -> None:
    group = resources[f"module.runner_{named(region)}.aws_security_group.runner"]
    assert group["vpc_id"] == f"vpc-{MARKS[region]}"
    assert group["ingress"] == []


def test_the_networks_of_the_regions_do_not_overlap(
    resources: Mapping[str, Mapping[str, Any]],
) -> None:
    """So that they can be peered."""
    cidrs = [
        resources[f"module.{named(region)}.module.network.aws_vpc.fleet"]["cidr_block"]
        for region in REGIONS
    ]
    assert cidrs == ["10.64.0.0/16", "10.65.0.0/16"]


def test_machines_of_both_regions_and_operators_reach_the_controller(
    resources: Mapping[str, Mapping[str, Any]],
) -> None:
    rule = "module.controller.aws_vpc_security_group_ingress_rule.load_balancer["
    rules = [one for address, one in resources.items() if address.startswith(rule)]
    assert sorted((one["from_port"], one["cidr_ipv4"]) for one in rules) == [
        (443, "0.0.0.0/0"),
        (8443, "192.0.2.1/32"),
        (8443, "198.51.100.1/32"),
        (8443, "203.0.113.0/24"),
    ]
