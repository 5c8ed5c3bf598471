"""`autoscaler unverified` and `confirm`, against a controller's endpoint on loopback."""

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from typer.testing import CliRunner, Result

from autoscaler.cli import commands
from autoscaler.controller.operators.actions import OperatorActions
from autoscaler.controller.operators.holds import OperatorHoldActions
from autoscaler.controller.ports.operator_requests import (
    HoldOutcome,
    OperatorRequestRefusedError,
    PlanAgainst,
    RefusalKind,
    RefusedConfigurationError,
    Reloaded,
)
from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import (
    Address,
    InstallationId,
    MachineId,
    ProviderMachineId,
    ProviderName,
    SkuName,
)
from autoscaler.model.machines.unverified import UnverifiedMachine
from autoscaler.model.operators import Operator, OperatorName, Role
from autoscaler.operator_commands.commands import MAX_FILE_BYTES
from autoscaler.server.listening.serving import Serving
from autoscaler.server.listening.settings import ServerSettings
from autoscaler.server.operators import admin
from autoscaler.server.operators.admin import AdminEndpoint
from autoscaler.server.tokens import MOST_WRONG, BearerTokens, WrongTokens
from tests.config.fleet_file import Folder, changed
from tests.ledger.builders import World
from tests.server.asked_world import AskedWorld
from tests.server.test_admin_endpoint import PREVIEW, REFUSED

TOKEN, READER = "0123456789abcdef" * 4, "r" * 40
TOKENS = BearerTokens(
    [
        (TOKEN.encode(), Operator(OperatorName("alice"), Role.OPERATE)),
        (READER.encode(), Operator(OperatorName("console"), Role.READ)),
    ]
)
OURS = UnverifiedMachine(
    MachineId("x-i-1"),
    ProviderName("east"),
    ProviderMachineId("i-1"),
    "0badcafe",
    SkuName("gpu"),
    1_700_000_000.0,
    "2023-11-14",
    "of a launch request that is not in the store",
    "autoscaler terminate x-i-1",
)
OTHER = UnverifiedMachine(
    None,
    ProviderName("east"),
    ProviderMachineId("i-2"),
    "01d01d01",
    SkuName("gpu\x1b[2J"),
    None,
    "2023-11-13",
    "made by another",
    "adopt",
)


@dataclass
class Word(OperatorActions, OperatorHoldActions):
    """Lists two machines, and accepts every request but one."""

    shown: list[UnverifiedMachine] = field(default_factory=lambda: [OURS, OTHER])
    not_listed: list[ProviderName] = field(default_factory=list)
    taken: list[tuple[str, bool]] = field(default_factory=list)

    def unverified(self) -> Sequence[UnverifiedMachine]:
        return self.shown

    def providers_not_listed(self) -> Sequence[ProviderName]:
        return self.not_listed

    async def terminate(self, machine: str, *, by: OperatorName, force: bool = False) -> MachineId:
        if machine == "i-busy" and not force:
            raise OperatorRequestRefusedError(RefusalKind.CONTRADICTED, "it is at work")
        self.taken.append((machine, force))
        return MachineId(f"x-{machine}")

    async def adopt(self, old_id: str, *, by: OperatorName, force: bool = False) -> InstallationId:
        self.taken.append((old_id, force))
        return InstallationId(old_id)

    async def pause(self, target: str, *, by: OperatorName) -> HoldOutcome:
        return self._held("paused", target, by)

    async def drain(self, target: str, *, by: OperatorName) -> HoldOutcome:
        return self._held("drained", target, by)

    async def quarantine(self, target: str, *, by: OperatorName) -> HoldOutcome:
        return self._held("quarantined", target, by)

    async def resume(self, target: str, *, by: OperatorName) -> HoldOutcome:
        return self._held("resumed", target, by)

    async def retry(self, target: str, *, by: OperatorName) -> HoldOutcome:
        return self._held("retried", target, by)

    def _held(self, done: str, target: str, by: OperatorName) -> HoldOutcome:
        if target == "nothing":
            raise OperatorRequestRefusedError(RefusalKind.UNKNOWN, "nothing is called so")
        return HoldOutcome(target, f"{target} is {done} by {by}", "jobs\x1b wait")

    async def reload(self, *, by: OperatorName) -> Reloaded:
        self.taken.append(("reload", False))
        return Reloaded(("limits.machines",), "1 changed key in force")

    async def plan_against(self, content: bytes) -> PlanAgainst:
        if b"bad" in content:
            raise RefusedConfigurationError(["fleet.yaml:1: skus: is bad; fix: mend it"])
        return PlanAgainst(("limits.machines",), ("store",), REFUSED, PREVIEW)


class Elsewhere:
    """Redirects every request to another address."""

    def __init__(self) -> None:
        self.received: list[str] = []

    def add_to(self, app: web.Application, _patience: float, /) -> None:
        app.router.add_get("/moved/admin/unverified", self._move)
        app.router.add_get("/stolen", self._take)
        app.router.add_get("/broken/admin/unverified", self._break)

    async def _move(self, _: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "/stolen"})

    async def _take(self, request: web.Request) -> web.Response:
        self.received.append(request.headers.get("Authorization", ""))
        return web.json_response({"unverified": [], "total": 0})

    async def _break(self, _: web.Request) -> web.Response:
        return web.Response(text="<html>")


@dataclass
class Controller:
    """A server in its own thread, and an operator with its fleet.yaml."""

    file: Path
    url: str
    word: Word
    elsewhere: Elsewhere
    asked: AskedWorld

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(commands, [*arguments, "--config", str(self.file)])


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    word, elsewhere, asked = Word(), Elsewhere(), AskedWorld(World(now=time.time() - 60.0))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> Serving:
        endpoint = AdminEndpoint(
            word, word, asked, word, lambda: TOKENS, WrongTokens(time.monotonic)
        )
        serving = Serving(
            ServerSettings(Address("127.0.0.1", 0), shutdown=0.2), endpoint, [elsewhere]
        )
        await serving.start()
        return serving

    serving = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    url = f"http://{serving.address}"
    yield Controller(fleet_file(tmp_path, url), url, word, elsewhere, asked)
    asyncio.run_coroutine_threadsafe(serving.stop(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def fleet_file(
    folder: Path, url: str, tokens: str = f"bob operate {'o' * 40}\nalice operate {TOKEN}\n"
) -> Path:
    """A configuration whose controller is at a URL."""
    file = Folder(folder).path / "fleet.yaml"
    (folder / "admin-token").write_text(tokens)
    given = f"public_url: {url}\n  admin_token_file: admin-token"
    file.write_text(changed(("public_url: http://127.0.0.1:8443", given)))
    return file


def test_unverified_prints_a_line_for_each_machine_and_exits_with_1(controller: Controller) -> None:
    result = controller.run("unverified")
    assert result.exit_code == 1, result.output
    assert result.stdout.splitlines() == [
        "x-i-1 east i-1 gpu since 2023-11-14 22:13:20Z: of a launch request that is not in the store; "
        "autoscaler terminate x-i-1",
        "east i-2 gpu?[2J launched 2023-11-13: made by another; adopt",
    ]


def test_unverified_without_machines_exits_with_0(controller: Controller) -> None:
    controller.word.shown = []
    result = controller.run("unverified")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no unverified machines" in result.stderr


@pytest.mark.case(
    "a provider cannot be listed after the start: the list of unverified machines is shown as "
    "incomplete",
    topic="EC2's machines",
    source="EC2: request throttling",
)
def test_unverified_reports_providers_that_were_not_listed_yet(controller: Controller) -> None:
    controller.word.shown, controller.word.not_listed = [], [ProviderName("east")]
    result = controller.run("unverified")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("provider east: not listed since the controller's start")
    assert "no unverified" not in result.stderr


def test_terminate_and_adopt_call_the_controller(controller: Controller) -> None:
    result = controller.run("terminate", "i-1")
    assert (result.exit_code, result.stdout) == (0, "machine x-i-1 is being terminated\n")
    result = controller.run("adopt", "01d01d01", "--force")
    assert result.stdout == "installation 01d01d01 now belongs to this fleet\n"
    assert controller.word.taken == [("i-1", False), ("01d01d01", True)]


def test_a_refusal_is_reported_and_force_overrides_it(controller: Controller) -> None:
    result = controller.run("terminate", "i-busy")
    assert (result.exit_code, result.stderr) == (1, "it is at work\n")
    assert controller.run("terminate", "i-busy", "--force").exit_code == 0


@pytest.mark.parametrize(
    ("command", "done"),
    [
        ("pause", "paused"),
        ("drain", "drained"),
        ("quarantine", "quarantined"),
        ("resume", "resumed"),
        ("retry", "retried"),
    ],
)
def test_a_hold_prints_what_it_did_and_what_happens_next(
    controller: Controller, command: str, done: str
) -> None:
    result = controller.run(command, "sku/gpu")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"sku/gpu is {done} by alice\nnext: jobs? wait\n"
    refused = controller.run(command, "nothing")
    assert (refused.exit_code, refused.stderr) == (1, "nothing is called so\n")


def test_reload_prints_what_took_effect(controller: Controller) -> None:
    result = controller.run("reload")
    assert result.exit_code == 0, result.output
    assert result.stdout == "changed: limits.machines\n1 changed key in force\n"


def test_plan_prints_launches_terminations_waiting_jobs_and_cost(
    controller: Controller, tmp_path: Path
) -> None:
    changed_file = tmp_path / "new.yaml"
    changed_file.write_text("fleet: ci")
    result = controller.run("plan", "--against", str(changed_file))
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[:3] == [
        "changed: limits.machines",
        "not in this plan (a reload restarts the controller): store",
        f"a reload would refuse this now: {changed_file}{REFUSED[0].removeprefix('fleet.yaml')}",
    ]
    assert "2 gpu east spot $3.00" in lines
    assert "c0 gpu idle idle for 60 s" in lines
    assert "... and 299 more" in lines
    assert "4 gpu max_machines max_machines of gpu (2) is reached" in lines
    assert "1 queued job would have no SKU" in lines
    assert lines[-1] == "cost at on-demand prices: $10.00 an hour now, $11.50 after this plan"
    as_json = controller.run("plan", "--against", str(changed_file), "--json")
    assert json.loads(as_json.stdout)["preview"]["terminated"] == 300


def test_a_refused_file_is_reported_under_its_own_name(
    controller: Controller, tmp_path: Path
) -> None:
    changed_file = tmp_path / "new.yaml"
    changed_file.write_text("bad")
    result = controller.run("plan", "--against", str(changed_file))
    assert (result.exit_code, result.stderr) == (
        2,
        f"{changed_file}:1: skus: is bad; fix: mend it\n",
    )
    missing = controller.run("plan", "--against", str(tmp_path / "none.yaml"))
    assert missing.exit_code == 2
    assert "cannot be read: No such file" in missing.stderr


def test_a_file_over_the_limit_is_refused_before_it_is_sent(
    controller: Controller, tmp_path: Path
) -> None:
    assert MAX_FILE_BYTES == admin.MAX_FILE_BYTES
    large, whole = tmp_path / "large.yaml", tmp_path / "whole.yaml"
    large.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    whole.write_bytes(b"#" * MAX_FILE_BYTES)
    for path, why in (
        (large, "islargerthan1MiB(1048576bytes)"),
        (Path("/dev/urandom"), "cannotberead:Notaregularfile"),
    ):
        result = controller.run("plan", "--against", str(path))
        assert result.exit_code == 2
        words = "".join(result.stderr.replace("│", " ").split())
        assert f"{path}:{why}" in words
    assert controller.run("plan", "--against", str(whole)).exit_code == 0


@pytest.mark.parametrize("command", ["terminate", "adopt"])
@pytest.mark.parametrize("given", [(), ("i-1", "i-2")])
def test_exactly_one_name_is_given(
    controller: Controller, command: str, given: tuple[str, ...]
) -> None:
    assert controller.run(command, *given).exit_code == 2
    assert controller.word.taken == []


def test_a_refused_token_is_reported(controller: Controller) -> None:
    (controller.file.parent / "admin-token").write_text(f"alice operate {'w' * 40}")
    result = controller.run("unverified")
    assert result.exit_code == 1
    assert "refuses the token" in result.stderr
    assert "w" * 40 not in result.output


def test_too_many_wrong_tokens_are_reported_with_the_time_to_wait(controller: Controller) -> None:
    file = controller.file.parent / "admin-token"
    valid = file.read_text()
    for number in range(MOST_WRONG):
        file.write_text(f"alice operate {str(number) * 40}")
        assert "refuses the token" in controller.run("unverified").stderr
    file.write_text(f"alice operate {'x' * 40}")
    result = controller.run("unverified")
    assert result.exit_code == 1
    assert re.search(r"too many wrong tokens .* try again in \d+ s", result.stderr)
    file.write_text(valid)
    assert "x-i-1" in controller.run("unverified").stdout


def test_a_token_that_may_operate_is_sent_before_one_that_may_only_read(
    controller: Controller,
) -> None:
    tokens = f"alice operate {TOKEN}\n\nconsole read {READER}\n"
    (controller.file.parent / "admin-token").write_text(tokens)
    assert controller.run("terminate", "i-1").exit_code == 0


def test_an_operator_names_the_file_of_their_own_token(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own-token"
    own.write_text(f"console read {READER}\n")
    own.chmod(0o600)
    (controller.file.parent / "admin-token").unlink()
    result = controller.run("terminate", "i-1", "--token-file", str(own))
    assert (result.exit_code, result.stderr) == (
        1,
        "token console has the role read, and this needs operate\n",
    )
    monkeypatch.setenv("AUTOSCALER_TOKEN_FILE", str(own))
    assert controller.run("status").stderr == ""
    own.chmod(0o604)
    result = controller.run("status")
    assert result.exit_code == 0
    assert result.stderr == (
        f"{own}: warning: can be read by every user of this host; fix: run chmod o-rwx {own}\n"
    )
    own.write_text("")
    result = controller.run("status")
    assert result.exit_code == 2
    assert f"{own}: contains no secret; fix: write one line per token" in result.stderr


def test_a_controller_without_the_endpoint_is_reported(controller: Controller) -> None:
    result = controller.run("unverified", "--url", f"{controller.url}/nothing")
    assert (result.exit_code, "no /admin endpoints" in result.stderr) == (1, True)


@pytest.mark.case(
    "strangers send admin requests, or guess tokens",
    topic="Hostile input",
    source="RFC 6750",
)
def test_the_token_is_not_sent_to_a_redirect(controller: Controller) -> None:
    result = controller.run("unverified", "--url", f"{controller.url}/moved")
    assert (result.exit_code, "answered 302" in result.stderr) == (1, True)
    assert controller.elsewhere.received == []


def test_an_answer_of_another_server_is_reported(controller: Controller) -> None:
    result = controller.run("unverified", "--url", f"{controller.url}/broken")
    assert (result.exit_code, "does not answer" in result.stderr) == (1, True)


def test_a_controller_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    file = fleet_file(tmp_path, "http://127.0.0.1:1")
    result = CliRunner().invoke(commands, ["unverified", "--config", str(file)])
    assert result.exit_code == 1
    assert "http://127.0.0.1:1 does not answer" in result.stderr
    assert "--url" in result.stderr


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ("alice operate short", "visible ASCII characters"),
        ("x" * 40, "has not the three words NAME ROLE TOKEN in line 1"),
        ("", "contains no secret"),
        ("alice operate " + "\x7f" * 40, "line 1 without 32 to 1024 visible ASCII"),
        ("alice write " + "x" * 40, "has a role in line 1 that is neither read nor operate"),
        ("a/b read " + "x" * 40, "has a name in line 1"),
        ("alice " + "x" * 40, "has not the three words NAME ROLE TOKEN in line 1"),
        (f"alice read {'x' * 40}\n" * 2, "contains a token twice"),
    ],
)
def test_a_file_without_a_usable_token_is_reported_with_its_key(
    tmp_path: Path, tokens: str, words: str
) -> None:
    file = fleet_file(tmp_path, "http://127.0.0.1:1", tokens)
    for command in ("unverified", "check"):
        option = ["--config", str(file)] if command == "unverified" else [str(file)]
        result = CliRunner().invoke(commands, [command, *option])
        assert result.exit_code == 2
        assert "server.admin_token_file" in result.stderr
        assert words in result.stderr
        assert not tokens or tokens not in result.output


def test_a_configuration_without_a_token_is_reported(tmp_path: Path) -> None:
    file = Folder(tmp_path).path / "fleet.yaml"
    file.write_text(changed())
    result = CliRunner().invoke(commands, ["terminate", "i-1", "--config", str(file)])
    assert result.exit_code == 2
    assert result.stderr == (
        f"{file}:6: server.admin_token_file: is not set, so the controller has no /admin endpoints; fix: "
        "name a file with a token, and restart the controller: see docs/operations.md\n"
        "--url and --token-file together need no valid fleet.yaml\n"
    )


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nonsense", '"nonsense" is no URL; fix: write https://nonsense'),
        ("", "is not an http or https URL"),
        ("file:///etc", "is not an http or https URL"),
        ("https://fleet.example.com/?a=b", "has a query or fragment"),
        ("https://me:mine@fleet.example.com", "contains a user or password"),
        ("http://fleet.example.com", "would send secrets without encryption"),
    ],
)
def test_a_url_without_https_is_refused_for_the_token(
    controller: Controller, url: str, words: str
) -> None:
    result = controller.run("unverified", "--url", url)
    assert result.exit_code == 2, result.output
    reported = " ".join(result.stderr.replace("│", " ").split())
    assert "--url" in reported
    assert words in reported
    assert "fix: " in reported
    assert "mine" not in reported


def test_with_insecure_in_fleet_yaml_the_token_is_sent_over_plain_http(tmp_path: Path) -> None:
    file = fleet_file(tmp_path, "http://127.0.0.1:1")
    file.write_text(file.read_text().replace("server:\n", "server:\n  insecure: true\n"))
    url = "http://controller.invalid"
    result = CliRunner().invoke(commands, ["unverified", "--config", str(file), "--url", url])
    assert (result.exit_code, f"{url} does not answer" in result.stderr) == (1, True)


def test_the_token_is_not_sent_to_a_proxy_unencrypted(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert controller.run("terminate", "i-1").exit_code == 0


def test_an_invalid_id_is_reported_with_where_to_find_ids(controller: Controller) -> None:
    for command, given in (("terminate", "a b"), ("adopt", "a/b")):
        result = controller.run(command, given)
        assert (result.exit_code, "autoscaler unverified" in result.stderr) == (1, True)
    assert controller.word.taken == []


def test_an_unusable_ca_file_is_reported_with_its_key(tmp_path: Path) -> None:
    file = fleet_file(tmp_path, "https://127.0.0.1:1")
    files = "certificate_file: server.pem, key_file: server.key, ca_file: none.pem"
    file.write_text(file.read_text().replace("server:\n", f"server:\n  tls: {{{files}}}\n"))
    result = CliRunner().invoke(commands, ["unverified", "--config", str(file)])
    assert result.exit_code == 2
    assert f"{file}:7: server.tls.ca_file: cannot be used: No such file" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "keys"),
    [
        (["unverified"], 1, {"unverified", "total", "providers_not_listed"}),
        (["terminate", "i-1"], 0, {"machine"}),
        (["adopt", "01d01d01"], 0, {"installation"}),
        (["pause", "gpu"], 0, {"target", "done", "next"}),
        (["drain", "gpu"], 0, {"target", "done", "next"}),
        (["quarantine", "i-1"], 0, {"target", "done", "next"}),
        (["resume", "gpu"], 0, {"target", "done", "next"}),
        (["retry", "gpu"], 0, {"target", "done", "next"}),
        (["reload"], 0, {"changed", "done"}),
    ],
)
def test_each_command_prints_the_answer_as_json(
    controller: Controller, arguments: list[str], status: int, keys: set[str]
) -> None:
    result = controller.run(*arguments, "--json")
    assert (result.exit_code, set(json.loads(result.stdout))) == (status, keys), result.output


TARGETS = ("pause", "drain", "quarantine", "resume", "retry", "terminate", "adopt")


@pytest.mark.parametrize(
    "arguments",
    [
        *((name, "gpu") for name in TARGETS),
        ("unverified",),
        ("reload",),
        ("plan", "--against", "fleet.yaml"),
        ("status",),
        ("jobs",),
        ("machines",),
        ("history", "gpu"),
        ("explain", "gpu"),
    ],
    ids=lambda given: given[0],
)
def test_each_command_sends_the_token_of_a_file_to_the_url_that_is_given(
    controller: Controller,
    arguments: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    controller.asked.rows["gpu"] = [HistoryRow(1.0, "sku", "gpu", "paused", "")]
    own = tmp_path / "own-token"
    own.write_text(f"alice operate {TOKEN}\n")
    own.chmod(0o600)
    # A fleet.yaml of another place, whose token this controller does not know.
    fleet_file(tmp_path, "http://127.0.0.1:1", f"alice operate {'w' * 40}\n")
    result = controller.run(*arguments, "--url", controller.url, "--token-file", str(own))
    assert result.exit_code == (1 if arguments[0] == "unverified" else 0), result.output
    assert result.output
    assert not result.stdout.startswith("{")
    refused = controller.run(*arguments, "--url", controller.url)
    assert (refused.exit_code, "refuses the token" in refused.stderr) == (1, True)
    lost = controller.run(*arguments, "--token-file", str(own))
    assert (lost.exit_code, "127.0.0.1:1 does not answer" in lost.stderr) == (1, True)


def test_a_refusal_is_no_json(controller: Controller) -> None:
    refused = controller.run("terminate", "i-busy", "--json")
    assert refused.exit_code == 1
    assert "{" not in refused.stdout
    assert "it is at work" in refused.stderr
