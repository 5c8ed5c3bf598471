"""Reads providers' quotas every ten minutes, stores them, and reports the sources of the quotas in use.

If quotas cannot be read after a restart, the stored ones are used.
"""

from collections.abc import Mapping
from functools import partial

import structlog

from autoscaler.controller.effects import PeriodicTask
from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import OutcomeUnknownError, Provider, ProviderError
from autoscaler.controller.ports.store import Store
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.model.events import QuotasRead
from autoscaler.model.identifiers import ProviderName, Seconds
from autoscaler.model.prices_and_quotas import ReadingKind

READ_EVERY: Seconds = 600.0

Problem = ProviderError | OutcomeUnknownError | None
"""Why quotas were not read, or None if they were."""

_log = structlog.get_logger(__name__)


class KeptQuotas:
    """The quotas of all providers. Call `load` before its tasks run."""

    def __init__(
        self,
        journal: Journal,
        providers: Mapping[ProviderName, Provider],
        store: Store,
        telemetry: Telemetry,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._providers = providers
        self._store = store
        self._telemetry = telemetry
        self._clock = clock
        self._logged: dict[ProviderName, object] = dict.fromkeys(providers, (_kind(None), {}))

    async def load(self) -> None:
        """Give the stored quotas to the providers. Raises StoreError."""
        for name, provider in self._providers.items():
            limits = provider.capabilities.limits
            if limits is not None:
                limits.use_kept(await self._store.load_readings(name, ReadingKind.QUOTA))

    @property
    def tasks(self) -> list[PeriodicTask]:
        """One endless task for each provider."""
        return [partial(self._read_repeatedly, name) for name in self._providers]

    async def _read_repeatedly(self, name: ProviderName) -> None:
        while True:
            problem: Problem = None
            try:
                quotas = await self._providers[name].quotas()
            except (ProviderError, OutcomeUnknownError) as error:
                problem = error
            else:
                found = tuple(sorted(quotas.items()))
                await self._journal.record(QuotasRead(self._journal.now, name, found))
            await self._report(name, problem)
            await self._clock.sleep(READ_EVERY)

    async def _report(self, name: ProviderName, problem: Problem) -> None:
        """Report and store the quotas that a provider uses now. Raises StoreError.

        `problem` is the error of `Provider.quotas`, or None. If it is None, the provider may still have
        used old values; `QuotaLimits.problem` then has the error.
        """
        limits = self._providers[name].capabilities.limits
        readings = () if limits is None else limits.readings()
        sources = {} if limits is None else limits.sources()
        read_at = min((one.read_at for one in readings), default=None)
        if limits is not None:
            problem = problem or limits.problem
            self._telemetry.quotas(name, sources, read_at)
        in_use = {source.value: number for source, number in sources.items() if number}
        news = _kind(problem), in_use
        if self._logged[name] != news:
            self._logged[name] = news
            self._log(name, problem, in_use, read_at)
        if limits is not None and limits.problem is None and readings:
            await self._store.save_readings(name, ReadingKind.QUOTA, readings)

    def _log(
        self, name: ProviderName, problem: Problem, in_use: dict[str, int], read_at: float | None
    ) -> None:
        if problem is None:
            _log.info("quotas_in_use", provider=name, sources=in_use)
            return
        age = None if read_at is None else round(max(0.0, self._clock.now() - read_at))
        _log.warning(
            "quotas_not_read",
            provider=name,
            error=str(problem),
            hint=problem.hint,
            in_use=in_use,
            age_seconds=age,
        )


def _kind(problem: Problem) -> str:
    """Return the kind of a problem, equal for problems whose messages differ only in a request id."""
    return problem.code if isinstance(problem, ProviderError) else type(problem).__name__
