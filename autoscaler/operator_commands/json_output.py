"""The controller's answers as JSON, for programs."""

import json
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print the controller's answer as JSON.")]


def print_json(answer: dict[str, Any]) -> None:
    """Print an answer of the controller."""
    typer.echo(json.dumps(answer, indent=2))
