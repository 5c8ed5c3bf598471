"""The plan of the runner's installation, from versions.yaml: what a machine with a stock image gets."""

from autoscaler.images.load import VersionsFile
from autoscaler.images.values import read_values
from autoscaler.model.catalogue import Architecture, OperatingSystem


def runner_plan(
    file: VersionsFile, platform: OperatingSystem, architecture: Architecture
) -> dict[str, str]:
    """Return the plan, as docs/bootstrap.md describes it, without its time budget.

    Raises ConfigurationError for a value that is null or missing.
    """
    place = f"runner.files.{platform}-{architecture}"
    wanted = {"version": "runner.version", "url": f"{place}.url", "sha256": f"{place}.sha256"}
    return read_values(file, wanted)
