"""What `autoscaler install` and `uninstall` do to a host: in a folder, with a systemctl that only records."""

import asyncio
import contextlib
import os
import pwd
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import typer
from aiohttp import web

from autoscaler.model.identifiers import Address
from autoscaler.operator_commands.host.commands import TEMPLATE, install_on
from autoscaler.operator_commands.host.installing import (
    READY_WITHIN,
    apply,
    ask_ready,
    drain,
    remove,
    wait_until_ready,
)
from autoscaler.operator_commands.host.plan import (
    CONFIGURATION,
    STORE,
    UNIT,
    UNIT_FILE,
    Fleet,
    Plan,
    RefusedError,
    plan,
    unreachable,
)
from autoscaler.operator_commands.host.system import ThisHost
from tests.command_line import example as example
from tests.command_line import run
from tests.host.fake_systemd import Place


class OwnUserHost(ThisHost):
    """A host whose files all belong to the user of the tests, so that the tests create no user."""

    def make_user(self) -> bool:
        return False

    def _ids(self, owner: str) -> tuple[int, int]:
        return os.getuid(), os.getgid()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


@pytest.fixture
def said() -> list[str]:
    return []


def fleet(**changed: object) -> Fleet:
    values: dict[str, object] = {
        "name": "ci",
        "store": STORE,
        "listens": (Address("0.0.0.0", 8443), Address("0.0.0.0", 8080)),
        "store_exists": False,
        "text": b"fleet: ci\n",
        "named": {"github-app.pem": b"key", "tls/server.pem": b"certificate"},
    }
    return Fleet(**(values | changed))  # type: ignore[arg-type]


def planned(**changed: object) -> Plan:
    return plan(
        fleet(**changed), Path("/opt/autoscaler/bin/autoscaler"), "1.0", TEMPLATE.read_text()
    )


def unit_of(made: Plan) -> str:
    (content,) = [file.content for file in made.files if file.path == UNIT_FILE]
    return content.decode()


def test_an_installation_starts_once_and_restarts_only_for_a_change(
    place: Place, said: list[str]
) -> None:
    host = OwnUserHost(place.root)
    apply(planned(), host, said.append)
    assert place.calls() == [
        "systemctl daemon-reload", f"systemctl enable {UNIT}", f"systemctl restart {UNIT}"
    ]  # fmt: skip
    modes = {
        str(path.relative_to(place.root)): path.stat().st_mode & 0o777
        for path in place.there("etc/autoscaler").rglob("*")
    }
    assert modes == {
        "etc/autoscaler/fleet.yaml": 0o644,
        "etc/autoscaler/github-app.pem": 0o400,
        "etc/autoscaler/tls": 0o755,
        "etc/autoscaler/tls/server.pem": 0o400,
    }
    said.clear()
    apply(planned(), host, said.append)
    assert place.calls() == [f"systemctl enable {UNIT}", f"systemctl start {UNIT}"]
    assert len(said) == 1
    apply(planned(named={"github-app.pem": b"a new key"}), host, said.append)
    assert place.calls() == [f"systemctl enable {UNIT}", f"systemctl restart {UNIT}"]
    assert place.there("etc/autoscaler/github-app.pem").read_bytes() == b"a new key"


def test_a_unit_that_systemd_does_not_start_is_reported(
    place: Place, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKEN", "1")
    with pytest.raises(
        RefusedError, match=r"systemctl restart autoscaler\.service failed: `journalctl"
    ):
        apply(planned(), OwnUserHost(place.root), said.append)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"store": "sqlite:///data/state.db"}, f"write store: {STORE}"),
        (
            {"store": "sqlite:///s.db", "text": b"store: sqlite:///s.db\n", "store_exists": True},
            "mv s.db* /var/lib/autoscaler/",
        ),
        ({"store": "sqlite:////srv/state.db"}, f"write store: {STORE}"),
        ({"named": {"../key": b""}}, "../key: is outside the folder of fleet.yaml"),
        ({"named": {"environment": b""}}, "this name is taken"),
        ({"listens": (Address("0.0.0.0", 0),)}, "port 0"),
    ],
)
def test_what_the_unit_could_not_run_is_refused(changed: dict[str, object], reason: str) -> None:
    with pytest.raises(RefusedError) as raised:
        planned(**changed)
    assert reason in str(raised.value)


def test_a_store_beside_the_fleet_file_moves_to_the_folder_that_the_unit_may_write() -> None:
    text = b"fleet: ci\nstore: sqlite:///state.db\nlimits: {machines: 1}\n"
    made = planned(store="sqlite:///state.db", text=text)
    (content,) = [file.content for file in made.files if file.path.name == "fleet.yaml"]
    assert content == text.replace(b"sqlite:///state.db", STORE.encode())


def test_a_systemctl_that_hangs_is_ended_and_reported(
    place: Place, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANGS", "enable")
    reason = r"systemctl enable autoscaler\.service did not end in 0\.2 s: .*journalctl"
    with pytest.raises(RefusedError, match=reason):
        apply(planned(), OwnUserHost(place.root, within=0.2), said.append)


def test_only_a_low_port_needs_a_capability() -> None:
    assert "\nAmbientCapabilities=\n" in unit_of(planned())
    low = unit_of(planned(listens=(Address("0.0.0.0", 443),)))
    assert "\nAmbientCapabilities=CAP_NET_BIND_SERVICE\n" in low


def test_a_program_that_the_unit_cannot_read_is_refused() -> None:
    modes = {Path("/opt/private"): 0o40700, Path("/opt/own"): 0o100700}

    def mode_of(path: Path) -> int:
        return modes.get(path, 0o40755)

    assert unreachable([Path("/opt/x/bin/autoscaler")], mode_of) is None
    for path in ("/root/.local/bin/autoscaler", "/opt/private/autoscaler", "/opt/own"):
        assert unreachable([Path("/opt/x"), Path(path)], mode_of) == Path(path)


@pytest.mark.systems
def test_systemd_accepts_the_unit_and_finds_it_hardened(tmp_path: Path) -> None:
    """systemd-analyze rates a unit without any sandbox 9.6, and one below 2 as OK."""
    assert shutil.which("systemd-analyze"), "apt-get install systemd"
    shutil.copytree("/usr/lib/systemd/system", tmp_path / "usr/lib/systemd/system", symlinks=True)
    for path, text in (
        ("opt/autoscaler/bin/autoscaler", "#!/bin/sh\n"),
        ("bin/kill", "#!/bin/sh\n"),
        (str(UNIT_FILE)[1:], unit_of(planned())),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
        (tmp_path / path).chmod(0o755 if "bin" in path else 0o644)
    root = f"--root={tmp_path}"
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", root, UNIT],
        capture_output=True, text=True, check=False,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
    )  # fmt: skip
    assert (checked.returncode, checked.stderr) == (0, "")
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--threshold=20", root, UNIT],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert rated.returncode == 0, rated.stdout + rated.stderr


def test_the_wait_ends_when_the_controller_is_ready_has_ended_or_takes_too_long(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, clock = OwnUserHost(place.root), [0.0]
    answers: Iterator[str | None] = iter(["GitHub", "EC2", None])

    def pass_time(seconds: float) -> None:
        clock[0] += seconds

    wait_until_ready(host, lambda: next(answers), lambda: clock[0], pass_time)
    assert clock[0] == 2.0
    with pytest.raises(
        RefusedError, match=r"runs, and is not ready after 120 s: GitHub; `journalctl"
    ):
        wait_until_ready(host, lambda: "GitHub", lambda: clock[0], pass_time)
    assert clock[0] == 2.0 + READY_WITHIN
    monkeypatch.setenv("INACTIVE", "3")
    with pytest.raises(RefusedError, match="has ended"):
        wait_until_ready(host, lambda: "GitHub", lambda: clock[0], pass_time)


@contextlib.asynccontextmanager
async def readiness(status: int) -> AsyncIterator[Address]:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"reasons": ["GitHub"]}, status=status)

    app = web.Application()
    app.router.add_get("/readyz", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield Address("0.0.0.0", runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def test_readiness_is_asked_on_loopback() -> None:
    async with readiness(200) as address:
        assert await asyncio.to_thread(ask_ready, address, tls=False) is None
    async with readiness(503) as address:
        reason = await asyncio.to_thread(ask_ready, address, tls=False)
        assert reason == '/readyz says {"reasons": ["GitHub"]}'
    assert "does not answer" in (await asyncio.to_thread(ask_ready, address, tls=False) or "")


class Controller:
    """The client of a controller with so many machines."""

    def __init__(self, machines: int) -> None:
        self.drained: list[object] = []
        self._machines = machines

    def act(self, path: str, **body: object) -> dict[str, object]:
        self.drained.append((path, body["target"]))
        return {}

    def ask(self, path: str, **query: object) -> dict[str, object]:
        assert path == "/admin/machines"
        return {"machines": [{}] * self._machines}


@pytest.mark.parametrize("machines", [0, 1])
def test_every_provider_is_drained(machines: int) -> None:
    controller = Controller(machines)
    assert drain(controller, ("east", "west")) is bool(machines)  # type: ignore[arg-type]
    assert controller.drained == [
        ("/admin/drain", "provider/east"),
        ("/admin/drain", "provider/west"),
    ]


def test_an_uninstallation_leaves_the_store_unless_it_is_purged(
    place: Place, said: list[str]
) -> None:
    host = OwnUserHost(place.root)
    apply(planned(), host, said.append)
    place.there("var/lib/autoscaler").mkdir(parents=True)
    place.calls()
    said.clear()
    remove(host, said.append, purge=False)
    assert place.calls() == [f"systemctl disable --now {UNIT}", "systemctl daemon-reload"]
    assert not place.there(str(UNIT_FILE)).exists()
    assert place.there("etc/autoscaler/github-app.pem").exists()
    assert [line for line in said if "/var/lib/autoscaler: the store" in line]
    remove(host, said.append, purge=True)
    assert not place.there("etc/autoscaler").exists()
    assert not place.there("var/lib/autoscaler").exists()


def test_a_controller_that_systemd_does_not_stop_keeps_its_unit_and_its_store(
    place: Place, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = OwnUserHost(place.root)
    apply(planned(), host, said.append)
    place.there("var/lib/autoscaler").mkdir(parents=True)
    monkeypatch.setenv("BROKEN", "1")
    with pytest.raises(RefusedError, match=r"systemctl disable --now autoscaler\.service failed"):
        remove(host, said.append, purge=True)
    assert place.there(str(UNIT_FILE)).exists()
    assert place.there("var/lib/autoscaler").exists()


def test_a_dry_run_prints_the_unit_and_no_secret(
    example: Path, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    class Readable(OwnUserHost):
        def program(self) -> Path:
            return Path("/opt/autoscaler/bin/autoscaler")

    install_on(Readable(place.root), example, dry_run=True)
    printed = capsys.readouterr().out
    assert "ExecStart=/opt/autoscaler/bin/autoscaler serve -c /etc/autoscaler/fleet.yaml" in printed
    assert f"file {CONFIGURATION}/github-app.pem 400 autoscaler" in printed
    assert "PRIVATE KEY" not in printed
    assert place.calls() == []
    assert not place.there("etc/autoscaler").exists()


@pytest.mark.systems
def test_an_invalid_fleet_file_is_refused_as_check_refuses_it(
    example: Path, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    (example.parent / "server.key").write_text("")
    with pytest.raises(typer.Exit) as raised:
        install_on(OwnUserHost(place.root), example, dry_run=False)
    assert raised.value.exit_code == 2
    assert "server.tls.key_file" in capsys.readouterr().err
    assert place.calls() == []


def test_a_host_without_systemd_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        with pytest.raises(RefusedError, match="needs root"):
            ThisHost(place.root).refuse_unusable()
        return
    ThisHost(place.root).refuse_unusable()
    place.there("run/systemd/system").rmdir()
    with pytest.raises(RefusedError, match="does not run systemd"):
        ThisHost(place.root).refuse_unusable()


@pytest.mark.systems
def test_files_are_given_to_their_owner(place: Place, said: list[str]) -> None:
    """This host has no user `autoscaler`, so the files get the user `nobody`."""
    nobody = pwd.getpwnam("nobody")

    class NobodysHost(OwnUserHost):
        def _ids(self, owner: str) -> tuple[int, int]:
            return (0, 0) if owner == "root" else (nobody.pw_uid, nobody.pw_gid)

    host = NobodysHost(place.root)
    apply(planned(), host, said.append)
    place.calls()
    assert place.there("etc/autoscaler/github-app.pem").stat().st_uid == nobody.pw_uid
    assert place.there("etc/autoscaler/fleet.yaml").stat().st_uid == 0
    apply(planned(), host, said.append)
    assert f"systemctl start {UNIT}" in place.calls()


def test_the_commands_refuse_this_host_in_one_line(
    example: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without systemctl on the PATH, also a root with systemd cannot install."""
    monkeypatch.setenv("PATH", "")
    for words in (["install", "-c", str(example)], ["uninstall", "--now"]):
        refused = run(*words)
        assert refused.exit_code == 1
        assert "needs root" in refused.stderr or "does not run systemd" in refused.stderr
