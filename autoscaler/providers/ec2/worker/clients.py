"""Creates the AWS clients of the worker process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client

Arguments = Mapping[str, Any]
"""The arguments of an operation: JSON values by name."""


class Clients:
    """The AWS clients, created on first use. Each can be used from several threads."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self._make = make
        self._lock = Lock()
        self._made: dict[str, Any] = {}

    @property
    def ec2(self) -> EC2Client:
        """EC2's client."""
        client: EC2Client = self._client("ec2")
        return client

    @property
    def sts(self) -> Any:
        """STS's client."""
        return self._client("sts")

    @property
    def quotas(self) -> Any:
        """Service Quotas' client."""
        return self._client("service-quotas")

    @property
    def sqs(self) -> Any:
        """SQS's client."""
        return self._client("sqs")

    @property
    def pricing(self) -> Any:
        """The Price List's client, which has endpoints in few regions."""
        return self._client("pricing")

    def _client(self, service: str) -> Any:
        with self._lock:
            if service not in self._made:
                self._made[service] = self._make(service)
            return self._made[service]
