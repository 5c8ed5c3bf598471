"""Reads the account's vCPU quotas from Service Quotas; configured values replace them.

If a read fails, the last values stay in use. A quota that was never read has no limit here; EC2 then
refuses what exceeds it. AWS's default quotas are not used: they are 0 for GPUs, so an account with a
higher quota would launch nothing.
"""

from collections.abc import Mapping, Sequence

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.model.prices_and_quotas import QuotaSource, Reading
from autoscaler.providers.ec2.channel import Api
from autoscaler.providers.ec2.instance_types import quota
from autoscaler.providers.ec2.quotas import QUOTA_CODES
from autoscaler.providers.ec2.rows import QuotaRow
from autoscaler.providers.ec2.settings import Ec2Settings


class AccountLimits:
    """Implements `QuotaLimits` for one region. Sends no request before `read`."""

    def __init__(self, settings: Ec2Settings, api: Api, clock: Clock) -> None:
        self._configured = settings.quotas
        self.use(settings)
        self._api = api
        self._clock = clock
        self._known: dict[str, tuple[Reading, QuotaSource]] = {}
        self.problem: ProviderError | OutcomeUnknownError | None = None

    def use(self, settings: Ec2Settings) -> None:
        """Report the sources of the quotas that these settings offer from now on."""
        self._wanted = {
            quota(name, kind) for kind, of in settings.offered.items() for name, _ in of
        }

    def use_kept(self, readings: Sequence[Reading]) -> None:
        """See `QuotaLimits.use_kept`."""
        self._known |= {one.name: (one, QuotaSource.CACHE) for one in readings}

    def readings(self) -> tuple[Reading, ...]:
        """See `QuotaLimits.readings`."""
        return tuple(sorted(reading for reading, _ in self._known.values()))

    def sources(self) -> Mapping[QuotaSource, int]:
        """See `QuotaLimits.sources`."""
        found = dict.fromkeys(QuotaSource, 0)
        for name in self._wanted:
            found[self._source(name)] += 1
        return found

    async def read(self) -> dict[str, int]:
        """Read the quotas and return vCPUs by quota name. If that fails, `problem` is the error."""
        try:
            rows = await self._listed()
        except (ProviderError, OutcomeUnknownError) as error:
            self.problem = error
        else:
            self.problem = None
            now = self._clock.now()
            self._known |= {
                name: (Reading(name, row.value, now), QuotaSource.API)
                for row in rows
                if (name := QUOTA_CODES.get(row.code)) is not None
            }
        known = {name: int(reading.value) for name, (reading, _) in self._known.items()}
        return known | dict(self._configured)

    async def _listed(self) -> list[QuotaRow]:
        found: list[QuotaRow] = []
        page: str | None = None
        while True:
            rows, page = await self._api.call("ListServiceQuotas", {"page": page})
            found += [QuotaRow(*row) for row in rows]
            if not page:
                return found

    def _source(self, name: str) -> QuotaSource:
        if name in self._configured:
            return QuotaSource.CONFIGURED
        return self._known[name][1] if name in self._known else QuotaSource.UNKNOWN
