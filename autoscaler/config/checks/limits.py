"""Checks that the limits of the fleet leave room for a machine."""

from collections.abc import Iterator, Sequence

from autoscaler.config.configuration import Configuration, run_checks
from autoscaler.config.problems import Problem
from autoscaler.config.provider_kind import ProviderKind
from autoscaler.config.settings.shapes import NoValueError
from autoscaler.config.settings.sku import SkuSettings


def check_limits(configuration: Configuration, kinds: Sequence[ProviderKind]) -> Iterator[Problem]:
    """Return an error if no machine fits into the limits, and a warning for each SKU of which none fits."""
    yield from run_checks((_machines,), configuration)
    yield from run_checks((_dollars,), configuration, kinds)


def _machines(configuration: Configuration) -> Iterator[Problem]:
    # A warning: an operator who adopts a lost installation starts without launches.
    if configuration.settings.limits.machines == 0:
        fix = "raise it; autoscaler pause all stops launches for a while"
        yield configuration.warning(("limits", "machines"), "0 allows no machine", fix)


def _dollars(configuration: Configuration, kinds: Sequence[ProviderKind]) -> Iterator[Problem]:
    limit = configuration.settings.limits.dollars_per_hour
    if limit is None:
        return
    least = {name: _least(configuration, sku, kinds) for name, sku in configuration.skus()}
    known = {name: dollars for name, dollars in least.items() if dollars is not None}
    above = {name: dollars for name, dollars in known.items() if dollars > limit}
    if above and len(above) == len(least):
        what = f"{limit:g} allows no machine: the cheapest costs {min(above.values()):g} dollars an hour"
        yield configuration.error(("limits", "dollars_per_hour"), what, "raise it")
        return
    for name, dollars in above.items():
        what = (
            f"gets no machine: the cheapest costs {dollars:g} dollars an hour, "
            f"and limits.dollars_per_hour is {limit:g}"
        )
        yield configuration.warning(("skus", name), what, "raise the limit, or name a cheaper type")


def _least(
    configuration: Configuration, sku: SkuSettings, kinds: Sequence[ProviderKind]
) -> float | None:
    """Return the price of a SKU's cheapest machine, or None if a launch option has no known price."""
    by_key = {kind.key: kind for kind in kinds}
    places = dict(configuration.providers())
    found: list[float] = []
    try:
        for option in sku.launch_options:
            place = places[option.provider]
            dollars = by_key[place.kind].least_dollars(sku, option, place.section)
            if dollars is None:
                return None
            found.append(dollars)
    except (KeyError, NoValueError):
        return None  # another error
    return min(found, default=None)
