"""What commands for a running controller share: options, arguments, the client, and printing of answers."""

import inspect
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from autoscaler.operator_commands.fleet_file import ConfigOption, fleet_file, named_fleet_file

if TYPE_CHECKING:
    from autoscaler.operator_commands.client import OperatorClient
    from autoscaler.operator_commands.endpoint import Endpoint

URL_VARIABLE = "AUTOSCALER_URL"

Answer = dict[str, Any]


class Reply(NamedTuple):
    """The controller's answer, the function that prints it as text, and the exit status."""

    answer: Answer
    print_text: Callable[[Answer], None]
    status: int = 0


def controller_command(ask: Callable[..., Reply]) -> Callable[..., None]:
    """Return a command for a running controller, with the options that all such commands have.

    `ask` gets a client, then the command's own arguments. The command has its name and its documentation.
    """

    def command(
        *,
        config: ConfigOption = None,
        as_json: Annotated[
            bool, typer.Option("--json", help="Print the controller's answer as JSON.")
        ] = False,
        url: Annotated[
            str | None,
            typer.Option(
                metavar="URL",
                help=f"The controller's URL; default: ${URL_VARIABLE} (without --config), "
                "then server.public_url.",
            ),
        ] = None,
        token_file: Annotated[
            Path | None,
            typer.Option(
                envvar="AUTOSCALER_TOKEN_FILE",
                show_envvar=False,
                metavar="FILE",
                help="A file with your token; default: $AUTOSCALER_TOKEN_FILE, then server.admin_token_file.",
            ),
        ] = None,
        **own: Any,
    ) -> None:
        with _connected(config, url, token_file) as client:
            answer, print_text, status = ask(client, **own)
        if as_json:
            typer.echo(json.dumps(answer, indent=2))
        else:
            print_text(answer)
        if status:
            raise typer.Exit(status)

    first, *shared, _ = inspect.signature(command).parameters.values()
    _, *its_own = inspect.signature(ask).parameters.values()
    # By keyword, so that an argument that must be given may follow an option with a default.
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [one.replace(kind=keyword) for one in (first, *its_own, *shared)]
    # Typer reads both.
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__name__, command.__doc__ = ask.__name__, ask.__doc__
    return command


@contextmanager
def _connected(
    config: Path | None, url: str | None, token_file: Path | None
) -> "Iterator[OperatorClient]":
    """Return a client of the controller.

    Prints errors to stderr. Exits with 2 for errors of fleet.yaml or options, with 1 for others.
    """
    from autoscaler.config import ConfigurationError, exposed_token_file
    from autoscaler.operator_commands.client import OperatorClient, OperatorRequestFailedError
    from autoscaler.operator_commands.endpoint import UnusableUrlError

    if url is None and config is None:
        url = os.environ.get(URL_VARIABLE) or None
    try:
        client = OperatorClient(_endpoint(config, url, token_file))
        if token_file is not None and (problem := exposed_token_file(token_file)) is not None:
            typer.echo(plain(str(problem)), err=True)
        yield client
    except ConfigurationError as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        # Not for problems of their own file of tokens.
        if token_file is None or any(one.file != str(token_file) for one in error.problems):
            typer.echo("--url and --token-file together need no valid fleet.yaml", err=True)
        raise typer.Exit(2) from None
    except UnusableUrlError as error:
        raise typer.BadParameter(plain(str(error)), param_hint="--url") from None
    except OperatorRequestFailedError as error:
        typer.echo(plain(str(error)), err=True)
        raise typer.Exit(1) from None


def _endpoint(config: Path | None, url: str | None, token_file: Path | None) -> "Endpoint":
    """Return the controller's endpoint. With a URL and a token, no valid fleet.yaml is needed.

    Raises ConfigurationError and UnusableUrlError.
    """
    from autoscaler.operator_commands.endpoint import configured_endpoint, given_endpoint

    if url is None or token_file is None:
        return configured_endpoint(fleet_file(config), url, token_file)
    endpoint = given_endpoint(url, token_file, named_fleet_file(config))
    for problem in endpoint.problems:
        typer.echo(str(problem), err=True)
    if endpoint.problems:
        typer.echo("goes on without it, with --url and --token-file alone", err=True)
    return endpoint


def plain(text: object) -> str:
    """Replace unprintable characters, which names and tags may contain and a terminal would interpret."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))


MAX_NAME = 128
"""Maximum number of characters in a name that the controller accepts."""

_MAX_DIGITS = 18
"""Maximum number of digits in the number of a job that the controller accepts."""

_JOB_PAGE = re.compile(
    r"(https?://[^/]+)/([^/]+/[^/]+)/actions/runs/\d+(?:/attempts/\d+)?/job/(\d+)(?:[?#].*)?"
)
"""The address of a job's page at GitHub (`html_url` of a workflow job)."""


class JobPage(NamedTuple):
    """The address of a job's page: GitHub's own, such as https://github.com, `owner/name`, and the number."""

    github: str
    repository: str
    job: str


def usable_name(text: str) -> str:
    """Return the name of a record. Raises BadParameter if none can have it."""
    if not text.strip():
        raise typer.BadParameter("it is empty")
    if len(text) > MAX_NAME:
        raise typer.BadParameter(f"it is longer than {MAX_NAME} characters")
    return text


def machine_state(text: str | None) -> str | None:
    """Return the state of a machine, None if none is given. Raises BadParameter if no machine has it."""
    from autoscaler.model.machines.machine import MachineState  # `--help` does not need it

    if text is not None and text not in set(MachineState):
        raise typer.BadParameter(
            f"{text!r} is not one of {', '.join(map(repr, map(str, MachineState)))}."
        )
    return text


def job_number(text: str) -> str | None:
    """Return the number of a job that is given by its number or its page. None for other text.

    Raises BadParameter for another page than that of a job, and for more digits than a job's number has.
    """
    if text.isascii() and text.isdigit():
        return _checked_digits(text)
    if not text.startswith(("https://", "http://")):
        return None
    return job_page(text).job


def job_page(text: str) -> JobPage:
    """Return what the address of a job's page says. Raises BadParameter for another address."""
    if (page := _JOB_PAGE.fullmatch(text)) is None:
        raise typer.BadParameter(
            f"{text} is not the page of a job. Open the job in its run: its page is "
            "https://github.com/OWNER/REPOSITORY/actions/runs/RUN/job/JOB"
        )
    return JobPage(page[1], page[2], _checked_digits(page[3]))


def _checked_digits(digits: str) -> str:
    if len(digits) > _MAX_DIGITS:
        raise typer.BadParameter(
            f"{digits} is not the number of a job: it has more than {_MAX_DIGITS} digits"
        )
    return digits


def labels_of(words: Sequence[str]) -> list[str]:
    """Return the labels in these words, which may be a list of YAML such as `[self-hosted, gpu]`.

    Raises BadParameter for an empty label, and for a list that lacks a bracket. A comma separates labels, as in
    `config.sh --labels` of the runner.
    """
    text = ",".join(word.strip().removesuffix(",") for word in words)
    begins, ends = text.startswith("["), text.endswith("]")
    if begins != ends:
        raise typer.BadParameter(
            f"the list of labels has no {'closing' if begins else 'opening'} bracket: "
            "write '[self-hosted, gpu]', or the labels alone"
        )
    if begins:
        text = text[1:-1]
    labels = [label.strip().strip("\"'") for label in text.split(",")]
    if not all(labels):
        raise typer.BadParameter("a label is empty")
    return labels
