"""Lists the keys of a fleet.yaml that are accepted and have no effect yet.

The composition root reports errors for keys that cannot be served at all, such as a store that is not
implemented. The change that implements a key removes it from this list.
"""

from collections.abc import Iterator

from autoscaler.config.problems import dotted
from autoscaler.config.settings import Settings
from autoscaler.config.sku_settings import Driver, SkuSettings


def not_in_force(settings: Settings) -> list[str]:
    """Return these keys as `key: reason`, in the order of the file."""
    return [*_providers(settings), *_skus(settings)]


def served_options(settings: Settings, name: str) -> tuple[int, ...]:
    """Return the positions of a SKU's launch options with implemented providers; none: not served."""
    launch_options = settings.skus[name].launch_options
    return tuple(
        index
        for index, option in enumerate(launch_options)
        if settings.providers[option.provider].section.built
    )


def _providers(settings: Settings) -> Iterator[str]:
    for name, provider in settings.providers.items():
        if not provider.section.built:
            key = dotted(("providers", name, provider.kind))
            yield f"{key}: {provider.section.title} is not implemented yet"


def _skus(settings: Settings) -> Iterator[str]:
    for name, sku in settings.skus.items():
        served = served_options(settings, name)
        if not served:
            yield f"{dotted(('skus', name))}: not served, because none of its providers is implemented yet"
        for index in sorted(set(range(len(sku.launch_options))) - set(served)):
            yield f"{dotted(('skus', name, 'on', index))}: not used, its provider is not implemented yet"
        yield from _keys(name, sku)


def _keys(name: str, sku: SkuSettings) -> Iterator[str]:
    if sku.accelerator is not None:
        yield f"{dotted(('skus', name, 'accelerator'))}: machines are not checked for it yet"
    if sku.driver is Driver.INSTALL:
        yield f"{dotted(('skus', name, 'driver'))}: the driver is not installed yet, the image must contain it"
