"""What EC2's error codes mean."""

import pytest

from autoscaler.model.failures import FailureClass
from autoscaler.providers.ec2.errors import (
    FAILURE_CLASSES,
    failure_class,
    metric_label,
    outcome_unknown,
)

CLASSES = {
    "InsufficientInstanceCapacity": FailureClass.CAPACITY,
    "UnfulfillableCapacity": FailureClass.CAPACITY,
    "Unsupported": FailureClass.CAPACITY,
    "InsufficientFreeAddressesInSubnet": FailureClass.CAPACITY,
    "ReservationCapacityExceeded": FailureClass.CAPACITY,
    "InsufficientCapacityOnHost": FailureClass.CAPACITY,
    "SpotMaxPriceTooLow": FailureClass.CAPACITY,
    "Server.InsufficientInstanceCapacity": FailureClass.CAPACITY,
    "VcpuLimitExceeded": FailureClass.QUOTA,
    "MaxSpotInstanceCountExceeded": FailureClass.QUOTA,
    "MaxFleetCountExceeded": FailureClass.QUOTA,
    "InstanceLimitExceeded": FailureClass.QUOTA,
    "TargetCapacityLimitExceededException": FailureClass.QUOTA,
    "MaxSpotFleetRequestCountExceeded": FailureClass.QUOTA,
    "Client.VolumeLimitExceeded": FailureClass.QUOTA,
    "RequestLimitExceeded": FailureClass.THROTTLED,
    "Throttling": FailureClass.THROTTLED,
    "InvalidAMIID.NotFound": FailureClass.CONFIGURATION,
    "InvalidAMIID.Unavailable": FailureClass.CONFIGURATION,
    "UnauthorizedOperation": FailureClass.CONFIGURATION,
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": FailureClass.CONFIGURATION,
    "InvalidUserData.Malformed": FailureClass.CONFIGURATION,
    "InvalidFleetConfig": FailureClass.CONFIGURATION,
    "InvalidSubnetID.NotFound": FailureClass.CONFIGURATION,
    "InvalidLaunchTemplateId.NotFound": FailureClass.UNKNOWN,
    "Client.InternalError": FailureClass.UNKNOWN,
    "SomethingNew": FailureClass.UNKNOWN,
    "": FailureClass.UNKNOWN,
}


@pytest.mark.parametrize(("code", "expected"), CLASSES.items())
def test_codes_are_classed_by_what_to_do_next(code: str, expected: FailureClass) -> None:
    assert failure_class(code) is expected


def test_a_server_error_is_a_refusal_only_when_its_code_says_so() -> None:
    assert not outcome_unknown("InsufficientInstanceCapacity", 500)
    assert not outcome_unknown("RequestLimitExceeded", 503)
    assert outcome_unknown("InternalError", 500)
    assert outcome_unknown("SomethingNew", 503)
    assert not outcome_unknown("SomethingNew", 400)
    assert outcome_unknown("IdempotentParameterMismatch", 400)


def test_labels_for_metrics_are_bounded() -> None:
    assert metric_label("InvalidAMIID.NotFound") == "InvalidAMIID"
    assert metric_label("SomethingNew") == "unlisted"
    assert metric_label("ReadTimeoutError") == "ReadTimeoutError"
    assert len(FAILURE_CLASSES) < 120
