"""The drivers that machines install at boot: their plans, and what speaks against them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autoscaler import config
from autoscaler.config.problems import ConfigurationError, show
from autoscaler.config.reading.document import Document, Node
from autoscaler.config.reading.values import valid
from autoscaler.config.settings import shapes
from autoscaler.config.settings.sku import AcceleratorVendor, Driver, SkuSettings
from autoscaler.images.driver import NotBuiltError, driver_plan
from autoscaler.images.load import VersionsFile, load_versions
from autoscaler.model.catalogue import Architecture, OperatingSystem

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


def driver_problems(document: Document, folder: Path, *, files: bool) -> Iterator[config.Problem]:
    """Return why drivers cannot be installed, and the errors of a versions.yaml that the file names.

    `files`: also read that file.
    """
    skus = document.root.child("skus")
    installing = [
        (name, sku)
        for name, sku in (skus.entries() if skus else ())
        if valid(sku, Driver, "driver") is Driver.INSTALL
    ]
    named = valid(document.root, shapes.FilePath, "versions_file")
    if (named is None and not installing) or (named is not None and not files):
        return
    if named is not None and not (folder / named).is_file():
        return  # `files` reports it
    try:
        file = load_versions(folder / named if named is not None else None)
    except ConfigurationError as error:
        yield from error.problems
        return
    for name, sku in installing:
        yield from _problems(document, name, sku, file)


def _problems(
    document: Document, name: str, sku: Node, file: VersionsFile
) -> Iterator[config.Problem]:
    vendor = valid(sku, AcceleratorVendor, "accelerator", "vendor")
    platform = valid(sku, OperatingSystem, "os") or SkuSettings.model_fields["os"].default
    architecture = valid(sku, Architecture, "arch") or SkuSettings.model_fields["arch"].default
    if vendor is None:
        return
    try:
        plan = driver_plan(file, platform, architecture, vendor)
    except NotBuiltError:
        return
    except ConfigurationError as error:
        for one in error.problems:
            what = f"{one.file} cannot be used: {one.key} {one.what}"
            fix = "name a versions_file that has it (docs/images.md, The driver)"
            yield document.problem(("skus", name, "driver"), what, fix)
        return
    if vendor is AcceleratorVendor.AMD:
        return  # machines report the module's version, and versions.yaml has the release (31.50)
    wanted = valid(sku, shapes.DriverVersion, "accelerator", "driver_version")
    if wanted is not None and f"{plan['version']}.".find(f"{wanted}.") != 0:
        what = f"is {show(wanted)}, and {file.document.file} installs {plan['version']}"
        path = ("skus", name, "accelerator", "driver_version")
        yield document.problem(path, what, "correct one of them")
