"""The table of all calls to AWS that this provider makes. They run in the worker process only."""

from collections.abc import Callable, Mapping

from autoscaler.providers.ec2 import (
    account_operations,
    machine_operations,
    price_operations,
    queue_operations,
)
from autoscaler.providers.ec2.clients import Arguments, Clients

OPERATIONS: Mapping[str, Callable[[Clients, Arguments], object]] = {
    "CreateFleet": machine_operations.create_fleet,
    "CreateLaunchTemplate": account_operations.create_launch_template,
    "DeleteLaunchTemplate": account_operations.delete_launch_template,
    "DeleteMessageBatch": queue_operations.delete_message_batch,
    "DeleteVolume": account_operations.delete_volume,
    "DescribeCapacityReservations": account_operations.describe_capacity_reservations,
    "DescribeImages": account_operations.describe_images,
    "DescribeInstanceTypeOfferings": account_operations.describe_instance_type_offerings,
    "DescribeInstances": machine_operations.describe_instances,
    "DescribeLaunchTemplates": account_operations.describe_launch_templates,
    "DescribeSpotPriceHistory": price_operations.describe_spot_price_history,
    "DescribeSubnets": account_operations.describe_subnets,
    "DescribeVolumes": account_operations.describe_volumes,
    "GetCallerIdentity": account_operations.get_caller_identity,
    "GetConsoleOutput": machine_operations.get_console_output,
    "GetProducts": price_operations.get_products,
    "ListServiceQuotas": account_operations.list_service_quotas,
    "ReceiveMessage": queue_operations.receive_message,
    "TerminateInstances": machine_operations.terminate_instances,
}
"""Every operation by the name of its API."""
