"""Reads versions.yaml, or reports its errors with file, line, key and fix."""

import json
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from pydantic import ValidationError

from autoscaler.config.load import read_bounded
from autoscaler.config.problems import ConfigurationError
from autoscaler.config.reading.document import Document, parse
from autoscaler.config.reading.wording import explain
from autoscaler.images.entries import Versions


@dataclass(frozen=True, slots=True)
class VersionsFile:
    """A versions.yaml without errors. `document` is the file as written, for lines."""

    versions: Versions
    document: Document


def load_versions(path: Path | None = None) -> VersionsFile:
    """Read a versions.yaml; without a path, the one of this installation. Raises ConfigurationError."""
    if path is None:
        with as_file(files("autoscaler.images") / "versions.yaml") as shipped:
            return load_versions(shipped)
    document = parse(
        read_bounded(path, str(path)), str(path), if_empty="start from the file of this project"
    )
    problems = list(document.problems)
    try:
        # As JSON, because pydantic's strict mode converts text to enums only there.
        versions = Versions.model_validate_json(json.dumps(document.root.plain()))
    except ValidationError as error:
        problems += explain(document, error.errors(include_url=False), Versions)
        raise ConfigurationError(problems) from None
    if problems:
        raise ConfigurationError(problems)
    return VersionsFile(versions, document)
