"""Checks each SKU of fleet.yaml against itself, the other SKUs and the providers.

Each kind of provider checks its own keys.
"""

import re
from collections.abc import Iterator, Sequence

from autoscaler.config.checks.repeats import repeats
from autoscaler.config.configuration import Configuration, run_checks
from autoscaler.config.problems import KeyPath, Problem, dotted, listed, nearest, show
from autoscaler.config.provider_kind import ProviderKind
from autoscaler.config.settings.fleet import Settings
from autoscaler.config.settings.other_names import WORDS
from autoscaler.config.settings.sku import (
    AcceleratorVendor,
    Driver,
    Image,
    LaunchOptionSettings,
    SkuSettings,
    StockImage,
)
from autoscaler.model.catalogue import Architecture, OperatingSystem

_ARCHITECTURE = re.compile("gfx[0-9a-f]{3,5}")
"""The name of an architecture of AMD, as rocminfo prints it."""

_RECIPES = "autoscaler/"
"""The beginning of the names of images that `autoscaler images bake` builds."""
_PLATFORM = re.compile(
    r"(?<![a-z0-9])(linux|ubuntu|windows|x64|x86_64|amd64|arm64|aarch64)(?![a-z0-9])"
)


def check_skus(configuration: Configuration, kinds: Sequence[ProviderKind]) -> Iterator[Problem]:
    """Return every contradiction within `skus`, except those that only a kind of provider knows."""
    seen: dict[str, str] = {}
    checks = (
        *(_share, _minimum, _scheduled_minimums, _labels),
        *(_image, _stock, _image_platform, _amd_on_windows, _driver, _models),
    )
    for name, sku in configuration.skus():
        path: KeyPath = ("skus", name)
        if name.lower() in seen:
            what = f"repeats the SKU {show(seen[name.lower()])}: labels are case-insensitive"
            yield configuration.error(path, what, "rename one of them")
        seen.setdefault(name.lower(), name)
        yield from run_checks(checks, configuration, path, sku)
        for index, option in enumerate(getattr(sku, "launch_options", ())):
            at = (*path, "on", index)
            checks_of_option = (_provider, _keys, _repeats)
            yield from run_checks(checks_of_option, configuration, at, option, kinds)


def _share(configuration: Configuration, path: KeyPath, sku: SkuSettings) -> Iterator[Problem]:
    if "fair_share" in sku.model_fields_set and sku.max_machines is None:
        what = "is a share of max_machines, and max_machines is missing"
        yield configuration.error((*path, "fair_share"), what, "add max_machines, or remove it")


def _minimum(configuration: Configuration, path: KeyPath, sku: SkuSettings) -> Iterator[Problem]:
    yield from _above(configuration, (*path, "idle", "min"), sku.idle.minimum, sku.max_machines)


def _scheduled_minimums(
    configuration: Configuration, path: KeyPath, sku: SkuSettings
) -> Iterator[Problem]:
    for index, schedule in enumerate(sku.idle.schedule):
        at = (*path, "idle", "schedule", index, "min")
        minimum = getattr(schedule, "minimum", 0)
        yield from _above(configuration, at, minimum, sku.max_machines)


def _above(
    configuration: Configuration, path: KeyPath, minimum: int, most: int | None
) -> Iterator[Problem]:
    if most is not None and minimum > most:
        what = f"{minimum} is more than max_machines, {most}"
        yield configuration.error(path, what, "lower it, or raise max_machines")


def _labels(configuration: Configuration, path: KeyPath, sku: SkuSettings) -> Iterator[Problem]:
    for index in repeats(label.lower() for label in (str(path[-1]), *sku.labels)):
        yield configuration.error((*path, "labels", index - 1), "is repeated", "remove it")


def _image(configuration: Configuration, path: KeyPath, sku: SkuSettings) -> Iterator[Problem]:
    """Check that the image is named in one way."""
    image = sku.image
    if image is None:
        return
    if image.name is None and image.stock is None and not _unknown_keys(configuration, path):
        what, fix = "has no name", f"add name, or stock: {StockImage.UBUNTU_24_04}"
        yield configuration.error((*path, "image"), what, fix)
    for key in ("name", "owner") if image.stock is not None else ():
        if key in image.model_fields_set:
            what = f"contradicts stock, which is an image of its own: {image.stock}"
            yield configuration.error((*path, "image", key), what, "remove one of them")


def _unknown_keys(configuration: Configuration, path: KeyPath) -> bool:
    """Return True if the image has keys that are reported, and probably mean its name."""
    return bool(set(configuration.document.value((*path, "image"))) - set(Image.model_fields))


def _stock(configuration: Configuration, path: KeyPath, sku: SkuSettings) -> Iterator[Problem]:
    if sku.stock is not None and sku.os is not OperatingSystem.LINUX:
        what = f"{sku.stock} is Linux, and os is {sku.os}"
        fix = "write os: linux, or name a Windows image of your own (docs/images.md)"
        yield configuration.error((*path, "image", "stock"), what, fix)


def _amd_on_windows(
    configuration: Configuration, path: KeyPath, sku: SkuSettings
) -> Iterator[Problem]:
    if sku.accelerator is None or sku.os is not OperatingSystem.WINDOWS:
        return
    if sku.accelerator.vendor is AcceleratorVendor.AMD:
        what = "the health checks of amd need Linux"
        yield configuration.error((*path, "accelerator", "vendor"), what, "remove accelerator")


def _driver(configuration: Configuration, path: KeyPath, sku: SkuSettings) -> Iterator[Problem]:
    has_accelerator = "accelerator" in sku.model_fields_set
    if sku.driver is Driver.INSTALL and not has_accelerator:
        what = "installs nothing without an accelerator"
        yield configuration.error((*path, "driver"), what, "add accelerator, or remove driver")
    if sku.driver is Driver.NONE and has_accelerator:
        what = "contradicts accelerator, which the health checks ask the driver for"
        yield configuration.error((*path, "driver"), what, "remove one of them")


def _image_platform(
    configuration: Configuration, path: KeyPath, sku: SkuSettings
) -> Iterator[Problem]:
    """Check that an image's name speaks of no other system or architecture than the SKU's.

    An error for the images of our recipes, whose names are certain, and a warning for others.
    """
    if sku.image is None or sku.image.name is None:
        return
    found = {WORDS.get(word, word) for word in _PLATFORM.findall(sku.image.name.lower())}
    for key, own, every in (("os", sku.os, OperatingSystem), ("arch", sku.arch, Architecture)):
        named = found & set(every)
        if named and own not in named:
            what = (
                f"{show(sku.image.name)} looks like an image for {min(named)}, and {key} is {own}"
            )
            fix = f"write {key}: {min(named)} in the SKU, or name another image"
            is_ours = sku.image.name.startswith(_RECIPES)
            report = configuration.error if is_ours else configuration.warning
            yield report((*path, "image", "name"), what, fix)


def _models(configuration: Configuration, path: KeyPath, sku: SkuSettings) -> Iterator[Problem]:
    if sku.accelerator is None:
        return
    vendor = sku.accelerator.vendor
    for index, name in enumerate(sku.accelerator.models or ()):
        if (vendor is AcceleratorVendor.AMD) != (_ARCHITECTURE.fullmatch(name) is not None):
            amd = "an architecture, such as gfx942: rocminfo prints it as Name"
            nvidia = "a product name, such as NVIDIA A10G: nvidia-smi -L prints it"
            what = f"{show(name)} is not a model of {vendor}"
            fix = f"write {amd if vendor is AcceleratorVendor.AMD else nvidia}"
            yield configuration.error((*path, "accelerator", "models", index), what, fix)


def _provider(
    configuration: Configuration,
    path: KeyPath,
    option: LaunchOptionSettings,
    kinds: Sequence[ProviderKind],  # noqa: ARG001
) -> Iterator[Problem]:
    known = [name for name, _ in configuration.providers()]
    if option.provider not in known:
        meant = nearest(option.provider, known)
        add = f"write {listed(known)}, or add it to providers" if known else "add it to providers"
        fix = f"did you mean {meant}?" if meant else add
        what = f"{show(option.provider)} is not a provider of this file"
        yield configuration.error((*path, "provider"), what, fix)


def _keys(
    configuration: Configuration,
    path: KeyPath,
    option: LaunchOptionSettings,
    kinds: Sequence[ProviderKind],
) -> Iterator[Problem]:
    """Check that a launch option has the keys of its provider's kind, and no others."""
    provider = dict(configuration.providers()).get(option.provider)
    found = [kind for kind in kinds if provider and getattr(provider, kind.key) is not None]
    if len(found) != 1:
        return
    (kind,) = found
    if getattr(option, kind.needs, ...) is None:
        what = f"is missing, and {show(option.provider)} requires it"
        yield configuration.error((*path, kind.needs), what, f"add {kind.needs}")
    for key in (key for one in kinds if one is not kind for key in one.option_keys):
        if key in option.model_fields_set:
            what = f"is not supported by {show(option.provider)}"
            fix = "remove it, or name another provider"
            yield configuration.error((*path, key), what, fix)


def _repeats(
    configuration: Configuration,
    path: KeyPath,
    option: LaunchOptionSettings,
    kinds: Sequence[ProviderKind],  # noqa: ARG001
) -> Iterator[Problem]:
    for key in type(option).model_fields:
        values = getattr(option, key, ())
        for index in repeats(values if isinstance(values, tuple) else ()):
            yield configuration.error((*path, key, index), "is repeated", "remove it")


def not_in_force(settings: Settings) -> list[str]:
    """Return the keys that are accepted and have no effect yet, as `key: reason`, in the order of the file."""
    return [line for name, sku in settings.skus.items() for line in _not_in_force(name, sku)]


def _not_in_force(name: str, sku: SkuSettings) -> Iterator[str]:
    vendor = sku.accelerator.vendor if sku.accelerator is not None else AcceleratorVendor.NVIDIA
    other = vendor is AcceleratorVendor.AMD and sku.arch is not Architecture.X64
    if sku.driver is Driver.INSTALL and other:
        where = f"{sku.os} ({sku.arch})"
        what = f"the driver of {vendor} is not installed on {where} yet, the image must contain it"
        yield f"{dotted(('skus', name, 'driver'))}: {what}"
