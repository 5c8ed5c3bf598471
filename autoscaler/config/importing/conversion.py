"""Converts a scale-config.yml into the text of a fleet.yaml, with a result for every key.

Each key of the file, and each type that cannot become a SKU, is either in `carried` or in `reported`,
exactly once. Reads that one file and writes none. `runner_keys` converts single keys.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

from autoscaler.config.checks.stock_images import FIX, STOCK_OWNERS, WHAT
from autoscaler.config.files.regular_files import read_bounded
from autoscaler.config.importing.fleet_text import skus_text, whole_text
from autoscaler.config.importing.runner_keys import (
    HardwareOf,
    ImportOptions,
    UnconvertibleError,
    parse_ami,
    read,
    translate,
)
from autoscaler.config.importing.runner_types import (
    NAME_SCALE_CONFIG,
    VARIANTS,
    RunnerType,
    keys_of,
    runner_types,
)
from autoscaler.config.problems import (
    ConfigurationError,
    KeyPath,
    Problem,
    dotted,
    printable,
    show,
)
from autoscaler.config.reading.document import MAX_BYTES, Document, parse
from autoscaler.config.settings.shapes import ProviderName, SkuName
from autoscaler.model.wording import counted

HOLDS_RUNNER = "must contain GitHub's runner, which PyTorch's fleet downloads at boot"


@dataclass(frozen=True, slots=True, order=True)
class Reported:
    """A key that was not converted, with its line (from 1) and the reason."""

    line: int
    key: str
    why: str


@dataclass(frozen=True, slots=True)
class Imported:
    """The result. `skus` are in the form of fleet.yaml; `carried` and `reported` are dotted paths.

    Both counters have images as `name|owner`: `assumed` counts the SKUs that got a default image, and
    `taken` the SKUs with an image, or a canary image, from the file.
    """

    skus: Mapping[str, Mapping[str, Any]]
    carried: tuple[str, ...]
    reported: tuple[Reported, ...]
    assumed: Mapping[str, int]
    taken: Mapping[str, int]


def import_scale_config(
    file: Path, options: ImportOptions, hardware_of: HardwareOf, *, whole: bool = False
) -> tuple[str, Imported]:
    """Return the `skus` part of a fleet.yaml, or a `whole` one, and the result for each key of `file`.

    Raises ConfigurationError if the file cannot be read, has no types, or if none of its types can
    become a SKU; and for a prefix, provider or image that fleet.yaml does not accept.
    """
    _check(options)
    shown = str(file)
    document = parse(read_bounded(file, shown, MAX_BYTES), shown, if_empty=NAME_SCALE_CONFIG)
    imported = _import_types(document, hardware_of, options)
    if not imported.skus:
        problems = [
            Problem(shown, one.line, one.key, one.why, "correct it: no type can be imported")
            for one in imported.reported
        ]
        raise ConfigurationError(problems)
    if whole:
        text = whole_text(imported.skus, file.name, options.provider)
    else:
        text = skus_text(imported.skus, file.name)
    if len(text) > MAX_BYTES:
        what = f"results in more than {MAX_BYTES // 1024} KiB, the limit of a fleet.yaml"
        fix = "split it into several files, and import each"
        raise ConfigurationError([Problem(shown, 0, "", what, fix)])
    return text, imported


def _import_types(document: Document, hardware_of: HardwareOf, options: ImportOptions) -> Imported:
    """Convert every type and variant into a SKU. Raises ConfigurationError if there are none."""
    skus: dict[str, dict[str, Any]] = {}
    places: dict[str, KeyPath] = {}
    skipped: set[KeyPath] = set()
    carried: set[KeyPath] = set()
    reported: dict[KeyPath, str] = {}
    assumed: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    for of_type in runner_types(document, options.prefix):
        try:
            _check_label(of_type, places)
            done = translate(of_type, hardware_of, options)
        except UnconvertibleError as error:
            reported.setdefault(error.path, str(error))
            skipped.add(of_type.path)
            continue
        places[of_type.label.lower()] = of_type.path
        skus[of_type.label], image = done.sku, done.sku["image"]
        carried |= done.carried
        for path, why in done.reported.items():
            reported.setdefault(path, why)
        (taken if done.assumed is None else assumed)[_written(image)] += 1
        if "canary" in image:
            taken[_written(image["canary"])] += 1
    found = [
        Reported(problem.line, problem.key, f"{problem.what}; the first one is used")
        for problem in document.problems
    ]
    kept = []
    for path in (given.path for given in keys_of(document)):
        if path in carried and path not in reported:
            kept.append(dotted(path))
        else:
            why = reported.pop(path, "") or _why_not(path, skipped)
            found.append(Reported(document.line(path), dotted(path), why))
    # The others are errors of a whole type. Its variants may still use its keys.
    for path, why in reported.items():
        found.append(Reported(document.line(path), dotted(path), f"skipped: {why}"))
    return Imported(skus, tuple(kept), tuple(sorted(found)), assumed, taken)


def _check_label(of_type: RunnerType, places: Mapping[str, KeyPath]) -> None:
    """Raise UnconvertibleError for a label that no SKU may have, or that another type has."""
    try:
        read(SkuName, of_type.label)
    except ValueError as error:
        raise UnconvertibleError(of_type.path, str(error)) from None
    if (first := places.get(of_type.label.lower())) is not None:
        why = f"{of_type.label} is already the label of {dotted(first)}"
        raise UnconvertibleError(of_type.path, why)


def _why_not(path: KeyPath, skipped: set[KeyPath]) -> str:
    """Return why no type has used a key that has no error of its own."""
    if any(path[:end] in skipped for end in range(2, len(path) + 1)):
        return "skipped with its type"
    if len(path) == 1:
        return "unknown key"
    return "has no variants" if path[-1] == VARIANTS else "not a runner type"


def _written(image: Mapping[str, Any]) -> str:
    """Return an image as `name|owner`."""
    return f"{image['name']}|{image['owner']}"


def report_lines(imported: Imported, file: str, width: int | None = None) -> Iterator[str]:
    """Return the report: a table of the reported keys, the images to check, and the totals.

    `width` is the terminal's, and no line is longer. None, for a pipe, gives one line for each key.
    """
    rows = [(f"{printable(file)}:{one.line}", one.key, one.why) for one in imported.reported]
    place, key = (max((len(row[column]) for row in rows), default=0) for column in (0, 1))
    for row in rows:
        if width is None:
            yield f"{row[0]:<{place}}  {row[1]:<{key}}  {row[2]}"
        else:
            yield from _wrapped(f"{row[0]}  {row[1]}", row[2], width)
    for image, count in sorted(imported.assumed.items()):
        yield from _wrapped(f"no ami for {counted(count, 'SKU')}: image {image}", "", width)
    for image, count in sorted(imported.taken.items()):
        what = f"image {image} of {counted(count, 'SKU')} {_about(image)}"
        yield from _wrapped(what, "", width)
    carried, reported = len(imported.carried), len(imported.reported)
    yield (
        f"{counted(carried + reported, 'key')}: {carried} carried over into "
        f"{counted(len(imported.skus), 'SKU')}, {reported} reported"
    )


def _about(image: str) -> str:
    """Return a note on an image of the file, given as `name|owner`.

    PyTorch's machines download the runner at boot (terraform-aws-github-runner,
    `modules/runners/templates/install-config-runner.sh`); this fleet's images must contain it.
    """
    if image.rpartition("|")[2] in STOCK_OWNERS:
        return f"{WHAT}: {FIX}"
    return f"{HOLDS_RUNNER}: see docs/agent.md"


def _wrapped(head: str, rest: str, width: int | None) -> list[str]:
    """Return one line if `width` is None, or else lines of at most that width, indented after the first."""
    line = f"{head}  {rest}" if rest else head
    if width is None or len(line) <= width:
        return [line]
    parts = [*wrap(head, width, subsequent_indent="    ", break_on_hyphens=False)]
    return parts + wrap(rest, width, initial_indent="    ", subsequent_indent="    ")


def _check(options: ImportOptions) -> None:
    problems = []
    if not re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9_-]*\.)*", options.prefix):
        what = f"{show(options.prefix)} is not a prefix of labels"
        problems.append(Problem("--prefix", 0, "", what, "write one such as lf. or lf.c."))
    try:
        read(ProviderName, options.provider)
    except ValueError as error:
        fix = "name it with letters, digits, dots, - and _"
        problems.append(Problem("--provider", 0, "", str(error), fix))
    for os, image in options.images.items():
        try:
            parse_ami(image)
        except ValueError as error:
            fix = 'write "NAME|OWNER", such as "my-runner-*|self"'
            problems.append(Problem(f"--{os.value}-ami", 0, "", str(error), fix))
    if problems:
        raise ConfigurationError(problems)
