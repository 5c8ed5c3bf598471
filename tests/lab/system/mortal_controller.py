"""A controller that dies inside a commit: `mortal_controller.py ORDER ARGUMENT...`, else `autoscaler`.

While the file ORDER is there, the first transaction that writes such a row is the process's last:
it is killed after the transaction's last statement and before its COMMIT. What the row was to be
is left beside the order. It knows the store by its SQL alone, and has no part in it.
"""

import json
import os
import re
import signal
import sqlite3
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

_INSERT = re.compile(r"\s*INSERT INTO (?P<table>\w+) \((?P<columns>[\w, ]+)\)")
"""Rows go in as one JSON list of lists, the first parameter, in the order of these columns."""


@dataclass(frozen=True, slots=True)
class LastWrite:
    """In which row's transaction to die: one of `table` that has `value` in `column`."""

    table: str
    column: str
    value: str

    def give(self, order: Path) -> None:
        """Write the order atomically to the file that the process reads."""
        draft = order.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(self)))
        draft.replace(order)


def unwritten(order: Path) -> dict[str, Any]:
    """The row in whose transaction the process died. Raises FileNotFoundError before that."""
    found: dict[str, Any] = json.loads(order.with_suffix(".row").read_text())
    return found


class _Fate:
    """Watches what is written. Belongs to the thread that writes."""

    def __init__(self, order: Path) -> None:
        self._order = order
        self._row: dict[str, Any] | None = None

    def begin(self) -> None:
        self._row = None

    def wrote(self, statement: str, parameters: Sequence[Any]) -> None:
        if self._row is not None or not self._order.exists():
            return
        order = LastWrite(**json.loads(self._order.read_text()))
        into = _INSERT.match(statement)
        if into is None or into["table"] != order.table:
            return
        columns = into["columns"].split(", ")
        rows = (dict(zip(columns, row, strict=True)) for row in json.loads(parameters[0]))
        self._row = next((row for row in rows if row.get(order.column) == order.value), None)

    def commit(self) -> None:
        if self._row is None:
            return
        texts = {name: value for name, value in self._row.items() if isinstance(value, str)}
        self._order.with_suffix(".row").write_text(json.dumps(texts))
        self._order.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def main(order: Path) -> None:
    """Run `autoscaler` until the order is carried out."""
    fate = _Fate(order)

    class Watched(sqlite3.Connection):
        """The connection of the store, which begins and commits with statements."""

        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if sql.startswith("BEGIN"):
                fate.begin()
            elif sql == "COMMIT":
                fate.commit()
            cursor = super().execute(sql, parameters)
            fate.wrote(sql, parameters)
            return cursor

    sqlite3.connect = partial(sqlite3.connect, factory=Watched)  # type: ignore[assignment]
    from lab.serve import command

    command()


if __name__ == "__main__":
    main(Path(sys.argv.pop(1)))
