"""What EC2's error codes mean for what to do next.

A pure table. It never decides how long to wait or where to try instead.
Sources: EC2 API Reference, "Error codes"; Karpenter's `pkg/errors` for what is lack of capacity.
"""

from collections.abc import Mapping
from types import MappingProxyType

from autoscaler.model.failures import FailureClass

_CAPACITY = """
InsufficientCapacity InsufficientCapacityOnHost InsufficientFreeAddressesInSubnet
InsufficientHostCapacity InsufficientInstanceCapacity InsufficientReservedInstanceCapacity
InsufficientVolumeCapacity ReservationCapacityExceeded SpotMaxPriceTooLow UnfulfillableCapacity
Unsupported
"""

_QUOTA = """
InstanceLimitExceeded MaxFleetCountExceeded MaxSpotFleetRequestCountExceeded
MaxSpotInstanceCountExceeded TargetCapacityLimitExceededException VcpuLimitExceeded
VolumeLimitExceeded
"""

_THROTTLED = """
BandwidthLimitExceeded EC2ThrottledException PriorRequestNotComplete RequestLimitExceeded
RequestThrottled RequestThrottledException SlowDown ThrottledException Throttling
ThrottlingException TooManyRequestsException
"""

_CONFIGURATION = """
AccessDenied AccessDeniedException AuthFailure Blocked InvalidAMIID InvalidAMIName InvalidAction
InvalidAvailabilityZone InvalidBlockDeviceMapping InvalidClientTokenId InvalidFleetConfig
InvalidFleetConfiguration InvalidFormat InvalidGroup InvalidIamInstanceProfile
InvalidIamInstanceProfileArn InvalidInput InvalidInstanceType InvalidKMSKey InvalidParameter
InvalidParameterCombination InvalidParameterValue InvalidSecurity InvalidSecurityGroupID
InvalidSnapshot InvalidSubnet InvalidSubnetID InvalidTagKey InvalidUserData MalformedQueryString
MissingAuthenticationToken MissingParameter OperationNotPermitted OptInRequired
PendingVerification SignatureDoesNotMatch UnauthorizedOperation UnknownParameter
UnrecognizedClientException UnsupportedOperation VPCIdNotSpecified ValidationError
"""

_UNLISTED_BUT_KNOWN = """
ExpiredToken ExpiredTokenException IdempotentInstanceTerminated IdempotentParameterMismatch
IncorrectInstanceState InternalError InternalFailure InvalidInstanceID InvalidLaunchTemplateId
InvalidLaunchTemplateName RequestExpired ServerInternal ServiceUnavailable Unavailable
"""
"""Codes that are expected in answers but say nothing of the classes above.

Launch templates are ours: one that is gone, or not yet visible, is made again.
"""

_WITHOUT_ANSWER = """
Closed ConnectTimeoutError ConnectionClosedError CredentialRetrievalError
EndpointConnectionError NoCredentialsError NoRegionError ParamValidationError
PartialCredentialsError ProfileNotFound ReadTimeoutError ResponseParserError SSLError
WorkerEnded WorkerTimeout
"""
"""Names of what went wrong on this side of EC2: boto3's exceptions and the worker's own."""


def _table() -> dict[str, FailureClass]:
    classes = {
        FailureClass.CAPACITY: _CAPACITY,
        FailureClass.QUOTA: _QUOTA,
        FailureClass.THROTTLED: _THROTTLED,
        FailureClass.CONFIGURATION: _CONFIGURATION,
        FailureClass.UNKNOWN: _UNLISTED_BUT_KNOWN,
    }
    return {code: failure for failure, codes in classes.items() for code in codes.split()}


FAILURE_CLASSES: Mapping[str, FailureClass] = MappingProxyType(_table())
"""Classes by an error code's first part (`InvalidAMIID` for `InvalidAMIID.NotFound`)."""

_LABELS = frozenset({*FAILURE_CLASSES, *_WITHOUT_ANSWER.split()})


def first_part(code: str) -> str:
    """`InvalidAMIID` of `InvalidAMIID.NotFound`; StateReason's `Client.` and `Server.` drop off."""
    parts = code.split(".")
    if len(parts) > 1 and parts[0] in {"Client", "Server"}:
        return parts[1]
    return parts[0]


def failure_class(code: str) -> FailureClass:
    """What to do next about this code; UNKNOWN when nobody listed it."""
    return FAILURE_CLASSES.get(first_part(code), FailureClass.UNKNOWN)


def outcome_unknown(code: str, status: int) -> bool:
    """Whether a request answered with this code and HTTP status may have been carried out.

    EC2 answers lack of capacity and throttling with 5xx too, but then did nothing. A token used
    before with other parameters means that an earlier sending arrived.
    """
    if first_part(code) == "IdempotentParameterMismatch":
        return True
    return status >= 500 and failure_class(code) is FailureClass.UNKNOWN


def metric_label(code: str) -> str:
    """The code, or `unlisted`: the set of label values stays bounded."""
    part = first_part(code)
    return part if part in _LABELS else "unlisted"
