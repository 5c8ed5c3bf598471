"""The policy evaluator decides as the IAM User Guide says."""

from typing import Any

import pytest

from tests.terraform.policy_evaluation import Authorization, allows

READ = Authorization("s3:GetObject", "arn:aws:s3:::one/key", {"aws:ResourceTag/Team": "a"})


def policy(effect: str = "Allow", **elements: Any) -> dict[str, Any]:
    return {
        "Statement": [{"Effect": effect, "Action": "s3:GetObject", "Resource": "*", **elements}]
    }


def test_nothing_is_allowed_without_a_statement() -> None:
    assert not allows([{"Statement": []}], READ)


def test_a_deny_wins_over_any_allow() -> None:
    assert allows([policy()], READ)
    assert not allows([policy(), policy("Deny", Action="*")], READ)


@pytest.mark.parametrize(
    ("elements", "allowed"),
    [
        ({"Action": "s3:get*"}, True),
        ({"Action": ["s3:PutObject", "s3:Get?b*"]}, True),
        ({"Action": "s3:Get"}, False),
        ({"Resource": "arn:aws:s3:::one/*"}, True),
        ({"Resource": "arn:aws:s3:::ONE/*"}, False),
        ({"Resource": ["arn:aws:s3:::two/*", "arn:aws:s3:::on[e]/key"]}, False),
    ],
)
def test_actions_ignore_case_and_resources_do_not(elements: dict[str, Any], allowed: bool) -> None:
    assert allows([policy(**elements)], READ) is allowed


@pytest.mark.parametrize(
    ("condition", "allowed"),
    [
        ({"StringEquals": {"aws:resourcetag/Team": "a"}}, True),
        ({"StringEquals": {"aws:ResourceTag/team": "a"}}, False),
        ({"StringEquals": {"aws:ResourceTag/Team": ["b", "a"]}}, True),
        ({"StringEquals": {"aws:ResourceTag/Team": "A"}}, False),
        ({"StringEquals": {"aws:ResourceTag/Team": "*"}}, False),
        ({"StringLike": {"aws:ResourceTag/Team": "*"}}, True),
        ({"StringEquals": {"aws:ResourceTag/Team": "a", "ec2:CreateAction": "x"}}, False),
        ({"Bool": {"aws:SecureTransport": "true"}}, False),
        ({"StringEqualsIfExists": {"aws:ResourceTag/Team": "b"}}, False),
        ({"StringEqualsIfExists": {"aws:ResourceTag/Team": "a"}}, True),
        ({"StringEqualsIfExists": {"aws:ResourceTag/team": "b"}}, True),
    ],
)
def test_every_condition_must_hold_and_a_missing_key_does_not(
    condition: dict[str, Any], allowed: bool
) -> None:
    assert allows([policy(Condition=condition)], READ) is allowed


@pytest.mark.parametrize(
    ("values", "allowed"),
    [(("a", "b"), True), ("a", True), (("a", "c"), False), ((), True), (None, True)],
)
def test_for_all_values_also_holds_without_a_value(
    values: str | tuple[str, ...] | None, allowed: bool
) -> None:
    condition = {"ForAllValues:StringEquals": {"aws:TagKeys": ["a", "b"]}}
    context = {} if values is None else {"aws:TagKeys": values}
    asked = Authorization(READ.action, READ.resource, context)
    assert allows([policy(Condition=condition)], asked) is allowed


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("aws:ResourceTag/Team", "false", True),
        ("aws:ResourceTag/Team", "true", False),
        ("aws:TagKeys", "true", True),
        ("aws:TagKeys", "false", False),
    ],
)
def test_null_asks_whether_the_request_has_the_key(key: str, value: str, allowed: bool) -> None:
    assert allows([policy(Condition={"Null": {key: value}})], READ) is allowed


def test_a_resources_policy_allows_only_the_principals_that_it_names() -> None:
    ours, theirs = (f"arn:aws:iam::{account}:root" for account in ("1" * 12, "2" * 12))
    named = [policy(Principal={"AWS": ours})]
    assert allows(named, Authorization(READ.action, READ.resource, READ.context, ours))
    assert not allows(named, Authorization(READ.action, READ.resource, READ.context, theirs))
    assert not allows(named, READ)
    assert not allows([policy()], Authorization(READ.action, READ.resource, READ.context, ours))


@pytest.mark.parametrize(
    "elements",
    [
        {"NotResource": "*"},
        {"Condition": {"DateEquals": {"a": "b"}}},
        {"Principal": {"Service": "a"}},
    ],
)
def test_what_the_evaluator_does_not_know_is_an_error(elements: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="unknown"):
        allows([policy(**elements)], READ)
