"""The command `autoscaler init`."""

import asyncio
import os
import re
import sys
import webbrowser
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from autoscaler.setup.asking import Options
    from autoscaler.setup.choices import Choices
    from autoscaler.setup.github_app import Browser
    from autoscaler.setup.run import OwnApp, Result

INTERRUPTED = 130
LONGEST_WAIT = 55
"""Minutes. GitHub takes a manifest's code for one hour."""

_Several = list[str] | None


def init(  # noqa: PLR0913 - each is an option of the command
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder of the fleet.")
    ] = Path("fleet"),
    org: Annotated[str | None, typer.Option(help="The organization to serve.")] = None,
    repo: Annotated[
        str | None, typer.Option(metavar="OWNER/NAME", help="The one repository to serve.")
    ] = None,
    personal: Annotated[
        bool, typer.Option("--personal", help="OWNER of --repo is your own account.")
    ] = False,
    runner_group: Annotated[
        str | None, typer.Option(help="The organization's runner group; default: gpu.")
    ] = None,
    repository: Annotated[
        _Several,
        typer.Option(help="A repository that may use the machines. Repeat it for several."),
    ] = None,
    ec2: Annotated[
        str | None, typer.Option(metavar="REGION", help="Launch machines on EC2 in this region.")
    ] = None,
    subnet: Annotated[
        _Several, typer.Option(help="A subnet of the machines. Repeat it for several.")
    ] = None,
    security_group: Annotated[
        _Several, typer.Option(help="A security group of the machines. Repeat it for several.")
    ] = None,
    instance_type: Annotated[
        str | None, typer.Option(help="The type of the first SKU; default: g5.xlarge.")
    ] = None,
    kubernetes: Annotated[
        str | None,
        typer.Option(metavar="CONTEXT", help="Create pods in the cluster of this context."),
    ] = None,
    namespace: Annotated[str | None, typer.Option(help="The namespace of the pods.")] = None,
    image: Annotated[str | None, typer.Option(help="The container image of the pods.")] = None,
    public_url: Annotated[
        str | None, typer.Option(help="The URL under which machines reach the controller.")
    ] = None,
    api_url: Annotated[
        str | None, typer.Option(help="The API of a GitHub Enterprise Server.")
    ] = None,
    fleet: Annotated[
        str | None, typer.Option(help="The fleet's name; default: that of the owner.")
    ] = None,
    webhook: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Have GitHub send webhooks to this URL of /webhook."),
    ] = None,
    app_name: Annotated[
        str | None, typer.Option(help="The App's name; default: FLEET-autoscaler.")
    ] = None,
    app_by_hand: Annotated[
        bool,
        typer.Option(
            "--app-by-hand", help="Create the App on GitHub's own form, and give its ID and key."
        ),
    ] = False,
    app_id: Annotated[int | None, typer.Option(help="The ID of an App that exists.")] = None,
    private_key: Annotated[
        Path | None, typer.Option(help="The private key of that App, as GitHub saved it.")
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port of the page; default: a free one.")
    ] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the page's address.")
    ] = False,
    wait: Annotated[
        int,
        typer.Option(min=0, max=LONGEST_WAIT, help="Minutes to wait for each step in the browser."),
    ] = 30,
    yes: Annotated[bool, typer.Option("--yes", help="Take the default of each question.")] = False,
    demo: Annotated[
        bool,
        typer.Option(
            "--demo",
            help="Write a fleet for a GitHub and an EC2 that this host plays, without an account.",
        ),
    ] = False,
) -> None:
    """Write the folder of a fleet, and create its GitHub App.

    Asks for what the options do not say. It can be run again: it does only what is missing, and prints what is
    left to do, in order.
    """
    from autoscaler.setup.asking import Options
    from autoscaler.setup.github_app import Browser

    options = Options(
        org=org,
        repo=repo,
        personal=personal,
        runner_group=runner_group,
        repositories=tuple(repository or ()),
        ec2=ec2,
        subnets=tuple(subnet or ()),
        security_groups=tuple(security_group or ()),
        instance_type=instance_type,
        kubernetes=kubernetes,
        namespace=namespace,
        image=image,
        public_url=public_url,
        api_url=api_url,
        fleet=fleet,
        webhook=webhook,
    )
    browser = Browser(port, _print_only if no_browser else _open_browser, wait * 60.0)
    app = _App(app_name, app_id, private_key, by_hand=app_by_hand)
    if demo:
        _refuse_with_demo(options, app)
    work = partial(_demo, folder) if demo else partial(_run, folder, options, app, browser, yes)
    raise typer.Exit(_finished(work, folder))


class _App:
    """The options about the App."""

    def __init__(
        self, name: str | None, number: int | None, key: Path | None, *, by_hand: bool
    ) -> None:
        self.name = name
        self.number = number
        self.key = key
        self.by_hand = by_hand or number is not None or key is not None


def _finished(work: Callable[[], int], folder: Path) -> int:
    """Do the work of the command, and print its errors. Return the exit status."""
    import shlex

    from autoscaler.config import ConfigurationError
    from autoscaler.controller.ports.github import GitHubError
    from autoscaler.github.app_setup import AppNotCreatedError
    from autoscaler.setup.app_page import PageError
    from autoscaler.setup.github_app import NotFinishedError
    from autoscaler.setup.private_files import NotWrittenError

    try:
        return work()
    except ConfigurationError as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        return 2
    except (AppNotCreatedError, NotFinishedError, NotWrittenError, PageError, GitHubError) as error:
        typer.echo(f"error: {error}", err=True)
        return 1
    except OSError as error:
        typer.echo(f"error: {error.filename}: {error.strerror}", err=True)
        return 1
    except KeyboardInterrupt:
        again = "the same command again"
        if (folder / "fleet.yaml").exists():  # which refuses options about the fleet
            again = f"autoscaler init {shlex.quote(str(folder))}"
        typer.echo(f"Interrupted. What was written stays: run {again}", err=True)
        return INTERRUPTED


def _refuse_with_demo(options: "Options", app: _App) -> None:
    from autoscaler.setup.asking import given

    if given(options) or app.by_hand or app.name is not None:
        raise typer.BadParameter("--demo takes no options about a fleet or its App")


def _demo(folder: Path) -> int:
    from autoscaler.setup import demo, run

    demo.refuse_without_lab()
    run.make_folder(folder)
    demo.write_demo(folder, folder / run.FLEET, typer.echo)
    typer.echo("\nLeft to do, in this order:")
    for number, step in enumerate(demo.demo_steps(folder, folder / run.FLEET), 1):
        typer.echo(f"{number}. {step}")
    return 0


def _run(folder: Path, options: "Options", app: _App, browser: "Browser", accept: bool) -> int:
    from autoscaler.setup import run
    from autoscaler.setup.asking import Asking, choose, refuse_choices, webhook_url

    webhook = webhook_url(options.webhook) if options.webhook is not None else None
    if (folder / run.FLEET).exists():
        refuse_choices(options, folder / run.FLEET)
    else:
        chosen = choose(options, Asking(accept))
        name = _app_name(app.name or f"{chosen.fleet[:23].rstrip('-')}-autoscaler")
        run.make_folder(folder)
        own = _own_app(folder, chosen, name, app, Asking(accept)) if app.by_hand else None
        _refuse_leftover(folder, app)
        asyncio.run(run.begin(folder, chosen, name, own, browser, typer.echo))
    result = asyncio.run(run.go_on(folder, webhook, browser, typer.echo))
    return _report(folder, result)


def _app_name(name: str) -> str:
    from autoscaler.setup.manifest import LONGEST_NAME

    if len(name) > LONGEST_NAME:
        raise typer.BadParameter(
            f"--app-name: {name!r} has {len(name)} characters, and GitHub allows {LONGEST_NAME}"
        )
    return name


def _own_app(folder: Path, chosen: "Choices", name: str, app: _App, asking: "object") -> "OwnApp":
    """Return the App that the owner creates by hand. Prints the address of GitHub's form."""
    from autoscaler.config.files.pem import private_key
    from autoscaler.config.files.regular_files import UnusableFileError, read_regular
    from autoscaler.setup.asking import Asking
    from autoscaler.setup.choices import KEY
    from autoscaler.setup.run import OwnApp, app_plan

    assert isinstance(asking, Asking)
    if app.number is None:
        typer.echo(f"Create the App on this form:\n{app_plan(chosen, name).by_hand}")
        typer.echo("Then generate a private key on the App's page, and save it on this host.")
    number = asking.text(
        str(app.number) if app.number is not None else None, "--app-id", "The App's ID"
    )
    if re.fullmatch("[1-9][0-9]{0,14}", number) is None:
        raise typer.BadParameter(f"--app-id: {number!r} is not the number on the App's page")
    kept = folder / KEY
    given = str(app.key) if app.key is not None else str(kept) if kept.exists() else None
    file = Path(asking.text(given, "--private-key", "File of the App's private key"))
    try:
        content = read_regular(file)
        private_key(content)
        return OwnApp(int(number), content.decode())
    except OSError as error:
        raise typer.BadParameter(f"--private-key: {file}: {error.strerror}") from None
    except (UnusableFileError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"--private-key: {file} {error}") from None


def _refuse_leftover(folder: Path, app: _App) -> None:
    """Refuse a key without a fleet.yaml: this command was stopped between the two, and knows no App ID."""
    from autoscaler.setup.choices import KEY

    key = folder / KEY
    if key.exists() and not app.by_hand:
        raise typer.BadParameter(
            f"{key} exists, and is not overwritten: give the ID of its App with --app-id, or remove the file"
        )


def _report(folder: Path, result: "Result") -> int:
    """Print problems of fleet.yaml and the steps that are left. Return the exit status."""
    from autoscaler.setup.remaining import remaining_steps

    for problem in result.problems:
        typer.echo(str(problem), err=True)
    typer.echo("\nLeft to do, in this order:")
    for number, step in enumerate(remaining_steps(folder, result.steps), 1):
        typer.echo(f"{number}. {step}")
    return 1 if any(not problem.warning for problem in result.problems) else 0


def _print_only(address: str) -> None:
    """Open nothing: the address was printed."""


def _open_browser(address: str) -> None:
    """Open a graphical browser if there is one. A browser in the terminal would take it over."""
    graphical = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if graphical or sys.platform == "darwin":
        webbrowser.open(address)
