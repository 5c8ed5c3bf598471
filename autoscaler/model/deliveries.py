"""What happens to a webhook delivery: a code for metrics, logs and runbooks, and a message for operators."""

from enum import StrEnum


class DeliveryAnswer(StrEnum):
    """The outcome of one delivery.

    Taken:

    accepted          stored, durably
    duplicate         a delivery with the same body is stored already
    ignored           no event that the controller needs
    ping              GitHub's test of the webhook

    Refused, so that GitHub counts the delivery as failed:

    bad_signature     not signed with the webhook secret
    malformed         not a delivery of GitHub's, or one that the controller cannot read
    unsupported_type  the body is not plain JSON
    too_large         the body is too large
    too_slow          the body did not arrive in time
    shed              the deliveries that are being read fill the memory for them
    store_stalled     deliveries wait for the store, and it has ended no write for some seconds
    store_failed      the store did not write the delivery
    failed            a bug

    aborted           the sender disconnected before the answer
    """

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    IGNORED = "ignored"
    PING = "ping"
    BAD_SIGNATURE = "bad_signature"
    MALFORMED = "malformed"
    UNSUPPORTED_TYPE = "unsupported_type"
    TOO_LARGE = "too_large"
    TOO_SLOW = "too_slow"
    SHED = "shed"
    STORE_STALLED = "store_stalled"
    STORE_FAILED = "store_failed"
    FAILED = "failed"
    ABORTED = "aborted"
