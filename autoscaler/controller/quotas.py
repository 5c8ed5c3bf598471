"""Stores the quotas that providers returned, and reports the sources of the quotas in use.

If quotas cannot be read after a restart, the stored ones are used.
"""

from collections.abc import Mapping

import structlog

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.controller.ports.quotas import QuotaLimits
from autoscaler.controller.ports.readings import ReadingCache
from autoscaler.controller.ports.telemetry import QuotaTelemetry
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import ProviderName
from autoscaler.model.readings import ReadingKind

_log = structlog.get_logger(__name__)


class KeptQuotas:
    """The quotas of all providers. Call `load` first, and `take_in` after each read."""

    def __init__(
        self,
        limits: Mapping[ProviderName, QuotaLimits],
        cache: ReadingCache,
        telemetry: QuotaTelemetry,
        clock: Clock,
    ) -> None:
        self._limits = limits
        self._cache = cache
        self._telemetry = telemetry
        self._clock = clock
        self._logged: dict[ProviderName, object] = {}

    async def load(self) -> None:
        """Give the stored quotas to the providers. Raises StoreError."""
        for name, limits in self._limits.items():
            limits.use_kept(await self._cache.load_readings(name, ReadingKind.QUOTA))

    async def take_in(self, name: ProviderName) -> None:
        """Report and store the quotas that a provider uses now. Raises StoreError."""
        limits = self._limits.get(name)
        if limits is None:
            return
        readings = limits.readings()
        read_at = min((one.read_at for one in readings), default=None)
        self._telemetry.quotas(name, limits.sources(), read_at)
        self._log(name, limits, read_at)
        if readings and limits.problem is None:
            await self._cache.save_readings(name, ReadingKind.QUOTA, readings)

    def _log(self, name: ProviderName, limits: QuotaLimits, read_at: float | None) -> None:
        """Log the sources and the problem, if either changed."""
        problem = limits.problem
        sources = {source.value: number for source, number in limits.sources().items() if number}
        news = _kind(problem), sources
        if self._logged.get(name) == news:
            return
        self._logged[name] = news
        age = None if read_at is None else round(max(0.0, self._clock.now() - read_at))
        if problem is None:
            _log.info("quotas_in_use", provider=name, sources=sources)
            return
        denied = (
            isinstance(problem, ProviderError) and problem.failure is FailureClass.CONFIGURATION
        )
        _log.warning(
            "quotas_not_read",
            provider=name,
            error=str(problem),
            fix=limits.fix if denied else None,
            in_use=sources,
            age_seconds=age,
        )


def _kind(problem: ProviderError | OutcomeUnknownError | None) -> str:
    """Return the kind of a problem, equal for problems whose messages differ only in a request id."""
    return problem.code if isinstance(problem, ProviderError) else type(problem).__name__
