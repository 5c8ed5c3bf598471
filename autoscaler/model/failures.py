"""What can go wrong outside, classed by what to do next rather than by where it came from."""

from enum import StrEnum


class FailureClass(StrEnum):
    """Why a slot or a machine failed.

    capacity       the provider has none of this offering now: try another one
    quota          the account may not have more of this: hold everything under that quota
    throttled      too many requests: the slots fail and a new call waits for its bucket
    configuration  will fail again until an operator changes something: hold the option and say so
    unsupported    the provider does not sell this offering at all: try it again in hours
    boot_deadline  launched but never proved itself in time
    gate           its own checks failed, or did not finish in time
    unknown        nobody listed it: retry with a growing delay, and show it
    """

    CAPACITY = "capacity"
    QUOTA = "quota"
    THROTTLED = "throttled"
    CONFIGURATION = "configuration"
    UNSUPPORTED = "unsupported"
    BOOT_DEADLINE = "boot_deadline"
    HEALTH_CHECK = "health_check"
    UNKNOWN = "unknown"


class FailureScope(StrEnum):
    """How far a failure reaches where its class alone does not say it.

    zone           nothing can be launched in that zone, whatever the type: its subnet is full
    capacity_type  nothing of that capacity type can be launched: the account may not buy spot
    provider       nothing can be launched at the provider: a limit of the whole account
    """

    ZONE = "zone"
    CAPACITY_TYPE = "capacity_type"
    PROVIDER = "provider"
