"""Reads the account's vCPU quotas from Service Quotas; configured values replace them.

If a read fails, the last values stay in use. A quota that was never read has no limit here; EC2 then
refuses what exceeds it. AWS's default quotas are not used: they are 0 for GPUs, so an account with a
higher quota would launch nothing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.identifiers import ProviderName
from autoscaler.model.prices_and_quotas import QuotaSource, Reading
from autoscaler.providers.ec2.instance_types import InstanceTypeError, instance_types, quota
from autoscaler.providers.ec2.settings import Ec2Settings
from autoscaler.providers.ec2.worker.channel import Api, pages
from autoscaler.providers.ec2.worker.rows import InstanceRow, QuotaRow

QUOTA_CODES: Mapping[str, str] = MappingProxyType(
    {
        "L-1216C47A": "on-demand/Standard",
        "L-DB2E81BA": "on-demand/G and VT",
        "L-417A185B": "on-demand/P",
        "L-74FC7D96": "on-demand/F",
        "L-7295265B": "on-demand/X",
        "L-1945791B": "on-demand/Inf",
        "L-2C3B7624": "on-demand/Trn",
        "L-6E869C2A": "on-demand/DL",
        "L-F7808C92": "on-demand/HPC",
        "L-43DA4232": "on-demand/High memory",
        "L-34B43A08": "spot/Standard",
        "L-3819A6DF": "spot/G and VT",
        "L-7212CCBC": "spot/P",  # P4, P3 and P2
        "L-C4BD4855": "spot/P5",
        "L-88CF9481": "spot/F",
        "L-E3A00192": "spot/X",
        "L-B5D1601B": "spot/Inf",
        "L-6B0D517C": "spot/Trn",
        "L-85EED4F7": "spot/DL",
    }
)
"""Codes of Service Quotas, service `ec2` (EC2 User Guide, "Spot Instance quotas"; instance types
guide, "EC2 instance type quotas")."""


def quota_requests(region: str) -> dict[str, str]:
    """Return how an operator asks AWS for more of a quota, by the quota's name.

    AWS CLI Command Reference, `service-quotas request-service-quota-increase`.
    """
    command = "aws service-quotas request-service-quota-increase --service-code ec2"
    return {
        name: f"ask AWS for a larger quota: {command} --quota-code {code} --region {region} "
        "--desired-value VCPUS"
        for code, name in QUOTA_CODES.items()
    }


COUNTED_STATES = ("pending", "running")
"""The instance states that count against quotas (EC2 User Guide, "On-Demand Instance quotas")."""

_OWN_QUOTAS = frozenset({"capacity-block", "scheduled"})


def used_by_others(fleet: str, rows: Iterable[InstanceRow]) -> Counter[str]:
    """Return the vCPUs by quota name of the machines that the ledger does not count under it."""
    used: Counter[str] = Counter()
    for row in rows:
        # A machine of the fleet in a capacity reservation counts against the reservation there.
        own = row.fleet == fleet and not row.reservation
        # Dedicated hosts and capacity blocks have their own quotas.
        if own or row.tenancy == "host" or row.lifecycle in _OWN_QUOTAS:
            continue
        kind = CapacityType.SPOT if row.lifecycle == "spot" else CapacityType.ON_DEMAND
        known = instance_types().get(row.instance_type)
        try:
            used[quota(row.instance_type, kind)] += known.vcpus if known else row.vcpus
        except InstanceTypeError:
            continue  # such as a Mac: it shares no quota with the types that can be launched here
    return used


def available_quotas(
    provider: ProviderName, quotas: Mapping[str, int], others: Mapping[str, int]
) -> dict[str, int]:
    """Return the vCPUs of each quota that this fleet may use, by `Offering.quota_key`."""
    return {
        f"{provider}/{name}": max(0, units - others.get(name, 0))
        for name, units in sorted(quotas.items())
    }


class AccountLimits:
    """Implements `QuotaLimits` for one region. Sends no request before `read`."""

    def __init__(self, settings: Ec2Settings, api: Api, clock: Clock) -> None:
        self._configured = settings.section.quota_limits()
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
            listed = pages(self._api, "ListServiceQuotas", {})
            rows = [QuotaRow(*row) async for page in listed for row in page]
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

    def _source(self, name: str) -> QuotaSource:
        if name in self._configured:
            return QuotaSource.CONFIGURED
        return self._known[name][1] if name in self._known else QuotaSource.UNKNOWN
