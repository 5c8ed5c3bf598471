"""Reads providers' prices periodically, stores them, and reports the sources of the prices in use.

Stored prices are used from the start until the provider lists newer ones. A provider that refuses to
list prices blocks no launch: the previous price stays in use.
"""

import asyncio
from collections.abc import Callable, Mapping

import structlog

from autoscaler.controller.ports.capabilities import PriceAnswer, PriceReader
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import OutcomeUnknownError, Provider, ProviderError
from autoscaler.controller.ports.store import Store
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.controller.wakeups import set_within
from autoscaler.model.backoff import Backoff
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.identifiers import ProviderName, Seconds
from autoscaler.model.prices_and_quotas import READ_AS, Price, PriceSource, price_of

READ_EVERY: Mapping[CapacityType, Seconds] = {
    CapacityType.ON_DEMAND: 12 * 3600.0,
    CapacityType.SPOT: 3600.0,
}
"""The interval of prices. Karpenter reads both every 12 hours; here a spot price is at most an hour old."""

AGAIN_FIRST: Seconds = 300.0
"""First retry interval after a failure. It doubles up to the usual interval."""

FIRST_WAIT: Seconds = 20.0
"""How long a provider's offerings wait for the first prices, if none are stored."""

Changed = Callable[[CapacityType], None]
"""Called when prices of this capacity type have changed."""

_log = structlog.get_logger(__name__)


class PriceRefresh:
    """Reads prices in one task for each provider and capacity type. `changed` is called after changes."""

    def __init__(
        self,
        providers: Mapping[ProviderName, Provider],
        store: Store,
        changed: Changed,
        telemetry: Telemetry,
        clock: Clock,
    ) -> None:
        self.readers = {
            name: reader
            for name, one in providers.items()
            if (reader := one.capabilities.prices) is not None
        }
        self._store = store
        self._changed = changed
        self._telemetry = telemetry
        self._clock = clock
        self._known = {name: asyncio.Event() for name in self.readers}
        self._read_at: dict[tuple[ProviderName, CapacityType], float] = {}
        self._reported: dict[tuple[ProviderName, CapacityType], object] = {}

    async def wait_for_first(self, name: ProviderName) -> None:
        """Wait until a provider's on-demand prices were read or refused, or for `FIRST_WAIT` seconds.

        Returns at once for a provider without a reader.
        """
        if name in self._known:
            await set_within(self._known[name], FIRST_WAIT, self._clock)

    async def run(self) -> None:
        """Run until cancelled. Raises StoreError."""
        kept = {name: await self._load(name) for name in self.readers}
        async with asyncio.TaskGroup() as group:
            for name, reader in self.readers.items():
                prices = kept[name]
                reader.use_prices(prices, PriceSource.CACHE)
                for kind in READ_AS:
                    self._report_prices(name, kind, bool(reader.known_prices(kind)))
                if CapacityType.ON_DEMAND not in reader.price_kinds or self._complete(reader):
                    self._known[name].set()
                for kind in reader.price_kinds:
                    group.create_task(self._read_repeatedly(name, kind))

    async def _load(self, name: ProviderName) -> tuple[Price, ...]:
        found = []
        for kind in READ_AS:
            readings = await self._store.load_readings(name, READ_AS[kind])
            found += [price_of(kind, reading) for reading in readings]
        return tuple(price for price in found if price is not None)

    async def _read_repeatedly(self, name: ProviderName, kind: CapacityType) -> None:
        usual, failures = READ_EVERY[kind], 0
        again = Backoff(AGAIN_FIRST, usual)
        await self._clock.sleep(self._first_pause(name, kind))
        while True:
            if await self._read(name, kind):
                failures = 0
                await self._clock.sleep(usual)
            else:
                await self._clock.sleep(again.delay(failures))
                failures += 1

    def _first_pause(self, name: ProviderName, kind: CapacityType) -> Seconds:
        """Return the delay of the first read. Recent stored on-demand prices are not read at the start."""
        read_at = self._read_at.get((name, kind))
        if kind is CapacityType.SPOT or read_at is None or not self._complete(self.readers[name]):
            return 0.0
        return max(0.0, read_at + READ_EVERY[kind] - self._clock.now())

    @staticmethod
    def _complete(reader: PriceReader) -> bool:
        return not reader.price_sources(CapacityType.ON_DEMAND)[PriceSource.BUILT_IN]

    async def _read(self, name: ProviderName, kind: CapacityType) -> bool:
        """Read prices once. Return True if no request failed and the provider listed prices."""
        reader = self.readers[name]
        try:
            answer = await reader.read_prices(kind)
        except (ProviderError, OutcomeUnknownError) as error:
            answer = PriceAnswer((), error)
        read = answer.problem is None and bool(answer.prices)
        changed = reader.use_prices(answer.prices, PriceSource.API)
        if not read:
            problem = answer.problem
            _log.warning(
                "prices_not_read",
                provider=name,
                capacity_type=kind.value,
                error=str(problem or "the provider lists none of these types"),
                hint=None if problem is None else problem.hint,
                in_use=self._in_use(name, kind),
            )
        # Spot prices that could not be read again may now be too old to use.
        too_old = kind is CapacityType.SPOT and not read
        self._report_prices(name, kind, changed or too_old)
        if kind is CapacityType.ON_DEMAND:
            self._known[name].set()
        if answer.prices:
            # Saves all prices in use: saving replaces, and a failed request leaves out its prices.
            readings = [price.reading() for price in reader.known_prices(kind)]
            await self._store.save_readings(name, READ_AS[kind], readings)
        return read

    def _report_prices(self, name: ProviderName, kind: CapacityType, changed: bool) -> None:
        """Report the prices in use, and call `changed` if they changed."""
        where = name, kind
        known = self.readers[name].known_prices(kind)
        if known:
            self._read_at[where] = min(price.read_at for price in known)
        sources = self.readers[name].price_sources(kind)
        self._telemetry.prices(name, kind, sources, self._read_at.get(where))
        in_use = self._in_use(name, kind)
        if self._reported.get(where) != in_use:
            self._reported[where] = in_use
            if in_use:
                _log.info("prices_in_use", provider=name, capacity_type=kind.value, sources=in_use)
        if changed:
            self._changed(kind)

    def _in_use(self, name: ProviderName, kind: CapacityType) -> dict[str, int]:
        sources = self.readers[name].price_sources(kind)
        return {source.value: number for source, number in sources.items() if number}
