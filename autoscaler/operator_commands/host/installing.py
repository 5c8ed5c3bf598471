"""Installs, starts, drains and removes the controller's unit, in steps over a `Host`."""

import http.client
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from autoscaler.model.identifiers import Address, Seconds
from autoscaler.operator_commands.host.plan import (
    CONFIGURATION,
    DATA,
    UNIT,
    UNIT_FILE,
    Fleet,
    Plan,
    RefusedError,
)

if TYPE_CHECKING:
    from autoscaler.config import Configuration
    from autoscaler.operator_commands.client import OperatorClient
    from autoscaler.operator_commands.host.system import Host

READY_WITHIN: Seconds = 120.0
_LOOK_EVERY: Seconds = 1.0
_ANSWER_WITHIN: Seconds = 5.0
_MAX_ANSWER_BYTES = 64 * 1024
_JOURNAL = f"`journalctl -u {UNIT}` says why"

Say = Callable[[str], None]


def read_fleet(configuration: "Configuration") -> Fleet:
    """Return what an installation needs of a fleet.yaml. Raises OSError if a file cannot be read."""
    settings = configuration.settings
    names = {str(name) for _, name in configuration.named_files()}
    named = {
        name: configuration.file(name).read_bytes()
        for name in names
        if not Path(name).is_absolute()
    }
    listens = (settings.server.listen, settings.server.webhook_listen)
    store = configuration.sqlite_file()
    return Fleet(
        settings.fleet,
        settings.store,
        tuple(one for one in listens if one is not None),
        store is not None and store.exists(),
        configuration.path.read_bytes(),
        named,
    )


def apply(plan: Plan, host: "Host", say: Say) -> None:
    """Make what the plan has, and start the controller. Restart it only if something changed."""
    if host.make_user():
        say("made the user autoscaler")
    for folder in plan.folders:
        if host.make_folder(folder):
            say(f"made {folder.path}")
    changed = [file.path for file in plan.files if host.write(file)]
    for path in changed:
        say(f"wrote {path}")
    if UNIT_FILE in changed:
        _need(host, "daemon-reload")
    _need(host, "enable", UNIT)
    _need(host, "restart" if changed else "start", UNIT)
    say(f"{'started' if changed else 'nothing changed: the controller runs as before,'} {UNIT}")


def _need(host: "Host", *words: str) -> None:
    if not host.systemctl(*words):
        raise RefusedError(f"systemctl {' '.join(words)} failed: {_JOURNAL}")


def wait_until_ready(
    host: "Host",
    ask: Callable[[], str | None],
    now: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    """Return when the controller is ready. `ask` returns why it is not yet, or None.

    Raises RefusedError if the unit ends, or after READY_WITHIN.
    """
    until = now() + READY_WITHIN
    while (reason := ask()) is not None:
        if not host.systemctl("is-active", "--quiet", UNIT):
            raise RefusedError(f"the controller has ended: {_JOURNAL}")
        if now() >= until:
            raise RefusedError(
                f"the controller runs, and is not ready after {READY_WITHIN:.0f} s: {reason}; {_JOURNAL}"
            )
        sleep(_LOOK_EVERY)


def ask_ready(address: Address, *, tls: bool) -> str | None:
    """Return why the controller at this address of this host is not ready, or None if it is."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host)  # noqa: S104
    connection = http.client.HTTPConnection(host, address.port, timeout=_ANSWER_WITHIN)
    if tls:
        # The certificate has the name of public_url. Nothing secret is sent.
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(
            host, address.port, timeout=_ANSWER_WITHIN, context=context
        )
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        text = answer.read(_MAX_ANSWER_BYTES).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return f"{address} does not answer ({error})"
    finally:
        connection.close()
    return None if answer.status == http.HTTPStatus.OK else f"/readyz says {_one_line(text)}"


def _one_line(text: str) -> str:
    try:
        return json.dumps(json.loads(text))
    except ValueError:
        return repr(text)


def drain(client: "OperatorClient", providers: tuple[str, ...]) -> bool:
    """Give no machine a further job, and launch no more. Return True if machines are left.

    Raises OperatorRequestFailedError.
    """
    for name in providers:
        client.act("/admin/drain", target=f"provider/{name}")
    return bool(client.ask("/admin/machines", limit=1)["machines"])


def remove(host: "Host", say: Say, *, purge: bool) -> None:
    """Stop and remove the unit, and say what stays and why."""
    say(f"removed {UNIT}" if host.remove_unit() else f"{UNIT} is not installed")
    if purge:
        host.purge(CONFIGURATION, DATA)
        say(f"removed {CONFIGURATION}, {DATA} and the user autoscaler")
    else:
        say(f"left {CONFIGURATION}: fleet.yaml and its secrets, for another installation")
        say(f"left {DATA}: the store, without which a new controller does not know the machines")
        say(
            "left the user autoscaler: it owns these folders. `autoscaler uninstall --purge` removes all three"
        )
    say("left the GitHub App, its webhook and the runner groups: delete them at GitHub")
    say("left images and roles at the providers: the controller did not make them")
