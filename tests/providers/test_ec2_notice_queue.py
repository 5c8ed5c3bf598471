"""The queue of notices through the real worker: SQS as moto has it, and its refusals."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import boto3
import pytest
import pytest_asyncio

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.providers.ec2.notices.queue import MOST_RECEIVES, Ec2NoticeQueue
from autoscaler.providers.ec2.provider import Ec2Provider
from autoscaler.providers.ec2.settings import Ec2Settings
from autoscaler.providers.ec2.worker.channel import Timeouts, WorkerChannel
from autoscaler.providers.ec2.worker.throttle import MeteredApi, Throttle
from tests.patience import PATIENCE
from tests.providers.conftest import REGION
from tests.providers.doubles import ManualClock, RememberingTelemetry, ScriptedApi
from tests.providers.ec2_keys import with_keys
from tests.providers.test_ec2_notices import ID, POISON, REBALANCE, event, spot

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def sqs(moto_url: str, _credentials: None) -> Any:
    return boto3.client("sqs", region_name=REGION, endpoint_url=moto_url)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def straight(moto_url: str, _credentials: None) -> AsyncIterator[WorkerChannel]:
    """A worker that speaks to moto itself."""
    channel = WorkerChannel(
        REGION, moto_url, Timeouts(connect=PATIENCE, read=PATIENCE, answer=PATIENCE)
    )
    yield channel
    await channel.close()


def queue_at(
    url: str, api: Any, settings: Ec2Settings, telemetry: RememberingTelemetry
) -> Ec2NoticeQueue:
    clock = ManualClock()
    metered = MeteredApi(api, settings.name, telemetry, clock, Throttle(clock))
    return Ec2NoticeQueue(settings, metered, url)


@pytest.mark.case(
    "a rebalance recommendation, of which an interruption seldom follows",
    topic="EC2's machines",
    source="EC2: rebalance recommendations",
)
@pytest.mark.parametrize("wanted", [False, True])
async def test_a_rebalance_recommendation_counts_only_if_the_provider_says_so(
    sqs: Any,
    straight: WorkerChannel,
    settings: Ec2Settings,
    telemetry: RememberingTelemetry,
    wanted: bool,
) -> None:
    url = sqs.create_queue(QueueName=f"rebalance-{wanted}")["QueueUrl"]
    for body in (event(REBALANCE, {"instance-id": ID}), spot()):
        sqs.send_message(QueueUrl=url, MessageBody=body)
    wanting = with_keys(settings, rebalance_recommendations=wanted)
    received = await queue_at(url, straight, wanting, telemetry).receive(1)
    kinds = [one.notice.kind for one in received if one.notice is not None]
    assert [one.poison for one in received] == ["", ""]
    assert (NoticeKind.REBALANCE_RECOMMENDATION in kinds) is wanted
    assert NoticeKind.SPOT_INTERRUPTION in kinds


async def test_messages_are_read_parsed_and_deleted(
    sqs: Any, straight: WorkerChannel, settings: Ec2Settings, telemetry: RememberingTelemetry
) -> None:
    url = sqs.create_queue(QueueName="notices")["QueueUrl"]
    for body in (spot(), "{", event("EC2 Fleet Instance Change", {})):
        sqs.send_message(QueueUrl=url, MessageBody=body)
    queue = queue_at(url, straight, settings, telemetry)
    known, poison, other = await queue.receive(1)
    assert known.notice is not None
    assert known.notice.kind is NoticeKind.SPOT_INTERRUPTION
    assert known.notice.machines == (ID,)
    assert (poison.notice, poison.excerpt) == (None, "{")
    assert "JSON" in poison.poison
    assert (other.notice, other.poison) == (None, "")
    assert "receipt" not in repr(known)
    await queue.settle([known.receipt, poison.receipt, other.receipt])
    await queue.settle([known.receipt])
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert attributes["ApproximateNumberOfMessages"] == "0"
    assert attributes["ApproximateNumberOfMessagesNotVisible"] == "0"
    assert await queue.receive(0) == ()
    assert telemetry.calls[:2] == [("ReceiveMessage", "ok"), ("DeleteMessageBatch", "ok")]


@pytest.mark.case(
    "a message in the queue is unreadable, or arrives again and again",
    topic="EC2's machines",
    source="Karpenter pkg/controllers/interruption",
)
async def test_a_message_that_is_received_too_often_is_set_aside(
    sqs: Any, straight: WorkerChannel, settings: Ec2Settings, telemetry: RememberingTelemetry
) -> None:
    attributes = {"VisibilityTimeout": "0"}
    url = sqs.create_queue(QueueName="again", Attributes=attributes)["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody=spot())
    queue = queue_at(url, straight, settings, telemetry)
    seen = set()
    for _ in range(MOST_RECEIVES):
        (message,) = await queue.receive(0)
        assert message.notice is not None
        seen.add(message.id)
    (message,) = await queue.receive(0)
    assert {message.id} == seen
    assert message.notice is None
    assert message.poison == f"received {MOST_RECEIVES + 1} times"


@pytest.mark.case(
    "the queue does not exist, or may not be read",
    topic="EC2's machines",
    source="Karpenter pkg/controllers/interruption",
)
async def test_a_missing_queue_is_a_configuration_error(
    sqs: Any, straight: WorkerChannel, settings: Ec2Settings, telemetry: RememberingTelemetry
) -> None:
    url = sqs.create_queue(QueueName="gone")["QueueUrl"]
    sqs.delete_queue(QueueUrl=url)
    queue = queue_at(url, straight, settings, telemetry)
    with pytest.raises(ProviderError) as refusal:
        await queue.receive(0)
    assert refusal.value.failure is FailureClass.CONFIGURATION


async def test_a_message_that_sqs_does_not_delete_is_an_error_unless_its_receipt_is_old(
    settings: Ec2Settings, telemetry: RememberingTelemetry
) -> None:
    def refuse(operation: str, arguments: Mapping[str, Any]) -> Any:
        return [("InternalError", "words")] if "r-1" in arguments["receipts"] else []

    api = ScriptedApi(refuse)
    queue = queue_at("https://sqs/q", api, settings, telemetry)
    await queue.settle(["r-0"])
    with pytest.raises(ProviderError, match="InternalError"):
        await queue.settle(["r-0", "r-1"])
    asked = {"url": "https://sqs/q", "receipts": ["r-0", "r-1"]}
    assert api.calls[1:] == [("DeleteMessageBatch", asked)]


@pytest.mark.case(
    "a message in the queue is unreadable, or arrives again and again",
    topic="EC2's machines",
    source="Karpenter pkg/controllers/interruption",
)
async def test_malformed_messages_do_not_affect_others_of_the_same_batch(
    settings: Ec2Settings, telemetry: RememberingTelemetry
) -> None:
    bodies = [*POISON.values(), spot()]
    rows = [[f"m-{n}", f"r-{n}", body, 1] for n, body in enumerate(bodies)]
    queue = queue_at("https://sqs/q", ScriptedApi(lambda *_: rows), settings, telemetry)
    *bad, good = await queue.receive(0)
    assert all(message.poison and message.notice is None for message in bad)
    assert good.notice is not None


async def test_a_provider_has_a_notice_queue_if_one_is_configured(
    settings: Ec2Settings, telemetry: RememberingTelemetry
) -> None:
    api = ScriptedApi(lambda operation, arguments: [])
    plain = Ec2Provider(settings, telemetry, ManualClock(), api)
    assert plain.capabilities.notices is None
    reported = with_keys(settings, interruption_queue="https://sqs/q")
    queue = Ec2Provider(reported, telemetry, ManualClock(), api).capabilities.notices
    assert queue is not None
    assert await queue.receive(99) == ()
    assert api.calls == [("ReceiveMessage", {"url": "https://sqs/q", "wait": 20, "most": 10})]
