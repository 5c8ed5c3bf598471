"""What EC2's error codes, and its reasons for ending an instance, mean."""

import pytest

from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.providers.ec2.errors import (
    MEANINGS,
    Meaning,
    ending_meaning,
    failure_class,
    meaning,
    metric_label,
    outcome_unknown,
)

CAPACITY, ZONE = Meaning(FailureClass.CAPACITY), Meaning(FailureClass.CAPACITY, FailureScope.ZONE)
QUOTA, ACCOUNT = Meaning(FailureClass.QUOTA), Meaning(FailureClass.QUOTA, FailureScope.PROVIDER)
THROTTLED, CONFIGURATION = Meaning(FailureClass.THROTTLED), Meaning(FailureClass.CONFIGURATION)
SUBNET = Meaning(FailureClass.QUOTA, FailureScope.ZONE)
NO_SPOT = Meaning(FailureClass.CONFIGURATION, FailureScope.CAPACITY_TYPE)
UNKNOWN = Meaning(FailureClass.UNKNOWN)

CODES = {
    "InsufficientInstanceCapacity": CAPACITY,
    "UnfulfillableCapacity": CAPACITY,
    "Unsupported": CAPACITY,
    "ReservationCapacityExceeded": CAPACITY,
    "InsufficientCapacityOnHost": CAPACITY,
    "InsufficientHostCapacity": CAPACITY,
    "SpotMaxPriceTooLow": CAPACITY,
    "InsufficientFreeAddressesInSubnet": SUBNET,
    "InsufficientVolumeCapacity": ZONE,
    "VcpuLimitExceeded": QUOTA,
    "MaxSpotInstanceCountExceeded": QUOTA,
    "InstanceLimitExceeded": QUOTA,
    "MaxFleetCountExceeded": ACCOUNT,
    "TargetCapacityLimitExceededException": ACCOUNT,
    "MaxSpotFleetRequestCountExceeded": ACCOUNT,
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": NO_SPOT,
    "RequestLimitExceeded": THROTTLED,
    "Throttling": THROTTLED,
    "ThrottlingException": THROTTLED,
    "EC2ThrottledException": THROTTLED,
    "InvalidAMIID.NotFound": CONFIGURATION,
    "InvalidAMIID.Unavailable": CONFIGURATION,
    "UnauthorizedOperation": CONFIGURATION,
    "AuthFailure": CONFIGURATION,
    "InvalidUserData.Malformed": CONFIGURATION,
    "InvalidFleetConfig": CONFIGURATION,
    "InvalidSubnetID.NotFound": CONFIGURATION,
    "InvalidLaunchTemplateId.NotFound": UNKNOWN,
    "InternalError": UNKNOWN,
    "SomethingNew": UNKNOWN,
    "": UNKNOWN,
}

REASONS = {
    "Client.VolumeLimitExceeded": ACCOUNT,
    "Client.InternalError": CONFIGURATION,
    "Client.InvalidSnapshot.NotFound": CONFIGURATION,
    "Server.InsufficientInstanceCapacity": CAPACITY,
    "Server.SpotInstanceTermination": CAPACITY,
    "Server.SpotInstanceShutdown": CAPACITY,
    "Server.InternalError": None,
    "Server.SomethingNew": None,
    "Client.InstanceInitiatedShutdown": None,
    "Client.UserInitiatedShutdown": None,
    "": None,
}


@pytest.mark.case(
    "every error code has a class that decides what to do next",
    topic="EC2's API",
    source="Karpenter pkg/errors; GAR variables.tf; aws/aws-parallelcluster-node#673",
)
@pytest.mark.case(
    "an unknown error code: tried again with growing delay, and shown",
    topic="EC2's API",
    source="EC2: error codes",
)
@pytest.mark.parametrize(("code", "expected"), CODES.items())
def test_error_codes_have_the_class_of_their_remedy(code: str, expected: Meaning) -> None:
    assert meaning(code) == expected
    assert failure_class(code) is expected.failure


@pytest.mark.parametrize(("code", "expected"), REASONS.items())
def test_termination_reasons_have_the_class_of_their_effect_on_launches(
    code: str, expected: Meaning | None
) -> None:
    assert ending_meaning(code) == expected


def test_a_server_error_is_a_refusal_only_for_known_codes() -> None:
    assert not outcome_unknown("InsufficientInstanceCapacity", 500)
    assert not outcome_unknown("RequestLimitExceeded", 503)
    assert outcome_unknown("InternalError", 500)
    assert outcome_unknown("SomethingNew", 503)
    assert not outcome_unknown("SomethingNew", 400)
    assert outcome_unknown("IdempotentParameterMismatch", 400)


def test_labels_for_metrics_are_bounded() -> None:
    assert metric_label("InvalidAMIID.NotFound") == "InvalidAMIID"
    assert metric_label("SomethingNew") == "other"
    assert metric_label("ReadTimeoutError") == "ReadTimeoutError"
    assert len(MEANINGS) < 130
