"""Failure classes, by what to do next."""

from enum import StrEnum


class FailureClass(StrEnum):
    """Why a slot or a machine failed, and what to do.

    capacity       the provider has no capacity for the offering now: use another one
    quota          the account's quota is used up: put all offerings under the quota on hold
    throttled      too many requests: the slots fail; send a new request after a delay
    configuration  fails until an operator changes something: put the launch option on hold
    unsupported    the provider does not sell the offering: try again after hours
    boot_deadline  launched, but no attestation in time
    health_check   the health checks failed or did not finish in time
    unknown        an error without a class: retry with a growing delay, and show it
    """

    CAPACITY = "capacity"
    QUOTA = "quota"
    THROTTLED = "throttled"
    CONFIGURATION = "configuration"
    UNSUPPORTED = "unsupported"
    BOOT_DEADLINE = "boot_deadline"
    HEALTH_CHECK = "health_check"
    UNKNOWN = "unknown"


HEALTH_CHECKS = (
    "boot_script",
    "disk",
    "inodes",
    "clock",
    "dns",
    "github",
    "broker",
    "runner",
    "runner_version",
    "job_hooks",
    "runner_install",
    "runner_packages",
    "runner_download",
    "runner_space",
    "driver_plan",
    "driver_device",
    "driver_present",
    "driver_secure_boot",
    "driver_space",
    "driver_packages",
    "driver_headers",
    "driver_compiler",
    "driver_download",
    "driver_build",
    "driver_module",
    "driver_query",
    "driver_fabric_manager",
    "driver_toolkit",
    "gpu_query",
    "gpu_driver",
    "gpu_count",
    "gpu_model",
    "gpu_memory",
    "gpu_errors",
    "gpu_repair",
    "gpu_temperature",
    "gpu_fabric",
    "gpu_persistence",
    "gpu_nvlink",
    "gpu_xid",
    "gpu_kernel_log",
    "image",
    "other",
)
"""The health checks of the agent that can fail. `other` is one of another version of the agent."""

HARDWARE_CHECKS = frozenset(
    {
        "gpu_count",
        "gpu_errors",
        "gpu_repair",
        "gpu_temperature",
        "gpu_fabric",
        "gpu_nvlink",
        "gpu_xid",
        "gpu_kernel_log",
    }
)
"""Those that the machine's host decides. The others depend on the image, the configuration or the network."""


class FailureScope(StrEnum):
    """What a failure concerns, if this does not follow from its class.

    zone           all instance types in the zone, for example because its subnet is full
    capacity_type  the capacity type, for example because the account may not use spot instances
    provider       all launches at the provider, because of a limit of the whole account
    machine        the machine alone, for example because its host is drained or broke
    host           the machine's host first: the launch option only if a second host fails in the same way
    """

    ZONE = "zone"
    CAPACITY_TYPE = "capacity_type"
    PROVIDER = "provider"
    MACHINE = "machine"
    HOST = "host"
