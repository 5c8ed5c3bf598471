"""The runner's installation on a stock image: a server on loopback, the real tar, other programs played."""

import errno
import hashlib
import io
import os
import re
import socket
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.agent.doubles import VirtualClock

STEPS = Path("ami/linux/steps")


def archive() -> bytes:
    """Return an archive with a runner, as GitHub publishes it: its files are in no folder."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, mode in (("run.sh", 0o755), ("bin/Runner.Listener", 0o755), ("bin/a.dll", 0o644)):
            text = f"#!/bin/sh\necho {name}\n".encode()
            member = tarfile.TarInfo(f"./{name}")
            member.size, member.mode, member.uid = len(text), mode, 1001
            tar.addfile(member, io.BytesIO(text))
    return packed.getvalue()


ARCHIVE = archive()
SHA256 = hashlib.sha256(ARCHIVE).hexdigest()


class Publisher(HTTPServer):
    """Answers each request with the next of `answers`, and then with the whole archive."""

    answers: list[Callable[[BaseHTTPRequestHandler], None]]
    requests: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/runner.tar.gz"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        publisher = self.server
        assert isinstance(publisher, Publisher)
        publisher.requests += 1
        answer = publisher.answers.pop(0) if publisher.answers else send(ARCHIVE)
        answer(self)

    def log_message(self, *_: Any) -> None: ...


def send(
    body: bytes, length: int | None = None, status: int = 200
) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body) if length is None else length))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def reset(handler: BaseHTTPRequestHandler) -> None:
    """End the connection without an answer."""
    handler.connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    server = Publisher(("127.0.0.1", 0), Handler)
    server.answers, server.requests = [], 0
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class StockMachine:
    """The agent's own machine, whose package manager and accounts are played. tar, rm and mkdir are real."""

    REAL = ("tar", "rm", "mkdir")

    def __init__(self, agent: ModuleType, root: Path, clock: VirtualClock, manager: str) -> None:
        self.ran: list[str] = []
        self.fails: dict[str, tuple[int, str]] = {}
        self.space = 30.0
        self.users: set[str] = set()
        own = self

        class Played(agent.LocalMachine):  # type: ignore[name-defined, misc]
            def run(self, argv: Any, timeout: float, **how: str) -> Any:
                command = " ".join(argv).replace(str(root), "")
                own.ran.append(command)
                for begin, answer in own.fails.items():
                    if command.startswith(begin):
                        return agent.Output(*answer)
                if argv[0] == "id" and argv[-1] not in own.users:
                    return agent.Output(1, f"id: '{argv[-1]}': no such user")
                if argv[0] in own.REAL:
                    return super().run(argv, timeout, **how)
                return agent.Output(0, "")

            def find(self, *names: str) -> str:
                return manager if manager in names else ""

            def free(self) -> float:
                return own.space

        values = {"root": str(root), "runner_directory": f"{root}/opt/actions-runner"}
        self.host = agent.Host(values)
        self.folder = root / "opt/actions-runner"
        self._agent = agent
        self.local = Played(self.host, clock)

    def install(self, publisher: Publisher, **changed: Any) -> tuple[Any, list[str]]:
        plan = {"version": "2.338.0", "url": publisher.url, "sha256": SHA256, "budget_s": 1080}
        stages: list[str] = []
        check = self._agent.install_runner(plan | changed, self.host, self.local, stages.append)
        return check, stages


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def machine(agent: ModuleType, tmp_path: Path, clock: VirtualClock) -> StockMachine:
    return StockMachine(agent, tmp_path, clock, "apt-get")


def failure(machine: StockMachine, publisher: Publisher, **changed: Any) -> tuple[str, str]:
    check, _ = machine.install(publisher, **changed)
    assert not check.ok
    assert not machine.folder.exists(), "a folder with this name counts as a runner"
    return check.name, check.detail.replace(publisher.url, "URL")


def test_a_stock_machine_gets_packages_account_and_runner(
    machine: StockMachine, publisher: Publisher
) -> None:
    check, stages = machine.install(publisher)
    assert check == ("runner_install", True, "actions/runner 2.338.0, 0 s")
    assert stages == ["runner_packages", "runner_download", "runner_install"]
    assert (machine.folder / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (machine.folder / "_work").is_dir()
    assert "useradd --create-home --shell /bin/bash runner" in machine.ran
    assert "usermod --append --groups docker,video,render runner" in machine.ran
    assert "chown -R runner: /opt/actions-runner.new /opt/hostedtoolcache" in machine.ran
    assert not (machine.folder.parent.parent / "var/lib/runner-agent/runner.tar.gz").exists()


def test_the_machine_has_what_an_image_of_the_recipe_has(
    agent: ModuleType, machine: StockMachine, publisher: Publisher, tmp_path: Path
) -> None:
    """The recipe says it in shell, for a build machine, and the agent for a machine that boots."""
    machine.install(publisher)
    system, runner = ((STEPS / name).read_text() for name in ("system.sh", "runner.sh"))
    path = re.search(r"^JOBS_PATH=(.*)$", runner, re.MULTILINE)
    assert path is not None
    assert (machine.folder / ".path").read_text() == f"{path[1]}\n"
    written = re.search(r"printf '%s\\n' (.*) > \"\$ROOT/\.env\"", runner)
    assert written is not None
    lines = written[1].replace('"', "").replace("$TOOLS", "/opt/hostedtoolcache").split()
    assert (machine.folder / ".env").read_text().splitlines() == lines
    assert f"printf '{(tmp_path / 'etc/sudoers.d/90-runner').read_text()[:-1]}\\n'" in system
    groups = re.search(r"for group in (.*); do", system)
    assert groups is not None
    assert groups[1].split() == list(agent.RUNNER_GROUPS)
    packages = re.search(r"^PACKAGES=\((.*)\)$", system, re.MULTILINE)
    docker = re.search(r"apt_install (.*)$", (STEPS / "docker.sh").read_text(), re.MULTILINE)
    assert packages is not None
    assert docker is not None
    # The stock image has chrony and Python. mdadm is for the instance store, which needs the recipe's service.
    wanted = {*packages[1].split(), *docker[1].split()} - {"chrony", "mdadm", "python3"}
    assert wanted <= set(agent.RUNNER_PACKAGES["apt-get"])
    timers = re.search(r"^TIMERS=\((.*)\)$", system, re.MULTILINE)
    assert timers is not None
    assert [*timers[1].split(), "unattended-upgrades.service"] == list(agent.UPGRADES)
    assert f"systemctl mask --now {' '.join(agent.UPGRADES)}" == machine.ran[0]


def test_amazon_linux_gets_packages_of_its_own(
    agent: ModuleType, tmp_path: Path, clock: VirtualClock, publisher: Publisher
) -> None:
    machine = StockMachine(agent, tmp_path, clock, "dnf")
    check, _ = machine.install(publisher)
    assert check.ok
    assert machine.ran[0].startswith("dnf -y install acl ")
    assert " libicu " in machine.ran[0]
    assert "systemctl enable --now docker.service" in machine.ran


def test_a_machine_with_a_runner_installs_nothing(
    agent: ModuleType, machine: StockMachine, publisher: Publisher, clock: VirtualClock
) -> None:
    """After a reboot, and with a canary image that contains one."""
    machine.install(publisher)
    plan = {"runner": {"url": publisher.url}}
    assert agent.install_wanted_runner(plan, machine.host, clock, print) == []
    assert publisher.requests == 1


def test_without_a_plan_nothing_is_installed(agent: ModuleType, machine: StockMachine) -> None:
    assert agent.install_wanted_runner({}, machine.host, VirtualClock(), print) == []
    assert machine.ran == []


def test_a_user_that_is_there_is_left_alone(machine: StockMachine, publisher: Publisher) -> None:
    machine.users.add("runner")
    check, _ = machine.install(publisher)
    assert check.ok
    assert not any(command.startswith("useradd") for command in machine.ran)


def test_another_checksum_ends_the_installation(
    machine: StockMachine, publisher: Publisher, tmp_path: Path
) -> None:
    wanted = "0" * 64
    name, detail = failure(machine, publisher, sha256=wanted)
    assert name == "runner_download"
    assert detail == f"URL: its SHA-256 is {SHA256}, and {wanted} is wanted"
    assert not (tmp_path / "var/lib/runner-agent/runner.tar.gz").exists()
    assert publisher.requests == 4


def test_a_file_that_is_not_there_is_asked_for_once(
    machine: StockMachine, publisher: Publisher, clock: VirtualClock
) -> None:
    publisher.answers = [send(b"no", status=404)]
    assert failure(machine, publisher) == ("runner_download", "URL: HTTP Error 404: Not Found")
    assert (publisher.requests, clock.time) == (1, 1000.0)


def test_a_download_that_fails_for_a_while_is_tried_again(
    machine: StockMachine, publisher: Publisher, clock: VirtualClock
) -> None:
    half = len(ARCHIVE) // 2
    publisher.answers = [
        send(b"later", status=503),
        send(ARCHIVE[:half], len(ARCHIVE)),
        reset,
    ]
    check, _ = machine.install(publisher)
    assert (check.ok, publisher.requests, clock.time) == (True, 4, 1035.0)


def test_a_truncated_download_is_named(machine: StockMachine, publisher: Publisher) -> None:
    publisher.answers = [send(ARCHIVE[:100], len(ARCHIVE))] * 4
    name, detail = failure(machine, publisher)
    assert name == "runner_download"
    assert detail == f"URL: ended {len(ARCHIVE) - 100:,} bytes too early"


def test_a_slow_download_ends_with_the_budget(
    machine: StockMachine, publisher: Publisher, clock: VirtualClock
) -> None:
    """The server sends a byte now and then. Each one restarts the timer of the connection."""

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(ARCHIVE)))
        handler.end_headers()
        for number in range(20):
            handler.wfile.write(ARCHIVE[number : number + 1])
            clock.time += 100

    publisher.answers = [drip]
    assert failure(machine, publisher) == ("runner_download", "URL: not complete in time")
    assert publisher.requests == 1


def test_a_file_that_is_too_long_is_not_kept(
    agent: ModuleType, machine: StockMachine, publisher: Publisher, tmp_path: Path
) -> None:
    file = agent.RemoteFile(publisher.url, SHA256)
    with pytest.raises(agent.InstallFailure, match=r"longer than 64 bytes$"):
        machine.local.fetch(file, "/var/file", 60.0, name="runner_download", most=64)
    assert not (tmp_path / "var/file").exists()


def test_a_disk_without_space_is_named_before_anything_is_done(
    machine: StockMachine, publisher: Publisher
) -> None:
    machine.space = 1.5
    found = failure(machine, publisher)
    assert found == ("runner_space", "1.5 GiB free, 3 wanted: raise disk_gb")
    assert machine.ran == []


def test_a_disk_that_fills_up_is_named(
    machine: StockMachine, publisher: Publisher, tmp_path: Path
) -> None:
    full = os.strerror(errno.ENOSPC)
    machine.fails["tar"] = (2, f"tar: bin/a.dll: Cannot write: {full}")
    name, detail = failure(machine, publisher)
    assert (name, full in detail) == ("runner_install", True)


@pytest.mark.parametrize(
    ("command", "said", "check"),
    [
        ("apt-get -q -y -o Acquire::Retries=2 update", "E: Unable to fetch", "runner_packages"),
        ("systemctl enable", "Failed to enable unit: no such file", "runner_packages"),
        ("useradd", "useradd: cannot lock /etc/passwd", "runner_install"),
    ],
)
def test_a_step_that_fails_is_named(
    machine: StockMachine, publisher: Publisher, command: str, said: str, check: str
) -> None:
    machine.fails[command] = (1, f"begun\n{said}\n")
    name, detail = failure(machine, publisher)
    assert name == check
    assert detail.endswith(said)


def test_an_incomplete_plan_is_named(machine: StockMachine, publisher: Publisher) -> None:
    for changed in ({"url": None}, {"sha256": 1}, {"budget_s": True}, {"version": None}):
        found = failure(machine, publisher, **changed)
        assert found == ("runner_install", "version, url, sha256 or budget_s is missing")
    assert machine.ran == []


def test_the_driver_gets_what_the_runner_left_of_the_time(
    agent: ModuleType, tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both count from the attestation. The controller ends the machine a tenth of the deadline later."""
    plan = {"vendor": "other", "version": "1", "url": "u", "sha256": "s", "budget_s": 100}
    budgets: list[float] = []

    def install(given: Any, *_: Any) -> Any:
        budgets.append(given.budget)
        return agent.Check("driver", True, "")

    monkeypatch.setattr(agent, "install_driver", install)
    host = agent.Host({"root": str(tmp_path)})
    agent.install_wanted_driver({"driver": plan}, host, clock, print, spent=30.0)
    assert budgets == [70.0]
