"""Values of versions.yaml for a build: by their keys, and never null."""

import datetime
from collections.abc import Mapping

from autoscaler.config.problems import ConfigurationError, KeyPath, Problem, dotted, listed, nearest
from autoscaler.images.entries import ContainerImage, children
from autoscaler.images.findings import nulls
from autoscaler.images.load import VersionsFile


def read_values(file: VersionsFile, wanted: Mapping[str, str]) -> dict[str, str]:
    """Return the values of keys such as `runner.files.linux-x64.sha256`, by the name of each.

    The value of a container image, such as `container_images.ubuntu`, is its reference with its digest.
    `wanted` has the key of each name.

    Raises ConfigurationError with an error for each key that the file lacks, and for each null.
    """
    values: dict[str, str] = {}
    problems: list[Problem] = []
    for name, key in wanted.items():
        found = _value(file, tuple(key.split(".")))
        if isinstance(found, Problem):
            problems.append(found)
        else:
            values[name] = found
    if problems:
        raise ConfigurationError(problems)
    return values


def _value(file: VersionsFile, path: KeyPath) -> str | Problem:
    """Return the text of one value, or why it cannot be used."""
    value: object = file.versions
    for depth, part in enumerate(path):
        known = children(value)
        if part not in known:
            meant = nearest(str(part), known)
            fix = f"did you mean {meant}?" if meant else f"name one of {listed(list(known))}"
            if not known:
                fix = f"name {dotted(path[:depth])}"
            return file.document.problem(path[: depth + 1], "is not in the file", fix)
        value = known[str(part)]
    if isinstance(value, ContainerImage):
        path, value = (*path, "digest"), value.pinned()
    if value is None:
        [null] = (one for one in nulls(file.versions) if one.path == path)
        return file.document.problem(path, null.what, null.fix)
    if isinstance(value, str | datetime.date):
        return str(value)
    fix = f"name one of its keys: {listed(list(children(value)))}"
    return file.document.problem(path, "is not a single value", fix)
