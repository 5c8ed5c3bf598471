"""The drivers that machines install at boot: their plans, and what speaks against them."""

from collections.abc import Iterator
from typing import Any

from autoscaler import config
from autoscaler.config.configuration import run_checks
from autoscaler.config.problems import ConfigurationError, show
from autoscaler.config.settings.sku import AcceleratorVendor, Driver, SkuSettings
from autoscaler.images.driver import NotBuiltError, driver_plan
from autoscaler.images.load import VersionsFile, load_versions

BUDGET = 0.9
"""The part of a SKU's deadline for the health checks that the installation may use."""


def driver_parameters(configuration: config.Configuration, name: str) -> dict[str, Any]:
    """Return `driver` among the parameters of a SKU's health checks, or nothing. See docs/bootstrap.md.

    Raises ConfigurationError if versions.yaml lacks a value, which `driver_problems` reports earlier.
    """
    sku = configuration.settings.skus[name]
    if sku.driver is not Driver.INSTALL or sku.accelerator is None:
        return {}
    named = configuration.settings.versions_file
    file = load_versions(configuration.file(named) if named is not None else None)
    deadline = config.sku(configuration.settings, name, ()).deadlines.health_checks
    try:
        image = configuration.settings.driver_test_image
        plan = driver_plan(file, sku.os, sku.arch, sku.accelerator.vendor, image)
    except NotBuiltError:
        return {}  # `not_in_force` lists the SKU
    return {"driver": {**plan, "budget_s": BUDGET * deadline}}


def driver_problems(
    configuration: config.Configuration, *, files: bool
) -> Iterator[config.Problem]:
    """Return why drivers cannot be installed, and the errors of a versions.yaml that the file names.

    `files`: also read that file.
    """
    installing = [
        (name, sku)
        for name, sku in configuration.skus()
        if getattr(sku, "driver", None) is Driver.INSTALL
    ]
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
        yield from run_checks((_problems,), configuration, name, sku, file)


def _problems(
    configuration: config.Configuration, name: str, sku: SkuSettings, file: VersionsFile
) -> Iterator[config.Problem]:
    if sku.accelerator is None:
        return
    try:
        plan = driver_plan(file, sku.os, sku.arch, sku.accelerator.vendor)
    except NotBuiltError:
        return
    except ConfigurationError as error:
        for one in error.problems:
            what = f"{one.file} cannot be used: {one.key} {one.what}"
            fix = "name a versions_file that has it (docs/images.md, The driver)"
            yield configuration.error(("skus", name, "driver"), what, fix)
        return
    if sku.accelerator.vendor is AcceleratorVendor.AMD:
        return  # machines report the module's version, and versions.yaml has the release (31.50)
    wanted = sku.accelerator.driver_version
    if wanted is not None and f"{plan['version']}.".find(f"{wanted}.") != 0:
        what = f"is {show(wanted)}, and {file.document.file} installs {plan['version']}"
        path = ("skus", name, "accelerator", "driver_version")
        yield configuration.error(path, what, "correct one of them")
