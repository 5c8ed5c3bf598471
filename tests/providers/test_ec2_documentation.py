"""docs/ec2.md says what the code does: the permissions it needs, and every code's class."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from autoscaler.ledger.failures.failure_counts import BACKOFFS
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.ec2.errors import MEANINGS, Meaning
from autoscaler.providers.ec2.notices.events import PARSERS
from autoscaler.providers.ec2.tags import FLEET
from autoscaler.providers.ec2.worker.operations import OPERATIONS
from autoscaler.providers.ec2.worker.throttle import BACKOFF
from lab.ec2.event_queue import MATCHED_STATES

ROOT = Path(__file__).parents[2]
MODULES = ROOT / "terraform" / "modules"
TEXT = (ROOT / "docs" / "ec2.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
READING = ("Describe", "List", "Get")

WITHOUT_TAGS = {"LaunchFrom", "LaunchInto", "GiveMachinesTheirRole", "ReadNotices", "UseKeyOfDisks"}
WITHOUT_TAGS |= {"LetMachinesUseKeyOfDisks", "ConnectWithinSubnets"}
FOR_DISKS = {"kms:DescribeKey", "kms:ReEncrypt*", "kms:Decrypt", "kms:GenerateDataKey*"}
"""The KMS actions that encrypted disks need (policy of github-aws-runners/terraform-aws-github-runner)."""


def statements() -> list[dict[str, Any]]:
    policy, _ = BLOCKS
    found: list[dict[str, Any]] = json.loads(policy)["Statement"]
    return found


def actions(statement: dict[str, Any]) -> set[str]:
    named = statement["Action"]
    return {named} if isinstance(named, str) else set(named)


def test_the_policy_allows_exactly_the_calls_and_their_dependent_actions() -> None:
    calls = {f"ec2:{name}" for name in OPERATIONS} - {"ec2:GetCallerIdentity"}
    calls -= {"ec2:ListServiceQuotas", "ec2:ReceiveMessage", "ec2:DeleteMessageBatch"}
    calls -= {"ec2:GetProducts"}
    expected = calls | {"servicequotas:ListServiceQuotas", "pricing:GetProducts"}
    expected |= {"sqs:ReceiveMessage", "sqs:DeleteMessage"}
    expected |= {
        "ec2:RunInstances",
        "ec2:CreateTags",
        "iam:PassRole",
        "kms:CreateGrant",
    } | FOR_DISKS
    assert set().union(*(actions(one) for one in statements())) == expected


@pytest.mark.case(
    "least privilege, restricted to the fleet's tag",
    topic="EC2's API",
    source="EC2: IAM policies",
)
def test_the_policy_binds_tagging_terminating_and_deleting_to_the_fleets_tag() -> None:
    for statement in statements():
        changing = {one for one in actions(statement) if not one.split(":")[1].startswith(READING)}
        if not changing or statement["Sid"] in WITHOUT_TAGS:
            continue
        equals = statement["Condition"]["StringEquals"]
        assert [value for key, value in equals.items() if key.endswith(f"/{FLEET}")] == ["FLEET"]


def test_the_disk_key_can_be_used_only_by_ec2_for_instances() -> None:
    by_sid = {one["Sid"]: one for one in statements()}
    use, delegate = by_sid["UseKeyOfDisks"], by_sid["LetMachinesUseKeyOfDisks"]
    assert actions(use) == FOR_DISKS
    assert actions(delegate) == {"kms:CreateGrant"}
    assert delegate["Condition"]["Bool"] == {"kms:GrantIsForAWSResource": "true"}
    for one in (use, delegate):
        assert one["Condition"]["StringEquals"] == {"kms:ViaService": "ec2.REGION.amazonaws.com"}
        assert one["Resource"].startswith("arn:aws:kms:")


def test_the_spot_role_may_use_the_disk_key() -> None:
    (command,) = re.findall(r"aws kms create-grant .*?\n```", TEXT, re.DOTALL)
    assert "/spot.amazonaws.com/AWSServiceRoleForEC2Spot" in command
    operations = set(command.partition("--operations ")[2].replace("\\", "").split()) - {"```"}
    assert {
        "Decrypt",
        "DescribeKey",
        "CreateGrant",
        "GenerateDataKeyWithoutPlaintext",
    } <= operations


def test_permissions_without_a_condition_create_no_resource() -> None:
    (from_what,) = (one for one in statements() if one["Sid"] == "LaunchFrom")
    made = {"fleet", "instance", "launch-template", "volume"}
    assert not made & {arn.rpartition(":")[2].partition("/")[0] for arn in from_what["Resource"]}


def test_the_policy_allows_launches_into_what_a_launch_option_names() -> None:
    (from_what,) = (one for one in statements() if one["Sid"] == "LaunchFrom")
    named = {arn.rpartition(":")[2] for arn in from_what["Resource"]}
    assert {"capacity-reservation/*", "placement-group/*"} <= named


def test_terraform_makes_the_documented_event_rules() -> None:
    assert json.loads(
        (MODULES / "interruptions" / "event-patterns.json").read_text()
    ) == json.loads(BLOCKS[1])


def test_the_event_rules_match_exactly_the_events_that_are_read() -> None:
    rules = list(json.loads(BLOCKS[1]).values())
    passed = {(source, kind) for r in rules for source in r["source"] for kind in r["detail-type"]}
    assert passed == set(PARSERS)
    states = [r["detail"]["state"] for r in rules if "state" in r.get("detail", {})]
    assert [set(one) for one in states] == [MATCHED_STATES]


@pytest.mark.case(
    "every error code has a class that decides what to do next",
    topic="EC2's API",
    source="Karpenter pkg/errors",
)
def test_every_error_code_is_documented_in_the_row_of_its_class() -> None:
    rows = re.findall(r"^\| (\w+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", TEXT, re.MULTILINE)[1:]
    expected: dict[Meaning, set[str]] = {}
    for code, meaning in MEANINGS.items():
        expected.setdefault(meaning, set()).add(code)
    found = {frozenset(re.findall(r"`([^`]+)`", codes)): failure for failure, codes, _, _ in rows}
    assert found == {frozenset(codes): one.failure for one, codes in expected.items()}
    for failure, _, _, hold in rows:
        growth = next(one for kind, one in BACKOFFS.items() if kind == failure)
        reported = re.findall(r"(\d+) (s|min)", hold)
        seconds = [float(number) * {"s": 1, "min": 60}[unit] for number, unit in reported]
        edge = [BACKOFF.first] if failure == FailureClass.THROTTLED else []
        grows = [growth.longest] if growth.longest > growth.first else []
        assert seconds == [growth.first, *edge, *grows], failure
    assert BACKOFFS[FailureClass.THROTTLED].longest == BACKOFF.longest
