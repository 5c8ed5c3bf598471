"""Parses EventBridge's events about instances into notices, with one parser for each kind. Pure.

Ignores events of other kinds. Raises PoisonError for a malformed event of these kinds, and for a body
that is not an event.

Formats: EC2 User Guide, "Spot Instance interruption notices", "EC2 instance rebalance
recommendations", "Automate Amazon EC2 using EventBridge"; AWS Health User Guide, "EventBridge
schema". Karpenter's `pkg/controllers/interruption/messages` reads the same four.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from autoscaler.config.reading.wording import phrase
from autoscaler.controller.ports.capabilities import Notice
from autoscaler.model.identifiers import Instant, ProviderMachineId
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.providers.ec2.worker.rows import MAX_BODY

MAX_MACHINES = 1000
_INSTANCE = r"i-[0-9a-f]{8,17}"
_RESOURCE = re.compile(rf"(?:arn:[\w-]+:ec2:[\w-]*:\d*:instance/)?({_INSTANCE})", re.ASCII)


class PoisonError(ValueError):
    """The message is unreadable. The text has the reason, and no part of the message."""


_InstanceId = Annotated[str, Field(pattern=rf"^{_INSTANCE}$")]
_Word = Annotated[str, Field(max_length=200, pattern=r"^[ -~]*$")]
_Time = Annotated[str, Field(max_length=40)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", hide_input_in_errors=True)


class _Envelope(_Part):
    """The fields that all events of EventBridge have."""

    id: _Word
    source: _Word
    kind: Annotated[_Word, Field(alias="detail-type")]
    time: _Time


class _OfInstance(_Part):
    instance: Annotated[_InstanceId, Field(alias="instance-id")]


class _Interruption(_OfInstance):
    action: Annotated[Literal["terminate", "stop", "hibernate"], Field(alias="instance-action")]


class _StateChange(_OfInstance):
    state: Literal["pending", "running", "shutting-down", "stopping", "stopped", "terminated"]


class _Entity(_Part):
    value: Annotated[_Word, Field(alias="entityValue")]


class _Health(_Part):
    service: _Word
    category: Annotated[_Word, Field(alias="eventTypeCategory")]
    code: Annotated[_Word, Field(alias="eventTypeCode")] = ""
    status: Annotated[_Word, Field(alias="statusCode")] = ""
    start: Annotated[_Word, Field(alias="startTime")] = ""
    entities: Annotated[list[_Entity], Field(alias="affectedEntities", max_length=MAX_MACHINES)] = (
        Field(default_factory=list)
    )


class _InterruptionEvent(_Envelope):
    detail: _Interruption


class _RebalanceEvent(_Envelope):
    detail: _OfInstance


class _StateChangeEvent(_Envelope):
    detail: _StateChange


class _HealthEvent(_Envelope):
    detail: _Health


def parse_notice(body: str) -> Notice | None:
    """Return the notice in a message's body; None for an event of another kind.

    Raises PoisonError.
    """
    if len(body) > MAX_BODY:
        raise PoisonError(f"longer than {MAX_BODY} characters")
    try:
        envelope = _Envelope.model_validate_json(body)
        parser = PARSERS.get((envelope.source, envelope.kind))
        return parser(body) if parser is not None else None
    except ValidationError as error:
        raise PoisonError(_reason(error)) from None
    except (ValueError, OverflowError):
        raise PoisonError("an invalid time") from None


def _spot_interruption(body: str) -> Notice:
    event = _InterruptionEvent.model_validate_json(body)
    detail = event.detail
    return _of(detail.instance, NoticeKind.SPOT_INTERRUPTION, event, f"to {detail.action}")


def _rebalance_recommendation(body: str) -> Notice:
    event = _RebalanceEvent.model_validate_json(body)
    return _of(event.detail.instance, NoticeKind.REBALANCE_RECOMMENDATION, event, "")


def _state_change(body: str) -> Notice | None:
    event = _StateChangeEvent.model_validate_json(body)
    if event.detail.state in ("pending", "running"):
        return None
    return _of(event.detail.instance, NoticeKind.STATE_CHANGE, event, event.detail.state)


def _scheduled_change(body: str) -> Notice | None:
    event = _HealthEvent.model_validate_json(body)
    detail = event.detail
    if (detail.service, detail.category) != ("EC2", "scheduledChange") or detail.status == "closed":
        return None
    found = (_RESOURCE.fullmatch(entity.value) for entity in detail.entities)
    machines = tuple(ProviderMachineId(one[1]) for one in found if one is not None)
    if not machines:
        return None  # it is about volumes, or names no resource
    starts = _rfc_1123(detail.start) if detail.start else _iso(event.time)
    return Notice(NoticeKind.SCHEDULED_CHANGE, machines, starts, detail.code)


PARSERS: Mapping[tuple[str, str], Callable[[str], Notice | None]] = MappingProxyType(
    {
        ("aws.ec2", "EC2 Spot Instance Interruption Warning"): _spot_interruption,
        ("aws.ec2", "EC2 Instance Rebalance Recommendation"): _rebalance_recommendation,
        ("aws.ec2", "EC2 Instance State-change Notification"): _state_change,
        ("aws.health", "AWS Health Event"): _scheduled_change,
    }
)
"""Parsers by `source` and `detail-type`."""


def _of(instance: str, kind: NoticeKind, event: _Envelope, detail: str) -> Notice:
    return Notice(kind, (ProviderMachineId(instance),), _iso(event.time), detail)


def _iso(text: str) -> Instant:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time without a zone")
    return moment.timestamp()


def _rfc_1123(text: str) -> Instant:
    moment = parsedate_to_datetime(text)
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()


def _reason(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place or 'the body'} {phrase(first)}"[:200]
