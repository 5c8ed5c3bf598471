"""EventBridge's events as notices: each kind in its documented form, and malformed ones."""

import json
from typing import Any

import pytest

from autoscaler.controller.ports.capabilities import Notice
from autoscaler.model.identifiers import ProviderMachineId
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.providers.ec2.notices.events import MAX_MACHINES, PoisonError, parse_notice
from autoscaler.providers.ec2.worker.rows import MAX_BODY

ID = "i-0123456789abcdef0"
AT = 1_785_484_800.0
SPOT = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
STATE = "EC2 Instance State-change Notification"
HEALTH = "AWS Health Event"
RETIREMENT = {
    "eventArn": "arn:aws:health:us-east-1::event/EC2/AWS_EC2_RETIREMENT/x",
    "service": "EC2",
    "eventTypeCode": "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED",
    "eventTypeCategory": "scheduledChange",
    "eventScopeCode": "ACCOUNT_SPECIFIC",
    "statusCode": "upcoming",
    "startTime": "Fri, 31 Jul 2026 09:00:00 GMT",
    "eventDescription": [{"language": "en_US", "latestDescription": "..."}],
    "affectedEntities": [{"entityValue": ID, "status": "PENDING"}],
    "page": "1",
    "totalPages": "1",
}


def event(kind: str, detail: Any, source: str = "aws.ec2", **changes: Any) -> str:
    """An event with the fields that EventBridge gives every one."""
    fields = {
        "version": "0",
        "id": "1e5527d7-bb36-4607-3370-4164db56a40e",
        "detail-type": kind,
        "source": source,
        "account": "123456789012",
        "time": "2026-07-31T08:00:00Z",
        "region": "us-east-1",
        "resources": [f"arn:aws:ec2:us-east-1b:instance/{ID}"],
        "detail": detail,
    }
    return json.dumps(fields | changes)


def notice(kind: NoticeKind, detail: str, means_at: float = AT) -> Notice:
    return Notice(kind, (ProviderMachineId(ID),), means_at, detail)


def spot(**changes: Any) -> str:
    return event(SPOT, {"instance-id": ID, "instance-action": "terminate"} | changes)


def health(**changes: Any) -> str:
    return event(HEALTH, RETIREMENT | changes, "aws.health")


@pytest.mark.case(
    "a spot interruption of a ready machine: it is replaced and gets no registration, and its "
    "offering is on hold",
    topic="EC2's machines",
    source="EC2: spot interruption notices",
)
def test_a_spot_interruption_event_becomes_a_notice() -> None:
    assert parse_notice(spot()) == notice(NoticeKind.SPOT_INTERRUPTION, "to terminate")


@pytest.mark.case(
    "a rebalance recommendation",
    topic="EC2's machines",
    source="EC2: rebalance recommendations",
)
def test_a_rebalance_recommendation_event_becomes_a_notice() -> None:
    found = parse_notice(event(REBALANCE, {"instance-id": ID}))
    assert found == notice(NoticeKind.REBALANCE_RECOMMENDATION, "")


@pytest.mark.parametrize("state", ["shutting-down", "stopping", "stopped", "terminated"])
def test_a_final_state_change_event_becomes_a_notice(state: str) -> None:
    found = parse_notice(event(STATE, {"instance-id": ID, "state": state}))
    assert found == notice(NoticeKind.STATE_CHANGE, state)


@pytest.mark.parametrize("state", ["pending", "running"])
def test_a_starting_machine_gives_no_notice(state: str) -> None:
    assert parse_notice(event(STATE, {"instance-id": ID, "state": state})) is None


@pytest.mark.case(
    "a scheduled change by AWS Health, by id or ARN, of several machines at once",
    topic="EC2's machines",
    source="AWS Health: EventBridge schema",
)
def test_a_scheduled_change_applies_from_its_start_time() -> None:
    found = parse_notice(health())
    code = "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED"
    assert found == notice(NoticeKind.SCHEDULED_CHANGE, code, AT + 3600.0)


@pytest.mark.case(
    "a scheduled change by AWS Health, by id or ARN, of several machines at once",
    topic="EC2's machines",
    source="AWS Health: EventBridge schema",
)
def test_a_scheduled_change_names_several_machines_by_id_or_arn() -> None:
    other = "i-00000000000000001"
    entities = [
        {"entityValue": ID},
        {"entityValue": f"arn:aws:ec2:us-east-1:123456789012:instance/{other}"},
        {"entityValue": "vol-0123456789abcdef0"},
    ]
    found = parse_notice(health(affectedEntities=entities))
    assert found is not None
    assert found.machines == (ID, other)


@pytest.mark.parametrize(
    "changes",
    [
        {"service": "RDS"},
        {"eventTypeCategory": "issue"},
        {"eventTypeCategory": "accountNotification"},
        {"statusCode": "closed"},
        {"affectedEntities": []},
        {"affectedEntities": [{"entityValue": "vol-0123456789abcdef0"}]},
    ],
)
def test_unrelated_health_events_are_no_notices(changes: dict[str, Any]) -> None:
    assert parse_notice(health(**changes)) is None


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("aws.ec2", "EC2 Fleet Instance Change"),
        ("aws.s3", "Object Created"),
        ("another.source", SPOT),
        ("aws.ec2", HEALTH),
    ],
)
def test_events_of_other_kinds_are_no_notices(source: str, kind: str) -> None:
    assert parse_notice(event(kind, {"instance-id": ID}, source)) is None


POISON = {
    "empty": "",
    "no JSON": "{",
    "no object": "[]",
    "an SNS envelope": json.dumps({"Type": "Notification", "Message": spot()}),
    "deep": "[" * 100_000,
    "too long": spot() + " " * MAX_BODY,
    "no id": spot().replace('"id"', '"no"'),
    "no instance": event(SPOT, {"instance-action": "terminate"}),
    "another's id": spot(**{"instance-id": "i-0; rm"}),
    "an id with a line after it": spot(**{"instance-id": f"{ID}\n"}),
    "an id that is a number": spot(**{"instance-id": 7}),
    "an action that is none": spot(**{"instance-action": "explode"}),
    "a state that is none": event(STATE, {"instance-id": ID, "state": "lost"}),
    "a detail that is none": event(SPOT, "terminate"),
    "a time that is none": event(SPOT, {}, time="soon"),
    "a time without a zone": event(REBALANCE, {"instance-id": ID}, time="2026-07-31T08:00:00"),
    "a time that never was": event(REBALANCE, {"instance-id": ID}, time="2026-02-31T08:00:00Z"),
    "a start that is none": health(startTime="tomorrow"),
    "a start in no zone": health(startTime=f"Mon, 1 Jan 2024 00:00:00 +{'9' * 20}"),
    "a start in no year": health(startTime=f"Mon, 1 Jan {'9' * 20} 00:00:00 GMT"),
    "a start at no hour": health(startTime=f"Mon, 1 Jan 2024 {'9' * 99}:00:00 GMT"),
    "too many machines": health(affectedEntities=[{"entityValue": ID}] * (MAX_MACHINES + 1)),
    "machines that are none": health(affectedEntities="all"),
    "control characters": event(SPOT, {"instance-id": ID}, source="aws.ec2\x00"),
}


@pytest.mark.case(
    "a message in the queue is unreadable, or arrives again and again",
    topic="EC2's machines",
    source="Karpenter pkg/controllers/interruption",
)
@pytest.mark.parametrize("body", POISON.values(), ids=POISON)
def test_a_malformed_notice_raises_poison_error(body: str) -> None:
    with pytest.raises(PoisonError) as refusal:
        parse_notice(body)
    assert 0 < len(str(refusal.value)) <= 200
    assert ID not in str(refusal.value)


def test_a_scheduled_change_starts_in_the_zone_that_health_names() -> None:
    later = health(startTime="Fri, 31 Jul 2026 09:00:00 +0200")
    utc = health(startTime="Fri, 31 Jul 2026 09:00:00 GMT")
    early, late = parse_notice(later), parse_notice(utc)
    assert early is not None
    assert late is not None
    assert late.means_at - early.means_at == 7200.0


def test_the_error_of_a_malformed_notice_names_the_field() -> None:
    with pytest.raises(PoisonError, match=r"^the body must be a mapping$"):
        parse_notice("[]")
    with pytest.raises(PoisonError, match=r"^time must be text$"):
        parse_notice(spot()[:-1] + ', "time": 5}')


def test_the_error_of_a_malformed_time_repeats_no_part_of_it() -> None:
    detail = {"instance-id": ID, "instance-action": "terminate"}
    with pytest.raises(PoisonError, match=r"^an invalid time$"):
        parse_notice(event(SPOT, detail, time="soon-secret"))
