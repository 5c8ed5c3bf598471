"""The quotas of a provider's account, as last read."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from autoscaler.controller.ports.provider_errors import OutcomeUnknownError, ProviderError
from autoscaler.model.prices_and_quotas import QuotaSource, Reading


class QuotaLimits(Protocol):
    """The limits behind `Provider.quotas`, which reads them anew each time it is called."""

    @property
    def problem(self) -> ProviderError | OutcomeUnknownError | None:
        """Why the last read failed, or None if it succeeded. After a failure the old quotas stay in use."""

    def use_kept(self, readings: Sequence[Reading]) -> None:
        """Use these stored quotas until the provider returns newer ones."""

    def readings(self) -> tuple[Reading, ...]:
        """Return the newest value of each quota that the provider returned."""

    def sources(self) -> Mapping[QuotaSource, int]:
        """Return how many of the quotas that the configuration needs come from each source."""
