"""Reads fleet.yaml: Settings and warnings, or every error at once.

It checks that the files named in it exist. The caller passes in the kinds of providers, and checks that
need more data.
"""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from autoscaler.config.checks.contradictions import check
from autoscaler.config.checks.named_files import SQLITE, check_files, empty_store, exposed_secrets
from autoscaler.config.checks.shadowed import check_shadowed
from autoscaler.config.checks.sizes import check_sizes
from autoscaler.config.checks.skus import check_skus
from autoscaler.config.checks.stock_images import stock_images
from autoscaler.config.checks.unusual_values import find_warnings
from autoscaler.config.files.regular_files import open_regular
from autoscaler.config.problems import ConfigurationError, Problem, listed, unreadable_fix
from autoscaler.config.provider_kind import ProviderKind
from autoscaler.config.reading.document import MAX_BYTES, Document, parse
from autoscaler.config.reading.placeholders import check_placeholders
from autoscaler.config.reading.wording import explain
from autoscaler.config.settings.fleet import Settings
from autoscaler.config.settings.scalars import write_duration
from autoscaler.config.structure import settings_type


@dataclass(frozen=True, slots=True)
class Configuration:
    """A fleet.yaml without errors. `document` is the file as written, for lines."""

    path: Path
    settings: Settings
    warnings: tuple[Problem, ...]
    document: Document = field(repr=False)

    def file(self, name: str) -> Path:
        """Return the path of a file named in fleet.yaml; relative names start at its folder."""
        return self.path.parent / name

    def sqlite_file(self) -> Path | None:
        """Return the SQLite file of the store, or None for another store."""
        store = self.settings.store
        return self.file(store.removeprefix(SQLITE)) if store.startswith(SQLITE) else None


SENT = "fleet.yaml"
"""What messages call a text that is no file of this host."""

_KEY = re.compile("[a-z][a-z_]{0,31}")

DocumentCheck = Callable[[Document], Iterable[Problem]]
"""A further check of the file as written, by a caller with more data."""


def load(
    path: Path,
    kinds: tuple[ProviderKind, ...],
    *,
    files: bool = True,
    try_store: bool = True,
    also: DocumentCheck | None = None,
    content: bytes | None = None,
) -> Configuration:
    """Read and check `path`. `files`: also check the files that it names.

    `kinds` are the kinds of providers, with their keys and checks.

    `content` is the text to check instead of the file's.

    `try_store`: also test that the store can be written, for callers that do not open it.

    Raises ConfigurationError with all errors, including those of `also`, which must ignore values of a
    wrong type, and may return warnings. Warnings that need Settings are missing there if there are none.
    """
    name = str(path) if content is None else SENT
    document = parse(read_bounded(path, name) if content is None else content, name)
    structure = settings_type(kinds)
    _refuse_other_file(document, structure)
    if too_many := list(check_sizes(document)):
        raise ConfigurationError([*document.problems, *too_many])
    problems = list(document.problems)
    settings: Settings | None = None
    try:
        # As JSON, because pydantic's strict mode converts lists to tuples and text to enums only there.
        settings = structure.model_validate_json(json.dumps(document.root.plain()))
    except ValidationError as error:
        problems += explain(document, error.errors(include_url=False), structure)
    problems += check(document, [kind.key for kind in kinds])
    problems += check_skus(document, kinds)
    problems += [problem for kind in kinds for problem in kind.check(document)]
    problems += check_shadowed(document)
    if files:
        problems += check_files(document, path.parent, kinds, try_store=try_store)
    found = tuple(also(document)) if also is not None else ()
    problems += [one for one in found if not one.warning]
    # For a placeholder, only its own error is reported.
    unfilled = [*check_placeholders(document)]
    keys = {problem.key for problem in unfilled}
    problems = [*unfilled, *(problem for problem in problems if problem.key not in keys)]
    warnings = [one for one in found if one.warning]
    if settings is not None:
        warnings += [*find_warnings(document, settings), *stock_images(document, settings)]
        warnings += [one for kind in kinds for one in kind.warnings(document, settings)]
    if files:
        warnings += empty_store(document, path.parent)
        warnings += exposed_secrets(document, path.parent, kinds)
    if problems or settings is None:
        raise ConfigurationError(problems, warnings)
    return Configuration(path, settings, tuple(warnings), document)


def _refuse_other_file(document: Document, structure: type[Settings]) -> None:
    """Raise ConfigurationError, which quotes nothing, for a text that does not look like a fleet.yaml.

    It may be a file of secrets, to which a link leads or whose name was given by mistake.
    """
    known = list(structure.model_fields)
    keys = [name for name, _ in document.root.entries()]
    readable = any(key in known for key in keys) or all(map(_KEY.fullmatch, keys))
    if not readable or isinstance(document.root.value, str):
        what = "is no fleet.yaml: it has none of its keys"
        fix = f"name another file, or begin with the keys {listed(known)}"
        raise ConfigurationError([Problem(document.file, 1, "", what, fix)])


def read_bounded(path: Path, shown: str, maximum: int = MAX_BYTES) -> bytes:
    """Return a file's content, at most one byte more than `maximum`. Raises ConfigurationError."""
    try:
        with open_regular(path) as file:
            return file.read(maximum + 1)
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        if path == Path():
            what = "cannot be read: it is a folder (an empty name means the current folder)"
        fix = unreadable_fix(error)
        if isinstance(error, FileNotFoundError) and not path.is_absolute():
            fix = f"create the file, or correct the name, which is relative to {Path.cwd()}"
        raise ConfigurationError([Problem(shown, 0, "", what, fix)]) from None


def json_schema(kinds: tuple[ProviderKind, ...]) -> str:
    """Return the JSON Schema of fleet.yaml, for editors."""
    schema = settings_type(kinds).model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "fleet.yaml"
    for section in (schema, *schema["$defs"].values()):
        for key in section.get("properties", {}).values():
            # The default of a duration is in seconds; in the file it is text.
            if isinstance(key.get("default"), float) and key.get("type") == "string":
                key["default"] = write_duration(key["default"])
    return json.dumps(schema, indent=2)
