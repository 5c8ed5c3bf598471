"""Carries out launch requests: prepares, stores and sends each, and records the provider's answer."""

from collections.abc import Iterable, Mapping
from functools import partial

import structlog

from autoscaler.controller.effects import PeriodicTask
from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import (
    LaunchAnswer,
    LaunchOrder,
    OutcomeUnknownError,
    Provider,
    ProviderError,
)
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.ledger.failures.circuits import refused_image
from autoscaler.ledger.failures.host_failures import hosts_to_avoid, others_work
from autoscaler.model.events import (
    LaunchFailure,
    LaunchOutcomeUnknown,
    LaunchRequestAnswered,
    LaunchRequestPrepared,
    LaunchRequestSent,
)
from autoscaler.model.identifiers import LaunchRequestId, ProviderName, Seconds
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.launch_requests import LaunchRequest, LaunchRequestState

ANSWERED_AT_ONCE = 100
"""Machines of one answer recorded in one step of the event loop: a CreateFleet answer may have 1,000."""

DELETE_UNUSED_EVERY: Seconds = 600.0

_log = structlog.get_logger(__name__)


class Launcher:
    """Sends launch requests to providers. Stores the exact bytes of a request before it sends them."""

    def __init__(
        self,
        journal: Journal,
        providers: Mapping[ProviderName, Provider],
        telemetry: Telemetry,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._providers = providers
        self._telemetry = telemetry
        self._clock = clock

    @property
    def tasks(self) -> list[PeriodicTask]:
        """One endless task for each provider: deletes what earlier launch requests left there."""
        return [partial(self._delete_unused_repeatedly, name) for name in self._providers]

    async def launch(self, request_id: LaunchRequestId) -> None:
        """Prepare and send a recorded launch request, unless it is cancelled meanwhile."""
        state = self._journal.ledger.state
        request = state.launch_requests[request_id]
        order = LaunchOrder(
            request.id,
            request.sku,
            request.option,
            request.capacity_type,
            request.offerings,
            len(request.slots),
            request.token,
            refused_image(state, request.sku),
            hosts_to_avoid(state, request.sku, request.provider, self._journal.now),
            others_work(state, request.sku, request.provider, self._journal.now),
        )
        try:
            body = await self._providers[request.provider].prepare(order)
        except ProviderError as error:
            await self._refused(request, error)
            return
        except OutcomeUnknownError as error:
            # Preparing launches nothing, so no machine can exist.
            failure = LaunchFailure(FailureClass.UNKNOWN, "PrepareFailed", str(error))
            await self._journal.record(
                LaunchRequestAnswered(self._journal.now, request.id, (), (failure,))
            )
            return
        if request.state is not LaunchRequestState.RECORDED:
            return
        now = self._journal.now
        await self._journal.record(
            LaunchRequestPrepared(now, request.id, body), LaunchRequestSent(now, request.id)
        )
        await self.send(request_id)

    async def send(self, request_id: LaunchRequestId) -> None:
        """Send a launch request that is recorded as sent: the first time, or again with the same bytes."""
        request = self._journal.ledger.state.launch_requests[request_id]
        provider = self._providers.get(request.provider)
        if provider is None:
            await self._unknown(request, f"provider {request.provider} is no longer configured")
            return
        try:
            answer = await provider.launch(request.body)
        except OutcomeUnknownError as error:
            await self._unknown(request, str(error), error.retry_after)
        except ProviderError as error:
            if request.attempts > 1:
                # The refusal of a repeated request does not prove that the first attempt failed.
                message = f"the provider refused the repeated request: {error}"
                await self._unknown(request, message, error.retry_after)
            else:
                await self._refused(request, error)
        else:
            await self._answered(request, answer)

    async def _answered(self, request: LaunchRequest, answer: LaunchAnswer) -> None:
        """Record an answer in pieces. After a crash in between, the next process sends the request again."""
        left = answer.launched
        while len(left) > ANSWERED_AT_ONCE:
            piece, left = left[:ANSWERED_AT_ONCE], left[ANSWERED_AT_ONCE:]
            now = self._journal.now
            await self._journal.record(LaunchRequestAnswered(now, request.id, piece, (), more=True))
        self._count(request, answer.failures)
        now = self._journal.now
        await self._journal.record(
            LaunchRequestAnswered(now, request.id, left, answer.failures, answer.retry_after)
        )

    async def _delete_unused_repeatedly(self, name: ProviderName) -> None:
        while True:
            requests = self._journal.ledger.state.open_launch_requests.values()
            needed = [one.body for one in requests if one.provider == name and one.body]
            try:
                deleted = await self._providers[name].delete_unused(needed)
            except (ProviderError, OutcomeUnknownError) as error:
                _log.warning("resources_not_deleted", provider=name, error=str(error))
            else:
                if deleted:
                    _log.info("resources_deleted", provider=name, ids=deleted)
            await self._clock.sleep(DELETE_UNUSED_EVERY)

    def _count(self, request: LaunchRequest, failures: Iterable[LaunchFailure]) -> None:
        """Count what the provider refused. A failure of the whole request has no zone."""
        known = self._journal.ledger.state.offerings
        for failure in failures:
            named = request.offering(failure.offering)
            offering = known.get(named) if named is not None else None
            zone = offering.zone if offering is not None else ""
            self._telemetry.offering_refused(
                request.provider, request.capacity_type, zone, failure.failure
            )

    async def _unknown(
        self, request: LaunchRequest, message: str, retry_after: Seconds | None = None
    ) -> None:
        now = self._journal.now
        await self._journal.record(LaunchOutcomeUnknown(now, request.id, message, retry_after))

    async def _refused(self, request: LaunchRequest, error: ProviderError) -> None:
        failure = LaunchFailure(
            error.failure, error.code, error.message, error.offering, error.scope
        )
        self._count(request, (failure,))
        await self._journal.record(
            LaunchRequestAnswered(self._journal.now, request.id, (), (failure,), error.retry_after)
        )
