"""Wraps every call to AWS: waits for its bucket, measures its time, and counts it."""

from collections.abc import Mapping
from typing import Any

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import ProviderError
from autoscaler.controller.ports.telemetry import ProviderTelemetry
from autoscaler.model.identifiers import ProviderName
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.ec2.channel import Api, CallOutcomeUnknownError
from autoscaler.providers.ec2.errors import metric_label
from autoscaler.providers.ec2.throttle import Throttle


class MeteredApi:
    """An `Api` that wraps another one. The measured time does not include the wait for a bucket."""

    def __init__(
        self,
        api: Api,
        provider: ProviderName,
        telemetry: ProviderTelemetry,
        clock: Clock,
        throttle: Throttle,
    ) -> None:
        self._api = api
        self._provider = provider
        self._telemetry = telemetry
        self._clock = clock
        self._throttle = throttle

    async def call(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """Make one call (see `Api`)."""
        await self._throttle.admit(operation, _machines(operation, arguments))
        began = self._clock.now()
        outcome = "cancelled"
        try:
            answer = await self._api.call(operation, arguments)
            outcome = "ok"
            self._throttle.accepted(operation)
        except (ProviderError, CallOutcomeUnknownError) as error:
            outcome = metric_label(error.code)
            if isinstance(error, ProviderError) and error.failure is FailureClass.THROTTLED:
                self._throttle.refused(operation, error.retry_after)
            raise
        finally:
            took = self._clock.now() - began
            self._telemetry.provider_call(self._provider, operation, outcome, took)
        return answer

    async def close(self) -> None:
        """Close the wrapped `Api`."""
        await self._api.close()


def _machines(operation: str, arguments: Mapping[str, Any]) -> int:
    """Return how many machines a call launches or terminates."""
    if operation == "CreateFleet":
        return int(arguments["TargetCapacitySpecification"]["TotalTargetCapacity"])
    return len(arguments["ids"]) if operation == "TerminateInstances" else 0
