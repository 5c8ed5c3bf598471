"""The classes of EC2's error codes and of the reasons why instances terminated. A pure table.

Sources: EC2 API Reference, "Error codes" and "StateReason"; Karpenter's `pkg/errors`;
github-aws-runners/terraform-aws-github-runner (which errors it retries);
aws-parallelcluster-node PR 673.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from autoscaler.model.machines.failures import FailureClass, FailureScope


class Meaning(NamedTuple):
    """The class of a code, and its scope if it is wider than the class's usual one."""

    failure: FailureClass
    scope: FailureScope | None = None


_UNLISTED = Meaning(FailureClass.UNKNOWN)

# No capacity for one offering: instance type x zone x capacity type.
_OFFERING = """
InsufficientCapacity InsufficientCapacityOnHost InsufficientHostCapacity
InsufficientInstanceCapacity InsufficientReservedInstanceCapacity InvalidCapacityReservationState
ReservationCapacityExceeded
SpotInstanceShutdown SpotInstanceTermination SpotMaxPriceTooLow UnfulfillableCapacity Unsupported
"""

# No space for disks: no instance type can be launched in that zone.
_ZONE = "InsufficientVolumeCapacity"

# A full subnet, likewise. Its addresses are the operator's, not EC2's: it has room again after a correction.
_SUBNET = "InsufficientFreeAddressesInSubnet"

# The vCPU quota of a family. Spot and on-demand count separately.
_FAMILY_QUOTA = "InstanceLimitExceeded MaxSpotInstanceCountExceeded VcpuLimitExceeded"

# Quotas of the whole account: for fleets, their machines and their disks.
_ACCOUNT_QUOTA = """
MaxFleetCountExceeded MaxSpotFleetRequestCountExceeded TargetCapacityLimitExceededException
VolumeLimitExceeded
"""

# Spot's service-linked role is missing, and the credentials may not create it. On-demand still works.
_NO_SPOT = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"

_THROTTLED = """
BandwidthLimitExceeded EC2ThrottledException PriorRequestNotComplete RequestLimitExceeded
RequestThrottled RequestThrottledException SlowDown ThrottledException Throttling
ThrottlingException TooManyRequestsException
"""

# `Client.InternalError` is the reason of an instance that may not use its disk's encryption key, or
# whose disks cannot be attached. As an answer, `InternalError` is an outage of EC2, so the full name.
_CONFIGURATION = """
AWS.SimpleQueueService.NonExistentQueue
AccessDenied AccessDeniedException AuthFailure Blocked Client.InternalError InvalidAMIID
InvalidAMIName InvalidAction InvalidAvailabilityZone InvalidBlockDeviceMapping
InvalidCapacityReservationId InvalidClientTokenId InvalidFleetConfig InvalidFleetConfiguration
InvalidFormat InvalidGroup
InvalidIamInstanceProfile InvalidIamInstanceProfileArn InvalidInput InvalidInstanceType
InvalidKMSKey InvalidParameter InvalidParameterCombination InvalidParameterValue
InvalidPlacementGroup InvalidSecurity
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
"""Expected codes that belong to none of the classes above.

The controller creates a launch template again if it was deleted or is not visible yet.
"""

_FOR_OPERATORS = """
InvalidConfigError InvalidProxiesConfigError NoAuthTokenError NoCredentialsError NoRegionError
ParamValidationError PartialCredentialsError ProfileNotFound RefreshWithMFAUnsupportedError SSLError
SSOTokenLoadError TokenRetrievalError UnauthorizedSSOTokenError
"""
"""Errors of boto3 that an operator must fix; no request was sent."""

NOT_LEADING = "NotLeading"
"""The code of a call that was not sent, because another process may lead the fleet by then."""

_WITHOUT_ANSWER = """
Closed ConnectTimeoutError ConnectionClosedError CredentialRetrievalError EndpointConnectionError
ProxyConnectionError ReadTimeoutError ResponseParserError WorkerEnded WorkerTimeout
"""
"""Further local errors: boto3's exceptions and those of the worker."""


def _table() -> dict[str, Meaning]:
    meanings = {
        _OFFERING: Meaning(FailureClass.CAPACITY),
        _ZONE: Meaning(FailureClass.CAPACITY, FailureScope.ZONE),
        _SUBNET: Meaning(FailureClass.QUOTA, FailureScope.ZONE),
        _FAMILY_QUOTA: Meaning(FailureClass.QUOTA),
        _ACCOUNT_QUOTA: Meaning(FailureClass.QUOTA, FailureScope.PROVIDER),
        _NO_SPOT: Meaning(FailureClass.CONFIGURATION, FailureScope.CAPACITY_TYPE),
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
        *_FOR_OPERATORS.split(),
        *_WITHOUT_ANSWER.split(),
        NOT_LEADING,
    }
)

NOT_TRIED = "UnfulfillableCapacity"
"""An instant fleet also reports this for pools that it did not try."""

NOT_A_FAILURE = frozenset(
    {
        "Client.InstanceInitiatedShutdown",
        "Client.InstanceTerminated",
        "Client.UserInitiatedHibernate",
        "Client.UserInitiatedShutdown",
        "Server.ScheduledStop",
    }
)
"""Terminations by a user or by the machine itself, which have no effect on the next launch."""


def first_part(code: str) -> str:
    """Return `InvalidAMIID` of `InvalidAMIID.NotFound`, without StateReason's `Client.` or `Server.`."""
    parts = code.split(".")
    if len(parts) > 1 and parts[0] in {"Client", "Server"}:
        return parts[1]
    return parts[0]


def meaning(code: str) -> Meaning:
    """Return the meaning of this code; UNKNOWN if it is not listed."""
    return MEANINGS.get(code) or MEANINGS.get(first_part(code), _UNLISTED)


def ending_meaning(code: str) -> Meaning | None:
    """Return the meaning of an instance's StateReason for the next launch, or None.

    If there is no meaning, the machine counts as one that failed to boot.
    """
    if not code or code in NOT_A_FAILURE:
        return None
    found = meaning(code)
    return None if found.failure is FailureClass.UNKNOWN else found


def failure_class(code: str) -> FailureClass:
    """Return the class of a code."""
    return meaning(code).failure


def says_unsupported(code: str, message: str) -> bool:
    """Return whether EC2 reports that the zone of an override does not offer its instance type.

    "Your requested instance type (g5.xlarge) is not supported in your requested Availability Zone
    (us-east-1e)": `Unsupported` of RunInstances, `InvalidFleetConfiguration` of an instant fleet
    (hashicorp/packer#9946). False for "currently not supported", which may change soon, and for a
    message without a zone, which an operator must fix: neither should put an offering on hold for hours.
    """
    if "not supported" not in message or "currently not supported" in message:
        return False
    if "availability zone" not in message.lower():
        return False
    found = meaning(code)
    of_the_offering = code == "Unsupported" or found.failure is FailureClass.CONFIGURATION
    return of_the_offering and found.scope is None


def unsent_failure_class(code: str) -> FailureClass:
    """Return the class of an error before sending: a code, or the name of boto3's exception.

    A retry can help if there was no connection, or if credentials could not be fetched.
    """
    return FailureClass.CONFIGURATION if code in _FOR_OPERATORS.split() else failure_class(code)


def outcome_unknown(code: str, status: int) -> bool:
    """Return whether EC2 may have carried out a request with this error code and HTTP status.

    EC2 also answers 5xx for missing capacity and throttling, and then did nothing. The code for a
    token that was used with other parameters means that an earlier request arrived.
    """
    if first_part(code) == "IdempotentParameterMismatch":
        return True
    return status >= 500 and failure_class(code) is FailureClass.UNKNOWN


def metric_label(code: str) -> str:
    """Return the code, or `other`, so that the set of label values stays bounded."""
    part = first_part(code)
    return part if part in _LABELS else "other"


_CREDENTIALS = (
    "give the AWS SDK credentials: an instance role, AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY"
)
_RENEW = "renew the credentials: they are unknown to AWS, or expired"
_PERMIT = "give the credentials the permissions in docs/ec2.md#permissions"
_LOG_IN = "log in again (aws sso login), or give the controller credentials that do not expire"
_NETWORK = (
    "let this host reach AWS: its network, DNS, or HTTPS_PROXY and NO_PROXY in the controller's "
    "environment"
)
HINTS = {
    "NoCredentialsError": _CREDENTIALS,
    "PartialCredentialsError": _CREDENTIALS,
    "ProfileNotFound": _CREDENTIALS,
    "CredentialRetrievalError": _CREDENTIALS,
    "SSOTokenLoadError": _LOG_IN,
    "TokenRetrievalError": _LOG_IN,
    "UnauthorizedSSOTokenError": _LOG_IN,
    "ConnectTimeoutError": _NETWORK,
    "EndpointConnectionError": _NETWORK,
    "ProxyConnectionError": _NETWORK,
    "SSLError": "trust the certificate of AWS as this host sees it: put its CA into AWS_CA_BUNDLE",
    "AuthFailure": _RENEW,
    "ExpiredToken": _RENEW,
    "ExpiredTokenException": _RENEW,
    "InvalidClientTokenId": _RENEW,
    "UnrecognizedClientException": _RENEW,
    "RequestExpired": "correct this host's clock, or renew the credentials",
    "AccessDenied": _PERMIT,
    "UnauthorizedOperation": _PERMIT,
    "AccessDeniedException": _PERMIT,
    "InvalidSubnetID.NotFound": "correct subnets: they must be in this region and account",
}
"""What an operator can do, by the error's code."""
