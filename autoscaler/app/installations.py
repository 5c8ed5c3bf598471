"""What machines install at boot, the runner and drivers: their plans, and what speaks against them."""

from collections.abc import Iterator
from typing import Any

from autoscaler import config
from autoscaler.config.configuration import run_checks
from autoscaler.config.problems import ConfigurationError, KeyPath, show
from autoscaler.config.settings.sku import AcceleratorVendor, Driver, SkuSettings
from autoscaler.images.driver import NotBuiltError, driver_plan
from autoscaler.images.load import VersionsFile, load_versions
from autoscaler.images.runner import runner_plan

BUDGET = 0.9
"""The part of a SKU's deadline for the health checks that all installations together may use."""


def installation_parameters(configuration: config.Configuration, name: str) -> dict[str, Any]:
    """Return `runner` and `driver` among the parameters of a SKU's health checks, as far as it has them.

    See docs/bootstrap.md. Raises ConfigurationError if versions.yaml lacks a value, which
    `installation_problems` reports earlier.
    """
    sku = configuration.settings.skus[name]
    if not _installs(sku):
        return {}
    named = configuration.settings.versions_file
    file = load_versions(configuration.file(named) if named is not None else None)
    deadline = config.sku(configuration.settings, name, ()).deadlines.health_checks
    plans: dict[str, dict[str, Any]] = {}
    if sku.stock is not None:
        plans["runner"] = runner_plan(file, sku.os, sku.arch)
    if sku.driver is Driver.INSTALL and sku.accelerator is not None:
        try:
            image = configuration.settings.driver_test_image
            plans["driver"] = driver_plan(file, sku.os, sku.arch, sku.accelerator.vendor, image)
        except NotBuiltError:
            pass  # `not_in_force` lists the SKU
    return {key: {**plan, "budget_s": BUDGET * deadline} for key, plan in plans.items()}


def installation_problems(
    configuration: config.Configuration, *, files: bool
) -> Iterator[config.Problem]:
    """Return why something cannot be installed, and the errors of a versions.yaml that the file names.

    `files`: also read that file.
    """
    installing = [(name, sku) for name, sku in configuration.skus() if _installs(sku)]
    named = configuration.settings.versions_file
    path = configuration.readable_file(named) if files else None
    if path is None and (named is not None or not installing):
        return
    try:
        file = load_versions(path)
    except ConfigurationError as error:
        yield from error.problems
        return
    for name, sku in installing:
        yield from run_checks((_runner, _driver), configuration, name, sku, file)


def _installs(sku: SkuSettings) -> bool:
    """Return whether machines of the SKU install something. It may be one with errors."""
    image = getattr(sku, "image", None)
    return (
        getattr(sku, "driver", None) is Driver.INSTALL or getattr(image, "stock", None) is not None
    )


def _runner(
    configuration: config.Configuration, name: str, sku: SkuSettings, file: VersionsFile
) -> Iterator[config.Problem]:
    if sku.stock is None:
        return
    try:
        runner_plan(file, sku.os, sku.arch)
    except ConfigurationError as error:
        path = ("skus", name, "image", "stock")
        yield from _missing_values(configuration, path, error, "The runner")


def _driver(
    configuration: config.Configuration, name: str, sku: SkuSettings, file: VersionsFile
) -> Iterator[config.Problem]:
    if sku.driver is not Driver.INSTALL or sku.accelerator is None:
        return
    try:
        plan = driver_plan(file, sku.os, sku.arch, sku.accelerator.vendor)
    except NotBuiltError:
        return
    except ConfigurationError as error:
        yield from _missing_values(configuration, ("skus", name, "driver"), error, "The driver")
        return
    if sku.accelerator.vendor is AcceleratorVendor.AMD:
        return  # machines report the module's version, and versions.yaml has the release (31.50)
    wanted = sku.accelerator.driver_version
    if wanted is not None and f"{plan['version']}.".find(f"{wanted}.") != 0:
        what = f"is {show(wanted)}, and {file.document.file} installs {plan['version']}"
        path = ("skus", name, "accelerator", "driver_version")
        yield configuration.error(path, what, "correct one of them")


def _missing_values(
    configuration: config.Configuration, path: KeyPath, error: ConfigurationError, section: str
) -> Iterator[config.Problem]:
    for one in error.problems:
        what = f"{one.file} cannot be used: {one.key} {one.what}"
        fix = f"name a versions_file that has it (docs/images.md, {section})"
        yield configuration.error(path, what, fix)
