"""The commands `autoscaler store backup`, `restore`, `check` and `copy`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoscaler.operator_commands.fleet_file import ConfigOption, fleet_file

if TYPE_CHECKING:
    from autoscaler.store.sqlite.upkeep import Condition, SqliteUpkeep

store = typer.Typer(
    help="Back up, restore and check the controller's store.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@store.command()
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The backup to write.")],
    config: ConfigOption = None,
) -> None:
    """Copy the store into one file, also while the controller runs.

    FILE appears when the copy is complete, and replaces an earlier FILE. Exits with 1 if the store is damaged
    or cannot be copied.
    """
    with _upkeep(config) as upkeep:
        _print(upkeep.backup(file), "backup")


@store.command()
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A backup.")],
    config: ConfigOption = None,
) -> None:
    """Replace the store by a backup, and keep the replaced store.

    Stop the controller first. Exits with 1 if a controller uses the store, or FILE cannot be used; the store is
    as before then.
    """
    from datetime import UTC, datetime

    with _upkeep(config) as upkeep:
        kept = upkeep.restore(file, datetime.now(UTC))
        _print(upkeep.check(), "restored store")
    if kept is not None:
        typer.echo(f"the replaced store is {kept}: delete it when you no longer need it")
    typer.echo("next: start the controller. It compares the store with GitHub and the providers")


@store.command()
def check(
    config: ConfigOption = None,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A backup; default: the store.")
    ] = None,
) -> None:
    """Check the store, or a backup, for damage.

    Works while the controller runs, and changes nothing. Prints the schema, the last heartbeat, the size, and
    the free space of the disk. Exits with 1 if the file is missing, damaged or not a store.
    """
    with _upkeep(config) as upkeep:
        _print(upkeep.check(file), "store" if file is None else "backup")


@store.command()
def copy(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The URL of a store.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The URL of a new store.")],
) -> None:
    """Copy a store into an empty one, and compare every row.

    SOURCE is the store of a stopped controller: a SQLite file for a PostgreSQL database, or the other way. The
    command upgrades the schema of SOURCE, and changes no other part of it. Exits with 1 if a store is in use,
    TARGET has rows, or a row differs: then TARGET is as before.
    """
    from contextlib import closing

    from autoscaler.controller.ports.store import StoreError
    from autoscaler.store.copying import copy as copied
    from autoscaler.store.opening import open_database

    try:
        with (
            closing(open_database(source, new=False)) as old,
            closing(open_database(target)) as new,
        ):
            rows = copied(old, new)
    except StoreError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    for table, number in rows.items():
        typer.echo(f"{table:<16}  {number}")
    typer.echo("every row was compared")
    typer.echo(
        "next: write the new URL in fleet.yaml, and start the controller. Do not use the old store again"
    )


@contextmanager
def _upkeep(config: Path | None) -> "Iterator[SqliteUpkeep]":
    """Return the upkeep of a store. Exits with 2 for an error of fleet.yaml, with 1 for the store's."""
    from autoscaler import config as configuration
    from autoscaler.controller.ports.store import StoreError
    from autoscaler.providers.registry import provider_kinds
    from autoscaler.store.opening import open_upkeep

    try:
        url = configuration.load(fleet_file(config), provider_kinds(), files=False).store_url()
        yield open_upkeep(url)
    except configuration.ConfigurationError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    except StoreError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


def _print(found: "Condition", what: str) -> None:
    import time

    from autoscaler.model.wording import duration, moment

    current = found.schema == found.newest_schema
    schema = (
        "that of this version" if current else f"the controller upgrades to {found.newest_schema}"
    )
    written = "never"
    if found.written_at is not None:
        age = duration(time.time() - found.written_at)
        written = f"{moment(found.written_at)}, {age} ago"
    rows = {
        what: str(found.file),
        "pages": "no damage found",
        "schema": f"{found.schema}: {schema}",
        "last heartbeat": written,
        "size": f"{found.bytes / 1e6:.1f} MB",
        "free on its disk": f"{found.free_bytes / 1e6:.1f} MB",
    }
    for name, value in rows.items():
        typer.echo(f"{name:<16}  {value}")
