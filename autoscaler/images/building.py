"""Builds a container image with docker, podman or buildah."""

import os
import platform as host
import signal
import subprocess
from collections.abc import Sequence
from importlib.metadata import version as installed
from pathlib import Path
from typing import Never

from autoscaler.images.load import VersionsFile
from autoscaler.images.recipes import BILL_OF_MATERIALS, RECIPES, Engine
from autoscaler.images.values import read_values


class BuildError(Exception):
    """A build cannot start. The text says why, and what to do."""


def build_command(
    engine: Engine,
    file: VersionsFile,
    name: str,
    root: Path,
    platform: str | None = None,
    tags: Sequence[str] = (),
    further: Sequence[str] = (),
) -> list[str]:
    """Return the command that builds an image. All three engines have the same options for this.

    `root` is the root of the repository. `platform`: default that of this machine, if the image has it. `tags`:
    default the image's own name and version. `further` are further options of the engine.
    Raises BuildError for an unknown image or platform and a folder that is not the repository, and
    ConfigurationError if a value of versions.yaml is null.
    """
    recipe = RECIPES.get(name)
    if recipe is None:
        raise BuildError(f"there is no image {name!r}; name one of {', '.join(RECIPES)}")
    if not (root / recipe.dockerfile).is_file():
        message = f"{root} has no {recipe.dockerfile}; name the root of the repository with --root"
        raise BuildError(message)
    chosen = platform or recipe.platform_for(host.machine())
    if chosen not in recipe.platforms:
        message = f"{name} has no platform {chosen!r}; name one of {', '.join(recipe.platforms)}"
        raise BuildError(message)
    keys = recipe.keys(chosen)
    if recipe.version is not None:
        keys["version"] = recipe.version
    arguments = read_values(file, keys)
    version = arguments.pop("version", None) or installed("gpu-runner-autoscaler")
    labels = _labels(recipe.image, version, arguments["BASE"], revision(root))
    if chosen.startswith("linux/"):
        labels["gpu-runner-autoscaler/sbom"] = BILL_OF_MATERIALS
    options = {
        "--platform": [chosen],
        "--file": [f"{root}/{recipe.dockerfile}"],
        "--build-arg": [f"{name}={value}" for name, value in arguments.items()],
        "--label": [f"{name}={value}" for name, value in labels.items()],
        "--tag": tags or [f"{recipe.image}:{version}"],
    }
    words = [word for option, values in options.items() for one in values for word in (option, one)]
    return [engine.value, "build", *words, *further, str(root)]


def _labels(image: str, version: str, base: str, commit: str | None) -> dict[str, str]:
    """Return the labels that say what an image was built from.

    Source: OCI image specification, annotations.md, "Pre-Defined Annotation Keys".
    """
    name, _, digest = base.partition("@")
    named = {"title": image, "version": version, "base.name": name, "base.digest": digest}
    if commit is not None:
        named["revision"] = commit
    return {f"org.opencontainers.image.{key}": value for key, value in named.items()}


GIT_SECONDS = 60.0
"""How long git may take to say what is checked out."""


def revision(root: Path) -> str | None:
    """Return the commit of a clone, or None if it is not known.

    `-dirty` follows if a file was changed or is new: a new file that git does not ignore gets into the image.
    """
    commit = _git(root, "rev-parse", "--verify", "HEAD")
    if not commit:
        return None
    return f"{commit}-dirty" if _git(root, "status", "--porcelain", "--", ".") else commit


def _git(root: Path, *words: str) -> str:
    """Return what git prints, or nothing if it is missing, fails or does not end."""
    command = ["git", "--no-optional-locks", "-C", str(root), *words]
    try:
        done = subprocess.run(  # noqa: S603 - a command of ours
            command, capture_output=True, text=True, check=False, timeout=GIT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def run(command: list[str]) -> Never:
    """Replace this process by the engine, so that the engine gets its signals and gives the exit status.

    As a child of `subprocess.run`, the engine would be killed a quarter of a second after Ctrl-C, and would
    leave its container behind. Raises BuildError if the engine is missing.
    """
    # Python ignores these signals, and the engine would inherit that. It ends like the user's own call.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606 - as the user chose
    except OSError as error:
        message = (
            f"cannot run {command[0]}: {error.strerror}; install it, or choose another --engine"
        )
        raise BuildError(message) from None
