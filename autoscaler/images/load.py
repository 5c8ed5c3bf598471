"""Reads versions.yaml, or reports its errors with file, line, key and fix."""

from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from autoscaler.config.files.regular_files import read_bounded
from autoscaler.config.problems import ConfigurationError
from autoscaler.config.reading.document import MAX_BYTES, Document, parse
from autoscaler.config.reading.validation import validate
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
        read_bounded(path, str(path), MAX_BYTES),
        str(path),
        if_empty="start from the file of this project",
    )
    versions, wrong = validate(document, Versions)
    if wrong or document.problems:
        raise ConfigurationError([*document.problems, *wrong])
    return VersionsFile(versions, document)
