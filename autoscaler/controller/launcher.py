"""Carries out calls: resolve, store the exact request, send it once, tell what came of it."""

from collections.abc import Mapping

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.provider import (
    LaunchAnswer,
    LaunchOrder,
    OutcomeUnknownError,
    Provider,
    ProviderError,
)
from autoscaler.ledger.circuits import refused_image
from autoscaler.model.events import (
    LaunchFailure,
    LaunchOutcomeUnknown,
    LaunchRequestAnswered,
    LaunchRequestPrepared,
    LaunchRequestSent,
)
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import LaunchRequestId, ProviderName
from autoscaler.model.launch_requests import LaunchRequest, LaunchRequestState

ANSWERED_AT_ONCE = 100
"""Machines of one answer that are recorded before everything else has a turn: CreateFleet gives 1,000."""


class Launcher:
    """Everything that is sent was recorded before, byte for byte."""

    def __init__(self, journal: Journal, providers: Mapping[ProviderName, Provider]) -> None:
        self._journal = journal
        self._providers = providers

    async def launch(self, call_id: LaunchRequestId) -> None:
        """Prepare and send a recorded call, unless it is withdrawn meanwhile."""
        call = self._journal.ledger.state.launch_requests[call_id]
        order = LaunchOrder(
            call.id,
            call.sku,
            call.option,
            call.capacity_type,
            call.offerings,
            len(call.slots),
            call.token,
            refused_image(self._journal.ledger.state, call.sku),
        )
        try:
            request = await self._providers[call.provider].prepare(order)
        except ProviderError as error:
            await self._refused(call, error)
            return
        except OutcomeUnknownError as error:
            # Preparing launches nothing, so nothing can be there.
            failure = LaunchFailure(FailureClass.UNKNOWN, "PrepareFailed", str(error))
            await self._journal.record(
                LaunchRequestAnswered(self._journal.now, call.id, (), (failure,))
            )
            return
        if call.state is not LaunchRequestState.RECORDED:
            return
        now = self._journal.now
        await self._journal.record(
            LaunchRequestPrepared(now, call.id, request), LaunchRequestSent(now, call.id)
        )
        await self.send(call_id)

    async def send(self, call_id: LaunchRequestId) -> None:
        """Send a call that was recorded as sent: the first time, or again with the same bytes."""
        call = self._journal.ledger.state.launch_requests[call_id]
        provider = self._providers.get(call.provider)
        if provider is None:
            message = f"provider {call.provider} is not configured any more"
            await self._journal.record(LaunchOutcomeUnknown(self._journal.now, call.id, message))
            return
        try:
            answer = await provider.launch(call.body)
        except OutcomeUnknownError as error:
            await self._journal.record(LaunchOutcomeUnknown(self._journal.now, call.id, str(error)))
        except ProviderError as error:
            if call.attempts > 1:
                # A refused repeat says nothing about the first try.
                message = f"a repeat was refused: {error}"
                await self._journal.record(
                    LaunchOutcomeUnknown(self._journal.now, call.id, message)
                )
            else:
                await self._refused(call, error)
        else:
            await self._answered(call, answer)

    async def _answered(self, call: LaunchRequest, answer: LaunchAnswer) -> None:
        """Record an answer, piece by piece: cut short, the call is sent again after the next start."""
        left = answer.launched
        while len(left) > ANSWERED_AT_ONCE:
            piece, left = left[:ANSWERED_AT_ONCE], left[ANSWERED_AT_ONCE:]
            now = self._journal.now
            await self._journal.record(LaunchRequestAnswered(now, call.id, piece, (), more=True))
        await self._journal.record(
            LaunchRequestAnswered(self._journal.now, call.id, left, answer.failures)
        )

    async def _refused(self, call: LaunchRequest, error: ProviderError) -> None:
        failure = LaunchFailure(
            error.failure, error.code, error.message, error.offering, error.reach
        )
        await self._journal.record(
            LaunchRequestAnswered(self._journal.now, call.id, (), (failure,), error.retry_after)
        )
