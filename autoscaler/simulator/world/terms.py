"""The terms of a simulated provider: what the world's catalogue says about its offerings and rates."""

from autoscaler.model.catalogue import Catalogue, LaunchRate, Offering
from autoscaler.model.identifiers import ProviderName, SkuName


class Terms:
    """Implements those methods of the Provider port whose answers are in a catalogue."""

    def __init__(self, name: ProviderName, catalogue: Catalogue) -> None:
        self._name = name
        self._catalogue = catalogue

    @property
    def name(self) -> ProviderName:
        """As the catalogue calls it."""
        return self._name

    @property
    def launch_rate(self) -> LaunchRate | None:
        """The launch rate of the catalogue."""
        return self._catalogue.launch_rates.get(self._name)

    @property
    def largest_request(self) -> int:
        """The largest request of the catalogue."""
        return self._catalogue.largest_request(self._name)

    @property
    def prices(self) -> None:
        """None: prices do not change."""

    @property
    def limits(self) -> None:
        """None: quotas are read again each time, and never stored."""

    def hint(self, error: Exception) -> None:
        """Return None: the world's operator needs no hints."""

    def offerings(self, sku: SkuName, option: int) -> tuple[Offering, ...]:
        """Return the catalogue's offerings of a launch option."""
        return self._catalogue.skus[sku].launch_options[option].offerings
