"""What EC2's codes mean for what to do next: error codes, and reasons why instances ended.

A pure table. It never decides how long to wait or where to try instead.
Sources: EC2 API Reference, "Error codes" and "StateReason"; Karpenter's `pkg/errors`;
github-aws-runners/terraform-aws-github-runner (which errors it retries);
aws-parallelcluster-node PR 673.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from autoscaler.model.failures import FailureClass, Reach


class Meaning(NamedTuple):
    """The class of a code, and its reach where it goes farther than the class."""

    failure: FailureClass
    reach: Reach | None = None


_UNLISTED = Meaning(FailureClass.UNKNOWN)

# None of one offering: instance type x zone x capacity type.
_OFFERING = """
InsufficientCapacity InsufficientCapacityOnHost InsufficientHostCapacity
InsufficientInstanceCapacity InsufficientReservedInstanceCapacity ReservationCapacityExceeded
SpotInstanceShutdown SpotInstanceTermination SpotMaxPriceTooLow UnfulfillableCapacity Unsupported
"""

# A full subnet, no room for disks: nothing starts in that zone, whatever its type.
_ZONE = "InsufficientFreeAddressesInSubnet InsufficientVolumeCapacity"

# vCPUs of a family, spot and on-demand counted apart.
_FAMILY_QUOTA = "InstanceLimitExceeded MaxSpotInstanceCountExceeded VcpuLimitExceeded"

# Limits of the whole account: of fleets, of all their machines, of all their disks.
_ACCOUNT_QUOTA = """
MaxFleetCountExceeded MaxSpotFleetRequestCountExceeded TargetCapacityLimitExceededException
VolumeLimitExceeded
"""

# Spot's service-linked role is missing and we may not make it: no spot, on-demand goes on.
_NO_SPOT = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"

_THROTTLED = """
BandwidthLimitExceeded EC2ThrottledException PriorRequestNotComplete RequestLimitExceeded
RequestThrottled RequestThrottledException SlowDown ThrottledException Throttling
ThrottlingException TooManyRequestsException
"""

# `Client.InternalError` ends an instance whose encrypted disk's key it may not use, or whose
# disks cannot be attached; the same code in an answer is EC2's own trouble, hence the full name.
_CONFIGURATION = """
AWS.SimpleQueueService.NonExistentQueue
AccessDenied AccessDeniedException AuthFailure Blocked Client.InternalError InvalidAMIID
InvalidAMIName InvalidAction InvalidAvailabilityZone InvalidBlockDeviceMapping
InvalidClientTokenId InvalidFleetConfig InvalidFleetConfiguration InvalidFormat InvalidGroup
InvalidIamInstanceProfile InvalidIamInstanceProfileArn InvalidInput InvalidInstanceType
InvalidKMSKey InvalidParameter InvalidParameterCombination InvalidParameterValue InvalidSecurity
InvalidSecurityGroupID InvalidSnapshot InvalidSubnet InvalidSubnetID InvalidTagKey
InvalidUserData MalformedQueryString MissingAuthenticationToken MissingParameter
OperationNotPermitted OptInRequired PendingVerification QueueDoesNotExist SignatureDoesNotMatch
UnauthorizedOperation UnknownParameter UnrecognizedClientException UnsupportedOperation
VPCIdNotSpecified ValidationError
"""

_UNLISTED_BUT_KNOWN = """
ExpiredToken ExpiredTokenException IdempotentInstanceTerminated IdempotentParameterMismatch
IncorrectInstanceState InternalError InternalFailure InvalidInstanceID InvalidLaunchTemplateId
InvalidLaunchTemplateName InvalidVolume RequestExpired ServerInternal ServiceUnavailable
Unavailable VolumeInUse
"""
"""Codes that are expected in answers but say nothing of the classes above.

Launch templates are ours: one that is gone, or not yet visible, is made again.
"""

_OURS_TO_MEND = """
InvalidConfigError InvalidProxiesConfigError NoAuthTokenError NoCredentialsError NoRegionError
ParamValidationError PartialCredentialsError ProfileNotFound RefreshWithMFAUnsupportedError SSLError
SSOTokenLoadError TokenRetrievalError UnauthorizedSSOTokenError
"""
"""Errors of boto3 that come again until an operator changes something: nothing was sent."""

_WITHOUT_ANSWER = """
Closed ConnectTimeoutError ConnectionClosedError CredentialRetrievalError EndpointConnectionError
ProxyConnectionError ReadTimeoutError ResponseParserError WorkerEnded WorkerTimeout
"""
"""Names of what else went wrong on this side of EC2: boto3's exceptions and the worker's own."""


def _table() -> dict[str, Meaning]:
    meanings = {
        _OFFERING: Meaning(FailureClass.CAPACITY),
        _ZONE: Meaning(FailureClass.CAPACITY, Reach.ZONE),
        _FAMILY_QUOTA: Meaning(FailureClass.QUOTA),
        _ACCOUNT_QUOTA: Meaning(FailureClass.QUOTA, Reach.PROVIDER),
        _NO_SPOT: Meaning(FailureClass.CONFIGURATION, Reach.CAPACITY_TYPE),
        _THROTTLED: Meaning(FailureClass.THROTTLED),
        _CONFIGURATION: Meaning(FailureClass.CONFIGURATION),
        _UNLISTED_BUT_KNOWN: _UNLISTED,
    }
    return {code: meaning for codes, meaning in meanings.items() for code in codes.split()}


MEANINGS: Mapping[str, Meaning] = MappingProxyType(_table())
"""Meanings by a whole code, or by its first part (`InvalidAMIID` for `InvalidAMIID.NotFound`)."""

_LABELS = frozenset(
    {
        *(code.partition(".")[0] for code in MEANINGS),
        *_OURS_TO_MEND.split(),
        *_WITHOUT_ANSWER.split(),
    }
)

NOT_TRIED = "UnfulfillableCapacity"
"""What an instant fleet also says of pools that it did not try."""

NOT_A_FAILURE = frozenset(
    {
        "Client.InstanceInitiatedShutdown",
        "Client.InstanceTerminated",
        "Client.UserInitiatedHibernate",
        "Client.UserInitiatedShutdown",
        "Server.ScheduledStop",
    }
)
"""Ends that somebody wished or the machine chose: they say nothing of the next launch."""


def first_part(code: str) -> str:
    """`InvalidAMIID` of `InvalidAMIID.NotFound`; StateReason's `Client.` and `Server.` drop off."""
    parts = code.split(".")
    if len(parts) > 1 and parts[0] in {"Client", "Server"}:
        return parts[1]
    return parts[0]


def meaning(code: str) -> Meaning:
    """What to do next about this code; UNKNOWN when nobody listed it."""
    return MEANINGS.get(code) or MEANINGS.get(first_part(code), _UNLISTED)


def ending_meaning(code: str) -> Meaning | None:
    """What an instance's StateReason says of the next launch; None when it says nothing.

    Only codes whose class calls for something else than counting failed boots have a meaning.
    """
    if not code or code in NOT_A_FAILURE:
        return None
    found = meaning(code)
    return None if found.failure is FailureClass.UNKNOWN else found


def failure_class(code: str) -> FailureClass:
    """The class alone."""
    return meaning(code).failure


def says_unsupported(code: str, message: str) -> bool:
    """Whether EC2 says of an override that its zone does not sell its type, not even later.

    "Your requested instance type (g5.xlarge) is not supported in your requested Availability Zone
    (us-east-1e)": `Unsupported` of RunInstances, `InvalidFleetConfiguration` of an instant fleet
    (hashicorp/packer#9946). What is "currently not supported" may be there in a moment, and what does
    not name the zone is a mistake that an operator mends: neither deserves a hold of hours.
    """
    if "not supported" not in message or "currently not supported" in message:
        return False
    if "availability zone" not in message.lower():
        return False
    found = meaning(code)
    of_the_offering = code == "Unsupported" or found.failure is FailureClass.CONFIGURATION
    return of_the_offering and found.reach is None


def unsent_failure_class(code: str) -> FailureClass:
    """The class of what kept a request from being sent: a code, or the name of boto3's exception.

    A connection that was not made, or credentials that could not be fetched, may work in a moment.
    """
    return FailureClass.CONFIGURATION if code in _OURS_TO_MEND.split() else failure_class(code)


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
