"""Which fleet.yaml a command uses: the one of its command line, of the environment, or of this folder."""

import os
from pathlib import Path
from typing import Annotated

import typer

VARIABLE = "AUTOSCALER_CONFIG"

DEFAULT = Path("fleet.yaml")
"""Relative, so that problems name it as the operator would."""

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help=f"The configuration; default: ${VARIABLE}, then {DEFAULT} in this folder.",
    ),
]


def named_fleet_file(given: Path | None) -> Path | None:
    """Return the fleet.yaml that the command line names, else the environment's. None if neither does."""
    if given is None and (named := os.environ.get(VARIABLE)):
        return Path(named)
    return given


def fleet_file(given: Path | None) -> Path:
    """Return the fleet.yaml to read: the named one, else that of this folder.

    Raises ConfigurationError if none is named and this folder has none.
    """
    from autoscaler.config import ConfigurationError, Problem  # `--help` does not need it

    if (named := named_fleet_file(given)) is not None:
        return named
    if not DEFAULT.exists():
        what = "there is none in this folder, and neither the command line nor the environment names one"
        fix = f"name yours on the command line or in {VARIABLE}, or run the command in its folder"
        raise ConfigurationError([Problem(str(DEFAULT), 0, "", what, fix)])
    return DEFAULT
