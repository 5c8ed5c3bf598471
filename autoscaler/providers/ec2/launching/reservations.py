"""The account's capacity reservations that launch options name: what each reserves, and of how many machines.

A reservation is of one instance type, zone and platform (EC2 User Guide, "On-Demand Capacity Reservations").
A capacity block is a reservation that ends at a known time. None is read where the SKUs name none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import structlog

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.catalogue import CapacityType, Offering, OperatingSystem
from autoscaler.model.identifiers import Seconds
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.ec2.configuration import Ec2OptionKeys
from autoscaler.providers.ec2.settings import Ec2Settings
from autoscaler.providers.ec2.worker.channel import Api, pages
from autoscaler.providers.ec2.worker.rows import ReservationRow

_OVER = frozenset({"cancelled", "expired", "failed", "payment-failed", "unsupported"})
"""States in which a reservation has no capacity, and never has any again."""

TAKEN_BACK: Seconds = 1800.0
"""How long before the end of a capacity block EC2 begins to terminate its machines (EC2 User Guide, "Capacity
Blocks for ML"). UltraServers have 60 minutes, and can be launched by a resource group only."""

LEAST_JOB: Seconds = 3600.0
"""No machine gets a job that would have less time than this."""

_log = structlog.get_logger(__name__)


class Reservations:
    """Caches the reservations that launch options name. Reads nothing before `read`."""

    def __init__(self, settings: Ec2Settings, api: Api) -> None:
        self._name = settings.name
        self._api = api
        self.use(settings)
        self._known: Mapping[str, ReservationRow] = {}
        self._logged: dict[str, object] = {}

    def use(self, settings: Ec2Settings) -> None:
        """Read the reservations that these settings name from now on."""
        self._wanted = {
            option.capacity_reservation
            for sku in settings.skus.values()
            for option in sku.options.values()
        } - {None}

    async def read(self) -> None:
        """Read the reservations. Raises ProviderError, OutcomeUnknownError.

        Without the permission, nothing is known of them. EC2 then refuses launches that do not fit.
        """
        if not self._wanted:
            return
        found: dict[str, ReservationRow] = {}
        try:
            async for page in pages(self._api, "DescribeCapacityReservations", {}):
                rows = (ReservationRow(*row) for row in page)
                found |= {row.id: row for row in rows if row.id in self._wanted}
        except ProviderError as error:
            if error.failure is not FailureClass.CONFIGURATION:
                raise
            if self._is_new("", error.code):
                name = self._name
                _log.warning("capacity_reservations_not_read", provider=name, error=str(error))
            found = {}
        else:
            self._is_new("", None)
        self._known = found

    def offerings(
        self, option: Ec2OptionKeys, os: OperatingSystem, offerings: Iterable[Offering]
    ) -> tuple[Offering, ...]:
        """Return those of an option's offerings that its reservation may have capacity for.

        Their quota is the reservation: what it reserves counts against the vCPU quota already (EC2 User
        Guide, "Capacity Reservation limits").
        """
        name = option.capacity_reservation
        if name is None:
            return tuple(offerings)
        known = self._known.get(name)
        if known is not None:
            offerings = [one for one in offerings if _reserves(known, one, os)]
        if known is not None and not offerings:
            if self._is_new(name, known):
                _log.warning(
                    "capacity_reservation_unusable", provider=self._name, **known._asdict()
                )
        else:
            self._is_new(name, None)
        is_block = known is not None and known.kind == CapacityType.CAPACITY_BLOCK
        until = known.ends - TAKEN_BACK - LEAST_JOB if known is not None and is_block else None
        return tuple(replace(one, quota=name, quota_units=1, until=until) for one in offerings)

    def quotas(self) -> dict[str, int]:
        """Return the machines of each known reservation, by `Offering.quota_key`; none before it starts."""
        return {
            f"{self._name}/{row.id}": row.machines if row.state == "active" else 0
            for row in self._known.values()
        }

    def _is_new(self, name: str, problem: object) -> bool:
        """Return whether this problem differs from the last one of this name, and remember it."""
        before = self._logged.get(name)
        self._logged[name] = problem
        return problem is not None and problem != before


def _reserves(row: ReservationRow, one: Offering, os: OperatingSystem) -> bool:
    windows = row.platform.startswith("Windows")
    blocks = CapacityType.CAPACITY_BLOCK
    return (
        row.state not in _OVER
        and (row.instance_type, row.zone) == (one.instance_type, one.zone)
        and windows == (os is OperatingSystem.WINDOWS)
        and (row.kind == blocks) == (one.capacity_type is blocks)
    )
