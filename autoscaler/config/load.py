"""Reads fleet.yaml in two passes: pydantic's, and then every check over Settings.

The second pass needs no valid file: keys with an error have no value there, and checks skip them. The caller
passes in the kinds of providers, and checks that need more data.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from autoscaler.config.checks.contradictions import check_contradictions
from autoscaler.config.checks.limits import check_limits
from autoscaler.config.checks.named_files import check_files
from autoscaler.config.checks.shadowed import check_shadowed
from autoscaler.config.checks.sizes import check_sizes
from autoscaler.config.checks.skus import check_skus
from autoscaler.config.checks.unusual_values import find_warnings
from autoscaler.config.configuration import Configuration
from autoscaler.config.files.regular_files import read_bounded
from autoscaler.config.problems import ConfigurationError, Problem, listed
from autoscaler.config.provider_kind import ProviderKind
from autoscaler.config.reading.document import MAX_BYTES, Document, parse
from autoscaler.config.reading.placeholders import (
    check_empty,
    check_placeholders,
    check_samples,
)
from autoscaler.config.reading.validation import validate
from autoscaler.config.settings.fleet import Settings
from autoscaler.config.structure import settings_type

SENT = "fleet.yaml"
"""What messages call a text that is no file of this host."""

_KEY = re.compile("[a-z][a-z_]{0,31}")

FurtherCheck = Callable[[Configuration], Iterable[Problem]]
"""A further check, by a caller with more data."""


def load(
    path: Path,
    kinds: tuple[ProviderKind, ...],
    *,
    files: bool = True,
    try_store: bool = True,
    also: FurtherCheck | None = None,
    content: bytes | None = None,
) -> Configuration:
    """Read and check `path`. `files`: also check the files that it names.

    `kinds` are the kinds of providers, with their keys and checks. `also` returns further problems.

    `content` is the text to check instead of the file's.

    `try_store`: also test that the store can be written, for callers that do not open it.

    Raises ConfigurationError with all errors, and with the warnings about keys without an error.
    """
    name = str(path) if content is None else SENT
    text = read_bounded(path, name, MAX_BYTES) if content is None else content
    document = parse(text, name)
    structure = settings_type(kinds)
    _refuse_other_file(document, structure)
    if too_many := list(check_sizes(document)):
        raise ConfigurationError([*document.problems, *too_many])
    settings, wrong = validate(document, structure)
    configuration = Configuration(path, settings, document)
    # Warnings about the values of an unfinished file would be noise.
    found = [one for one in _check(configuration, kinds) if not (wrong and one.warning)]
    found += check_samples(document) if not wrong else ()
    if files:
        found += check_files(configuration, try_store=try_store)
    if also is not None:
        found += also(configuration)
    errors = [*check_placeholders(document), *check_empty(document, structure)]
    for more in (wrong, [one for one in found if not one.warning]):
        # For a value that is not written yet, and then for one of a wrong type, only its error is reported.
        keys = {problem.key for problem in errors}
        errors += [one for one in more if one.key not in keys]
    errors += document.problems
    warnings = tuple(one for one in found if one.warning)
    if errors:
        raise ConfigurationError(errors, warnings)
    return Configuration(path, settings, document, warnings)


def _check(configuration: Configuration, kinds: tuple[ProviderKind, ...]) -> Iterator[Problem]:
    yield from check_contradictions(configuration, [kind.key for kind in kinds])
    yield from check_skus(configuration, kinds)
    yield from check_limits(configuration, kinds)
    yield from check_shadowed(configuration)
    yield from find_warnings(configuration)
    for kind in kinds:
        yield from kind.check(configuration)


def _refuse_other_file(document: Document, structure: type[Settings]) -> None:
    """Raise ConfigurationError, which quotes nothing, for a text that does not look like a fleet.yaml.

    It may be a file of secrets, to which a link leads or whose name was given by mistake.
    """
    known = list(structure.model_fields)
    keys = list(document.content) if isinstance(document.content, dict) else []
    readable = any(key in known for key in keys) or all(map(_KEY.fullmatch, keys))
    if not readable or isinstance(document.content, str):
        what = "is no fleet.yaml: it has none of its keys"
        fix = f"name another file, or begin with the keys {listed(known)}"
        raise ConfigurationError([Problem(document.file, 1, "", what, fix)])
