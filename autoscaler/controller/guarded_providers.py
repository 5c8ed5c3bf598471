"""Guards for a provider's ports: raise an error that the port does not list as an unknown outcome."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence

from autoscaler.controller.guards import guard
from autoscaler.controller.ports.notices import Message, NoticeQueue
from autoscaler.controller.ports.prices import PriceAnswer, PriceReader
from autoscaler.controller.ports.provider import (
    LaunchAnswer,
    LaunchOrder,
    OutcomeUnknownError,
    ProofRefusedError,
    ProvenIdentity,
    Provider,
    ProviderError,
)
from autoscaler.controller.ports.quotas import QuotaLimits
from autoscaler.model.catalogue import CapacityType, LaunchRate, Offering
from autoscaler.model.events import ListedMachine
from autoscaler.model.identifiers import (
    InstallationId,
    ProviderMachineId,
    ProviderName,
    Seconds,
    SkuName,
)
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.prices import Price, PriceSource

_LISTED = (ProviderError, OutcomeUnknownError)


class GuardedProvider:
    """A `Provider` that raises only the errors that the port lists."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    @property
    def provider(self) -> Provider:
        """The provider behind the guard."""
        return self._provider

    def use(self, provider: Provider) -> None:
        """Use another provider from now on. Calls in flight go on with the earlier one."""
        self._provider = provider

    @property
    def name(self) -> ProviderName:
        """See `Provider`."""
        return self._provider.name

    @property
    def launch_rate(self) -> LaunchRate | None:
        """See `Provider`."""
        return self._provider.launch_rate

    @property
    def largest_request(self) -> int:
        """See `Provider`."""
        return self._provider.largest_request

    @property
    def notices(self) -> NoticeQueue | None:
        """See `Provider`. The queue is guarded, too."""
        queue = self._provider.notices
        return GuardedNotices(queue) if queue is not None else None

    @property
    def prices(self) -> PriceReader | None:
        """See `Provider`. The reader is guarded, too."""
        reader = self._provider.prices
        return GuardedPrices(reader) if reader is not None else None

    @property
    def limits(self) -> QuotaLimits | None:
        """See `Provider`."""
        return self._provider.limits

    async def open(self) -> None:
        """See `Provider`. If a reload replaces the provider meanwhile, the new one is opened, too."""
        opened: Provider | None = None
        while opened is not self._provider:
            opened = self._provider
            await guard(opened.open, _LISTED, OutcomeUnknownError)

    def hint(self, error: Exception) -> str | None:
        """See `Provider`."""
        return self._provider.hint(error)

    def offerings(self, sku: SkuName, option: int) -> tuple[Offering, ...]:
        """See `Provider`."""
        return self._provider.offerings(sku, option)

    def adopt(self, installation: InstallationId) -> None:
        """See `Provider`."""
        self._provider.adopt(installation)

    async def prepare(self, order: LaunchOrder) -> str:
        """See `Provider`. An unlisted error is a `ProviderError`, because preparing launches nothing."""
        return await guard(lambda: self._provider.prepare(order), _LISTED, _refused)

    async def launch(self, request: str) -> LaunchAnswer:
        """See `Provider`."""
        return await guard(lambda: self._provider.launch(request), _LISTED, OutcomeUnknownError)

    async def terminate(
        self, machines: Sequence[ProviderMachineId]
    ) -> dict[ProviderMachineId, str]:
        """See `Provider`."""
        return await guard(lambda: self._provider.terminate(machines), _LISTED, OutcomeUnknownError)

    async def machines(self) -> AsyncIterator[tuple[ListedMachine, ...]]:
        """See `Provider`."""

        async def begin() -> AsyncIterator[tuple[ListedMachine, ...]]:
            return aiter(self._provider.machines())

        pages = await guard(begin, _LISTED, OutcomeUnknownError)
        while True:
            page = await guard(lambda: anext(pages, None), _LISTED, OutcomeUnknownError)
            if page is None:
                return
            yield page

    async def quotas(self) -> Mapping[str, int]:
        """See `Provider`."""
        return await guard(self._provider.quotas, _LISTED, OutcomeUnknownError)

    async def delete_unused(self, requests: Sequence[str]) -> tuple[str, ...]:
        """See `Provider`."""
        return await guard(
            lambda: self._provider.delete_unused(requests), _LISTED, OutcomeUnknownError
        )

    async def image(self, sku: SkuName) -> str:
        """See `Provider`."""
        return await guard(lambda: self._provider.image(sku), _LISTED, OutcomeUnknownError)

    async def console(self, machine: ProviderMachineId) -> str:
        """See `Provider`."""
        return await guard(lambda: self._provider.console(machine), _LISTED, OutcomeUnknownError)

    async def verify(self, proof: bytes) -> ProvenIdentity:
        """See `Provider`. An unlisted error refuses the proof, because the proof may have caused it."""
        listed = (*_LISTED, ProofRefusedError)
        return await guard(lambda: self._provider.verify(proof), listed, _malformed)

    async def protect(self, machine: ProviderMachineId) -> None:
        """See `Provider`."""
        await guard(lambda: self._provider.protect(machine), _LISTED, OutcomeUnknownError)

    async def close(self) -> None:
        """See `Provider`."""
        await self._provider.close()


class GuardedNotices:
    """A `NoticeQueue` that raises only the errors that the port lists."""

    def __init__(self, queue: NoticeQueue) -> None:
        self._queue = queue

    async def receive(self, wait: Seconds) -> tuple[Message, ...]:
        """See `NoticeQueue`."""
        return await guard(lambda: self._queue.receive(wait), _LISTED, OutcomeUnknownError)

    async def settle(self, receipts: Sequence[str]) -> None:
        """See `NoticeQueue`."""
        await guard(lambda: self._queue.settle(receipts), _LISTED, OutcomeUnknownError)

    async def shown(self, machines: Sequence[ProviderMachineId]) -> tuple[ListedMachine, ...]:
        """See `NoticeQueue`."""
        return await guard(lambda: self._queue.shown(machines), _LISTED, OutcomeUnknownError)


class GuardedPrices:
    """A `PriceReader` that raises only the errors that the port lists."""

    def __init__(self, reader: PriceReader) -> None:
        self._reader = reader

    @property
    def price_kinds(self) -> Collection[CapacityType]:
        """See `PriceReader`."""
        return self._reader.price_kinds

    async def read_prices(self, capacity_type: CapacityType) -> PriceAnswer:
        """See `PriceReader`."""
        try:
            return await guard(
                lambda: self._reader.read_prices(capacity_type), (), OutcomeUnknownError
            )
        except OutcomeUnknownError as error:
            return PriceAnswer((), error)

    def use_prices(self, prices: Sequence[Price], source: PriceSource) -> bool:
        """See `PriceReader`."""
        return self._reader.use_prices(prices, source)

    def price_sources(self, capacity_type: CapacityType) -> Mapping[PriceSource, int]:
        """See `PriceReader`."""
        return self._reader.price_sources(capacity_type)

    def known_prices(self, capacity_type: CapacityType) -> tuple[Price, ...]:
        """See `PriceReader`."""
        return self._reader.known_prices(capacity_type)


def _malformed(message: str) -> ProofRefusedError:
    return ProofRefusedError("malformed", message)


def _refused(message: str) -> ProviderError:
    return ProviderError(FailureClass.UNKNOWN, "Unlisted", message)
