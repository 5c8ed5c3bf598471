"""The exact bytes that the agent sends, and its default settings."""

import contextlib
import errno
import json
import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.agent.doubles import VirtualClock, install_listener
from tests.patience import PATIENCE


class RecordedLink:
    """A connection that gives scripted answers and keeps the requests."""

    def __init__(self, agent: ModuleType, *answers: tuple[int, object]) -> None:
        self.answers = [
            agent.Answer(status, b"" if value is None else json.dumps(value).encode(), None, None)
            for status, value in answers
        ]
        self.asked: list[tuple[str, str, dict[str, str], Any, float]] = []

    def ask(
        self, method: str, path: str, headers: dict[str, str], body: bytes, timeout: float
    ) -> Any:
        self.asked.append((method, path, headers, json.loads(body), timeout))
        return self.answers.pop(0)


WELCOME = (200, {"machine": "m-1", "health_checks": {"disk_gb": 50}})


def controller(agent: ModuleType, link: RecordedLink) -> Any:
    return agent.Controller(link, "ec2-eu", lambda: "cHJvb2Y=", VirtualClock())


def test_an_attestation_carries_version_provider_proof_and_nonce(agent: ModuleType) -> None:
    link = RecordedLink(agent, WELCOME)
    asking = controller(agent, link)
    assert asking.attest() == {"disk_gb": 50}
    assert asking.machine == "m-1"
    ((method, path, headers, body, timeout),) = link.asked
    assert (method, path, timeout) == ("POST", "/bootstrap/attest", 10.0)
    assert headers == {"Content-Type": "application/json"}
    nonce = body.pop("nonce")
    assert bytes.fromhex(nonce).hex() == nonce
    assert len(nonce) == 64
    assert body == {"protocol": 1, "provider": "ec2-eu", "proof": "cHJvb2Y=", "agent": "1"}


def test_each_step_is_sent_to_its_own_path(agent: ModuleType) -> None:
    assigned = {"state": "assigned", "runner": "r-1", "jit_config": "secret"}
    link = RecordedLink(
        agent,
        WELCOME,
        (200, assigned),
        (204, None),
        (200, {"allowed": True}),
        (200, {"allowed": False}),
        (200, {"status": 204}),
    )
    asking = controller(agent, link)
    asking.attest()
    assert asking.poll(30.0) == agent.Assignment("r-1", "secret", {})
    asking.report("acknowledge", {"runner": "r-1"})
    assert [asking.may_release(), asking.may_release()] == [True, False]
    assert asking.release(7.0) == 204
    nonce = link.asked[0][3]["nonce"]
    assert [(path, body, timeout) for _, path, _, body, timeout in link.asked[1:]] == [
        ("/bootstrap/machines/m-1/poll", {"wait": 30.0}, 40.0),
        ("/bootstrap/machines/m-1/acknowledge", {"runner": "r-1"}, 10.0),
        ("/bootstrap/machines/m-1/may-release", {}, 10.0),
        ("/bootstrap/machines/m-1/may-release", {}, 10.0),
        ("/bootstrap/machines/m-1/release", {}, 7.0),
    ]
    for method, _, headers, _, _ in link.asked[1:]:
        assert method == "POST"
        assert headers == {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {nonce}",
        }


def test_a_step_before_the_attestation_requires_one(agent: ModuleType) -> None:
    link = RecordedLink(agent)
    with pytest.raises(agent.AttestAgain):
        controller(agent, link).poll(1.0)
    assert link.asked == []


@pytest.mark.parametrize("length", [0, 1, 128, 129])
def test_a_machine_id_has_1_to_128_characters(agent: ModuleType, length: int) -> None:
    link = RecordedLink(agent, (200, {"machine": "m" * length, "health_checks": {}}))
    asking = controller(agent, link)
    if 1 <= length <= 128:
        asking.attest()
        assert asking.machine == "m" * length
    else:
        with pytest.raises(agent.TryAgain, match="200: not an answer"):
            asking.attest()


@pytest.mark.parametrize("name", ["", "ä", "a b", "a/b", "..", "-"])
def test_an_id_has_letters_digits_and_a_few_other_characters(agent: ModuleType, name: str) -> None:
    assert not agent.is_name(name)
    assert agent.is_name("m-1_a.b")


@pytest.mark.parametrize("length", [64 * 1024 - 1, 64 * 1024])
def test_a_jit_configuration_is_ascii_and_shorter_than_64_kib(
    agent: ModuleType, length: int
) -> None:
    assert agent._is_secret("x" * length) == (length < 64 * 1024)
    assert not agent._is_secret("ä")


def test_the_default_settings_of_an_ec2_machine(agent: ModuleType) -> None:
    assert vars(agent.Host({})) == {
        "root": "",
        "metadata": "http://169.254.169.254",
        "power_off": ["shutdown", "-P", "now"],
        "disarm": ["shutdown", "-c"],
        "time_scale": 1.0,
        "runner_user": "runner",
        "runner_directory": "/opt/actions-runner",
        "runner_task": "actions-runner",
        "state": "/var/lib/runner-agent",
        "hooks": "/run/runner-agent",
        "has_accelerators": True,
    }
    assert agent.Host({}).marker == "/var/lib/runner-agent/started"


def test_the_default_settings_of_a_windows_machine(
    agent: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "WINDOWS", True)
    host = agent.Host({})
    assert host.power_off == ["shutdown", "/s", "/f", "/t", "0"]
    assert host.disarm == ["shutdown", "/a"]
    assert host.runner_directory == "C:\\actions-runner"
    assert host.state == "C:\\ProgramData\\runner-agent\\state"
    assert agent.host_file([]) == "C:\\ProgramData\\runner-agent\\host.json"
    assert agent.runner_program(host).endswith("run.cmd")


def test_a_host_file_overrides_the_default_settings(agent: ModuleType) -> None:
    values = {
        "root": "/r",
        "metadata": "http://127.0.0.1:1/x/",
        "power_off": ["off"],
        "disarm": ["on"],
        "time_scale": 80,
        "runner_user": None,
        "runner_directory": "/runner",
        "runner_task": "task",
    }
    host = agent.Host(values)
    assert vars(host) == {
        **values,
        "metadata": "http://127.0.0.1:1/x",
        "time_scale": 80.0,
        "state": "/r/var/lib/runner-agent",
        "hooks": "/r/run/runner-agent",
        "has_accelerators": True,
    }


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"time_scale": 0}, "host file: time_scale must be a number above 0"),
        ({"runner_user": 0}, "host file: runner_user must be text"),
        ({"power_off": []}, "host file: power_off must be a list of text"),
        ({"disarm": "x"}, "host file: disarm must be a list of text"),
        ({"runner_task": 1}, "host file: runner_task must be text"),
    ],
)
def test_a_wrong_value_is_named(agent: ModuleType, values: dict[str, Any], said: str) -> None:
    with pytest.raises(agent.BadSettings) as caught:
        agent.Host(values)
    assert str(caught.value) == said


def test_the_host_file_is_read_from_its_path(agent: ModuleType) -> None:
    assert agent.host_file([]) == "/etc/runner-agent/host.json"
    assert agent.host_file(iter(["--host-file", "/x"])) == "/x"
    for wrong in (["--host-file"], ["/x"], ["--other", "/x"], ["--host-file", "/x", "/y"]):
        with pytest.raises(agent.BadSettings) as caught:
            agent.host_file(wrong)
        assert str(caught.value) == "usage: agent.py [--host-file PATH]"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "not a JSON object"),
        ("{", "not JSON"),
        ("1" * 262_145, "too long"),
        (None, "not a regular file"),
    ],
)
def test_an_unusable_configuration_file_is_named(
    agent: ModuleType, tmp_path: Path, text: str | None, said: str
) -> None:
    path = tmp_path / "host.json"
    if text is None:
        path.mkdir()
    else:
        path.write_text(text)
    with pytest.raises(agent.BadSettings) as caught:
        agent.read_trusted(str(path))
    assert str(caught.value) == f"{path}: {said}"


def test_a_symbolic_link_is_refused_with_the_kernels_reason(
    agent: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "host.json"
    path.symlink_to("/etc/hostname")
    with pytest.raises(agent.BadSettings) as caught:
        agent.read_trusted(str(path))
    assert str(caught.value) == f"{path}: {os.strerror(errno.ELOOP)}"


def test_a_configuration_file_of_256_kib_is_read(agent: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    path.write_text("{}" + " " * 262_142)
    assert agent.read_trusted(str(path)) == {}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (None, "absent"),
        ({}, "controller and provider must be text"),
        ({"controller": "https://c", "provider": 1}, "controller and provider must be text"),
        ({"controller": "https://c", "provider": "p", "ca": 1}, "ca must be text or null"),
        ({"controller": "ftp://c", "provider": "p"}, "not an http or https URL"),
        ({"controller": "https://", "provider": "p"}, "not an http or https URL"),
    ],
)
def test_a_controller_file_that_cannot_be_used_is_reported(
    agent: ModuleType, tmp_path: Path, values: dict[str, Any] | None, said: str
) -> None:
    path = tmp_path / "controller.json"
    if values is not None:
        path.write_text(json.dumps(values))
    with pytest.raises(agent.BadSettings, match=said):
        agent.build(agent.Host({}), str(path))


def test_a_time_limit_for_the_network_is_never_below_three_seconds(agent: ModuleType) -> None:
    assert agent.Clock(1.0).real_timeout(10.0) == 10.0
    assert agent.Clock(2.0).real_timeout(10.0) == 5.0
    assert agent.Clock(80.0).real_timeout(10.0) == 3.0


def test_the_usual_port_of_https_is_443(agent: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    made = agent.Link("https://ci.example")._open(5.0)
    assert (made.host, made.port, made.timeout) == ("proxy", 3128, 5.0)
    assert (made._tunnel_host, made._tunnel_port) == ("ci.example", 443)
    monkeypatch.setenv("NO_PROXY", "ci.example:443")
    made = agent.Link("https://ci.example")._open(5.0)
    assert (made.host, made.port, made.timeout) == ("ci.example", 443, 5.0)


class Metadata:
    """A metadata service that keeps the requests."""

    def __init__(self, agent: ModuleType, token: int, identity: int) -> None:
        self.answers = [
            agent.Answer(token, b"tok\n", None, None),
            agent.Answer(identity, b"QUJD\nREVG\n", None, None),
        ]
        self.asked: list[tuple[str, str, dict[str, str], bytes | None, float]] = []
        self.closed = 0

    def ask(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None, timeout: float
    ) -> Any:
        self.asked.append((method, path, headers, body, timeout))
        return self.answers.pop(0)

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(
    ("token", "identity", "said"),
    [
        (200, 200, None),
        (403, 200, "metadata service: token 403"),
        (200, 404, "metadata service: identity 404"),
    ],
)
def test_reading_the_proof_uses_a_token_of_a_minute(
    agent: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    token: int,
    identity: int,
    said: str | None,
) -> None:
    service = Metadata(agent, token, identity)
    monkeypatch.setattr(agent, "Link", lambda url: service if url == "http://m" else None)
    if said is None:
        assert agent.metadata_proof("http://m", 2.0) == "QUJDREVG"
        assert service.asked == [
            (
                "PUT",
                "/latest/api/token",
                {"X-aws-ec2-metadata-token-ttl-seconds": "60"},
                b"",
                2.0,
            ),
            (
                "GET",
                "/latest/dynamic/instance-identity/rsa2048",
                {"X-aws-ec2-metadata-token": "tok"},
                None,
                2.0,
            ),
        ]
    else:
        with pytest.raises(agent.TryAgain) as caught:
            agent.metadata_proof("http://m", 2.0)
        assert str(caught.value) == said
    assert service.closed == 1


def test_clock_skew_is_measured_from_the_date_header(agent: ModuleType) -> None:
    """A Date header has whole seconds, so the agent takes the middle of that second."""
    date = "Thu, 01 Jan 1970 00:01:40 GMT"
    assert agent._skew(date, 90.0, 92.0) == 9.5
    assert agent._skew(date, 110.0, 112.0) == 10.5
    assert agent._skew(None, 0.0, 1.0) is None
    assert agent._skew("yesterday", 0.0, 1.0) is None


def test_each_health_check_reports_its_measured_value(
    agent: ModuleType, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = agent.Host({"runner_directory": str(open_folder), "runner_user": "nobody"})
    monkeypatch.setattr(agent, "free_bytes", {"/": 3 * 2**29}.__getitem__)
    inodes = agent.Check("inodes", True, "many")
    monkeypatch.setattr(agent, "check_inodes", lambda _: inodes)
    checks = agent.run_health_checks({"disk_gb": 1.5, "clock_skew_s": 2}, 2.0, host, 1.0)
    assert [tuple(check) for check in checks] == [
        ("controller", True, "answered the attestation"),
        ("disk", True, "1.5 GiB free, 1.5 wanted"),
        tuple(inodes),
        ("clock", True, "2.0 s off, 2 allowed"),
        ("runner", False, "the runner is not installed"),
    ]
    (open_folder / "run.sh").touch()
    install_listener(open_folder)
    checks = agent.run_health_checks({"disk_gb": 2, "clock_skew_s": 2}, None, host, 10.0)
    assert [tuple(check) for check in checks[1:]] == [
        ("disk", False, "1.5 GiB free, 2 wanted"),
        tuple(inodes),
        ("clock", False, "no Date header"),
        ("runner", True, "installed"),
        ("runner_version", True, "2.336.0"),
        ("job_hooks", True, "the user of the runner can run them"),
    ]


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ("root", "the runner would run as root"),
        ("no-such-user", "the runner's user does not exist"),
    ],
)
def test_a_runner_without_a_user_of_its_own_fails_its_check(
    agent: ModuleType,
    open_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    user: str,
    said: str,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (open_folder / "run.sh").touch()
    host = agent.Host({"runner_directory": str(open_folder), "runner_user": user})
    assert tuple(agent._check_runner(host)) == ("runner", False, said)
    version = agent._check_version(host, 10.0)
    assert tuple(version) == (
        "runner_version",
        False,
        "Runner.Listener does not start: BadSettings",
    )


def test_the_installed_listener_is_run_for_its_version(
    agent: ModuleType, open_folder: Path
) -> None:
    install_listener(open_folder, '[ "$PWD" = "${0%/bin/*}" ] && echo 2.336.0')
    host = agent.Host({"runner_directory": str(open_folder), "runner_user": "nobody"})
    assert tuple(agent._check_version(host, 60.0)) == ("runner_version", True, "2.336.0")


def test_the_github_check_requests_the_path_and_query_of_its_url(
    agent: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    class Recorded:
        def __init__(self, url: str) -> None:
            asked.append(url)

        def ask(self, *request: Any) -> Any:
            asked.append(request)
            return agent.Answer(499 if len(asked) < 4 else 500, b"", None, None)

        def close(self) -> None:
            asked.append("closed")

    monkeypatch.setattr(agent, "Link", Recorded)
    found = agent._check_reachable("github", "https://ghes.example/api/v3?x=1", 5.0)
    assert tuple(found) == ("github", True, "answered 499")
    found = agent._check_reachable("github", "https://ghes.example", 5.0)
    assert tuple(found) == ("github", False, "answered 500")
    headers = {"User-Agent": "runner-agent"}
    assert asked == [
        "https://ghes.example",
        ("GET", "/api/v3?x=1", headers, None, 5.0),
        "closed",
        "https://ghes.example",
        ("GET", "/", headers, None, 5.0),
        "closed",
    ]


@contextlib.contextmanager
def a_pipe_as_standard_input() -> Iterator[None]:
    own, (reading, writing) = os.dup(0), os.pipe()
    os.dup2(reading, 0)
    try:
        yield
    finally:
        os.dup2(own, 0)
        for descriptor in (own, reading, writing):
            os.close(descriptor)


START = """#!/bin/bash
umask > umask
pwd > pwd
readlink /proc/self/fd/0 > stdin
ps -o sid= -p $$ > session 2> /dev/null || cut -d' ' -f6 /proc/$$/stat > session
echo "$HOME $USER $LOGNAME" > user
"""


def test_a_runner_starts_in_its_folder_without_standard_input(
    agent: ModuleType, open_folder: Path
) -> None:
    (open_folder / "run.sh").write_text(START)
    (open_folder / "run.sh").chmod(0o755)
    open_folder.chmod(0o777)
    values = {"runner_directory": str(open_folder), "runner_user": "nobody"}
    runner = agent.LinuxRunner(agent.Host(values))
    with a_pipe_as_standard_input():
        runner.start("the-jit-config", {})
    process = runner._process
    try:
        assert process.wait(PATIENCE) == 0
    finally:
        process.stdout.close()
        process.stderr.close()
    said = {path.name: path.read_text().strip() for path in open_folder.iterdir()}
    assert said["umask"] == "0022"
    assert said["pwd"] == str(open_folder)
    assert said["stdin"] == os.devnull
    assert int(said["session"]) == process.pid
    if os.geteuid() == 0:
        assert said["user"].split()[1:] == ["nobody", "nobody"]
    assert stat.S_IMODE((open_folder / "pwd").stat().st_mode) == 0o644


def test_a_pipe_that_the_runner_closed_is_not_polled_again(
    agent: ModuleType, open_folder: Path
) -> None:
    """An open pipe at its end is always ready, so each poll would return at once."""
    (open_folder / "run.sh").write_text("#!/bin/bash\nexec > /dev/null 2>&1\n")
    (open_folder / "run.sh").chmod(0o755)
    values = {"runner_directory": str(open_folder), "runner_user": "nobody"}
    runner = agent.LinuxRunner(agent.Host(values))
    runner.start("the-jit-config", {})
    process = runner._process
    process.wait(PATIENCE)
    assert runner.read_signs(0.0).exited == 0
    assert process.stdout.closed
    assert process.stderr.closed


def test_processes_with_any_name_are_read(agent: ModuleType) -> None:
    """A job chooses the names of its processes."""
    comm = Path("/proc/self/comm")
    before = comm.read_bytes()
    try:
        comm.write_bytes("Runner.W\u00f6rker".encode())
        assert agent.process_name(os.getpid()) == "Runner.W\ufffd\ufffdrker"
        comm.write_bytes(b"Runner.Worker")
        assert agent.process_name(os.getpid()) == "Runner.Worker"
    finally:
        comm.write_bytes(before)
    assert agent.process_name(2**22 + 1) == ""


def test_a_host_command_has_no_standard_input_and_its_exit_status_counts(
    agent: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = 'readlink /proc/$$/fd/0 > "$1"; echo printed'
    with a_pipe_as_standard_input():
        assert agent.command(["sh", "-c", script, "sh", str(tmp_path / "stdin")]) == 0
    assert (tmp_path / "stdin").read_text() == f"{os.devnull}\n"
    assert capfd.readouterr() == ("", "")
    assert agent.command(["sh", "-c", "exit 3"]) == 3
    assert agent.command([str(tmp_path / "absent"), "x"]) is None
    assert capfd.readouterr().err == f"runner-agent: {tmp_path}/absent: FileNotFoundError\n"


def test_a_request_on_a_closed_keep_alive_connection_is_sent_again_whole(agent: ModuleType) -> None:
    """If the server closed a keep-alive connection, the agent repeats the same request."""
    asked: list[tuple[str, bytes]] = []

    def answer_one(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, connection.makefile("rb") as file:
            line, length = file.readline().decode().strip(), 0
            while (header := file.readline()) != b"\r\n":
                if header.lower().startswith(b"content-length:"):
                    length = int(header.split(b":")[1])
            asked.append((line, file.read(length)))
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(2):
                answer_one(server)

        thread = threading.Thread(target=serve)
        thread.start()
        link = agent.Link(f"http://127.0.0.1:{server.getsockname()[1]}")
        try:
            assert link.ask("POST", "/one", {}, b"first").status == 200
            assert link.ask("POST", "/two", {"X-Own": "1"}, b"second").status == 200
        finally:
            link.close()
            thread.join()
    assert asked == [("POST /one HTTP/1.1", b"first"), ("POST /two HTTP/1.1", b"second")]
