"""A fleet.yaml as its checks and the program read it."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec

from autoscaler.config.files.regular_files import open_regular
from autoscaler.config.problems import KeyPath, Problem, unreadable_fix
from autoscaler.config.reading.document import Document
from autoscaler.config.settings.fleet import ProviderSettings, Settings
from autoscaler.config.settings.sections import values_in
from autoscaler.config.settings.shapes import FileName, NoValueError
from autoscaler.config.settings.sku import SkuSettings

SQLITE = "sqlite:///"

_P = ParamSpec("_P")


@dataclass(frozen=True, slots=True)
class Configuration:
    """A fleet.yaml. `document` has the lines of its text.

    While it is checked, keys with an error have no value: reading them raises `NoValueError`.
    """

    path: Path
    settings: Settings
    document: Document = field(repr=False)
    warnings: tuple[Problem, ...] = ()

    def file(self, name: str) -> Path:
        """Return the path of a file named in fleet.yaml; relative names start at its folder."""
        return self.path.parent / name

    def sqlite_file(self) -> Path | None:
        """Return the SQLite file of the store, or None for another store."""
        store = self.settings.store
        return self.file(store.removeprefix(SQLITE)) if store.startswith(SQLITE) else None

    def store_url(self) -> str:
        """Return the URL of the store, with an absolute path."""
        file = self.sqlite_file()
        return self.settings.store if file is None else f"{SQLITE}{file.resolve()}"

    def named_files(self) -> Iterator[tuple[KeyPath, FileName]]:
        """Return the keys that name files, with the names."""
        for path, value in values_in(self.settings):
            if isinstance(value, FileName):
                yield path, value

    def why_unreadable(self, name: str) -> tuple[str, str] | None:
        """Return why a file that fleet.yaml names cannot be read and the fix, or None."""
        file = self.file(name)
        try:
            if not file.exists():
                folder = self.path.parent.absolute()
                fix = f"create the file, or correct the name, which is relative to {folder}"
                return "does not exist", fix
            if not file.is_file():
                return "is not a file", "name a file"
            open_regular(file).close()
        except OSError as error:
            return f"cannot be read: {error.strerror}", unreadable_fix(error)
        return None

    def readable_file(self, name: str | None) -> Path | None:
        """Return a file that fleet.yaml names, or None if it cannot be read, which is reported as such."""
        if name is None or self.why_unreadable(name) is not None:
            return None
        return self.file(name)

    def error(self, path: KeyPath, what: str, fix: str) -> Problem:
        """Return an error at a path."""
        return self.document.problem(path, what, fix)

    def warning(self, path: KeyPath, what: str, fix: str) -> Problem:
        """Return a warning at a path."""
        return self.document.problem(path, what, fix, warning=True)

    def skus(self) -> Iterator[tuple[str, SkuSettings]]:
        """Return the SKUs by name; none if `skus` has no value."""
        yield from getattr(self.settings, "skus", {}).items()

    def providers(self) -> Iterator[tuple[str, ProviderSettings]]:
        """Return the providers by name; none if `providers` has no value."""
        yield from getattr(self.settings, "providers", {}).items()


def run_checks(
    checks: Iterable[Callable[_P, Iterable[Problem]]], *args: _P.args, **kwargs: _P.kwargs
) -> Iterator[Problem]:
    """Return the problems that the checks find, each up to the first key without a value."""
    for check in checks:
        with suppress(NoValueError):
            yield from check(*args, **kwargs)
