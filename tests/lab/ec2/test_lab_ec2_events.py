"""The lab's queue of EventBridge's events by the real SDK, and spot that takes machines back."""

import asyncio
import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.providers.ec2.notices.events import parse_notice
from lab.ec2.event_queue import VISIBILITY
from lab.ec2.instances import InstanceState
from tests.lab.ec2.harness import SHUTTING_DOWN, Fixture, connect


async def receive(ec2: Fixture, wait: int = 0) -> list[Any]:
    answer = await connect(ec2.lab, "sqs")(
        "receive_message",
        QueueUrl=ec2.lab.queue_url,
        MaxNumberOfMessages=10,
        WaitTimeSeconds=wait,
        MessageSystemAttributeNames=["ApproximateReceiveCount"],
    )
    return list(answer.get("Messages", ()))


async def delete(ec2: Fixture, *receipts: str) -> Any:
    return await connect(ec2.lab, "sqs")(
        "delete_message_batch",
        QueueUrl=ec2.lab.queue_url,
        Entries=[{"Id": str(n), "ReceiptHandle": one} for n, one in enumerate(receipts)],
    )


def states(messages: list[Any]) -> list[tuple[str, str]]:
    details = [json.loads(message["Body"])["detail"] for message in messages]
    return [(one["instance-id"], one.get("state", one.get("instance-action"))) for one in details]


async def test_terminations_cause_events_in_order_and_launches_cause_none(
    ec2: Fixture,
) -> None:
    (name,) = await ec2.running()
    assert await receive(ec2) == []
    await ec2.ended([name])
    messages = await receive(ec2)
    assert states(messages) == [(name, "shutting-down"), (name, "terminated")]


async def test_a_message_is_delivered_again_until_it_is_deleted_with_its_last_receipt(
    ec2: Fixture,
) -> None:
    ec2.lab.events.send("{}")
    (first,) = await receive(ec2)
    assert await receive(ec2) == []
    await ec2.clock.advance(VISIBILITY)
    (second,) = await receive(ec2)
    assert second["Attributes"]["ApproximateReceiveCount"] == "2"
    answer = await delete(ec2, first["ReceiptHandle"])
    assert [one["Code"] for one in answer["Failed"]] == ["ReceiptHandleIsInvalid"]
    assert len(ec2.lab.events) == 1
    answer = await delete(ec2, second["ReceiptHandle"])
    assert "Failed" not in answer or answer["Failed"] == []
    assert len(ec2.lab.events) == 0


async def test_a_long_poll_ends_with_the_first_message(ec2: Fixture) -> None:
    polling = asyncio.create_task(receive(ec2, wait=20))
    await asyncio.sleep(0.2)
    assert not polling.done()
    ec2.lab.events.send("{}")
    assert len(await polling) == 1


async def test_spot_interrupts_a_machine_with_or_without_a_notice(ec2: Fixture) -> None:
    reported, unreported, cut = await ec2.running(3)
    ec2.lab.interrupt(reported)
    ec2.lab.interrupt(unreported, notice=False)
    ec2.lab.interrupt(cut, notice=False, properly=False)
    await ec2.clock.advance(SHUTTING_DOWN)
    assert set(ec2.host.shut_off) == {reported, unreported}
    assert ec2.host.killed == [cut]
    for one in await ec2.described(InstanceIds=[reported, unreported, cut]):
        assert one["State"]["Name"] == InstanceState.TERMINATED
        assert one["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    messages = await receive(ec2)
    assert states(messages)[0] == (reported, "terminate")
    assert (unreported, "terminate") not in states(messages)
    with pytest.raises(KeyError):
        ec2.lab.interrupt("i-none")


async def test_every_event_is_in_the_form_that_aws_documents(ec2: Fixture) -> None:
    (name,) = await ec2.running()
    ec2.lab.events.rebalance(name)
    ec2.lab.events.scheduled_change(name, ec2.clock.now() + 60.0)
    ec2.lab.events.spot_interruption(name)
    ec2.lab.events.state_changed(name, "stopping")
    notices = [parse_notice(message["Body"]) for message in await receive(ec2)]
    kinds = [notice.kind for notice in notices if notice is not None]
    assert kinds == [
        NoticeKind.REBALANCE_RECOMMENDATION,
        NoticeKind.SCHEDULED_CHANGE,
        NoticeKind.SPOT_INTERRUPTION,
        NoticeKind.STATE_CHANGE,
    ]
    assert [notice.means_at - ec2.clock.now() for notice in notices if notice] == [0, 60, 0, 0]


async def test_unsupported_queue_requests_are_refused(ec2: Fixture) -> None:
    with pytest.raises(ClientError, match="does not do"):
        await connect(ec2.lab, "sqs")("list_queues")
