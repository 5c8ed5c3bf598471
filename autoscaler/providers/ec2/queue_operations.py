"""The calls to SQS that read a queue of notices, with small tuples as results.

Runs in the worker process only. Each function sends one request, without retries.
"""

from autoscaler.providers.ec2.clients import Arguments, Clients
from autoscaler.providers.ec2.rows import MAX_BODY, MAX_TEXT, MessageRow


def receive_message(clients: Clients, arguments: Arguments) -> list[MessageRow]:
    """Return at most `most` messages of the queue `url`; waits `wait` whole seconds for the first."""
    answer = clients.sqs.receive_message(
        QueueUrl=arguments["url"],
        MaxNumberOfMessages=arguments["most"],
        WaitTimeSeconds=arguments["wait"],
        MessageSystemAttributeNames=["ApproximateReceiveCount"],
    )
    return [
        MessageRow(
            one["MessageId"],
            one["ReceiptHandle"],
            # One character more than the limit, so that the parser sees that the body is too long.
            one.get("Body", "")[: MAX_BODY + 1],
            int(one.get("Attributes", {}).get("ApproximateReceiveCount", "1")),
        )
        for one in answer.get("Messages", ())
    ]


def delete_message_batch(clients: Clients, arguments: Arguments) -> list[tuple[str, str]]:
    """Delete the messages of these `receipts` from the queue `url`; return refusals with reasons.

    An unknown receipt is not a refusal: the message was deleted, or will be received again.
    """
    entries = [
        {"Id": str(number), "ReceiptHandle": receipt}
        for number, receipt in enumerate(arguments["receipts"])
    ]
    answer = clients.sqs.delete_message_batch(QueueUrl=arguments["url"], Entries=entries)
    return [
        (one["Code"], one.get("Message", "")[:MAX_TEXT])
        for one in answer.get("Failed", ())
        if not one["Code"].startswith("ReceiptHandle")
    ]
