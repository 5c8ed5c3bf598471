"""The agent against real files, real processes and a real server."""

import ast
import contextlib
import http.server
import json
import os
import shutil
import signal
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autoscaler.app.agent_file import build_agent
from tests.agent.certificates import make_certificate
from tests.agent.doubles import VirtualClock, install_listener
from tests.patience import PATIENCE

AGENT = build_agent()


# --- the file itself ------------------------------------------------------------------------------


def test_the_agent_is_python_3_9_and_needs_only_the_standard_library() -> None:
    tree = ast.parse(AGENT, feature_version=(3, 9))
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert imported <= sys.stdlib_module_names


def test_the_agent_imports_few_modules_at_its_start(tmp_path: Path) -> None:
    file = tmp_path / "agent.py"
    file.write_bytes(AGENT)
    code = f"import sys; sys.argv = ['agent.py']; exec(compile(open({str(file)!r}).read(), 'a', 'exec'), {{'__name__': 'a'}}); print(len(sys.modules))"  # noqa: E501
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], check=True, capture_output=True, text=True
    )
    assert int(done.stdout) < 140


# --- settings -------------------------------------------------------------------------------------


def test_the_agent_reads_a_configuration_file(agent: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    assert agent.read_trusted(str(path)) is None
    path.write_text('{"time_scale": 2}')
    assert agent.read_trusted(str(path)) == {"time_scale": 2}


@pytest.mark.parametrize("text", ["[]", "{", "1" * 300_000])
def test_the_agent_refuses_a_malformed_configuration_file(
    agent: ModuleType, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "host.json"
    path.write_text(text)
    with pytest.raises(agent.BadSettings):
        agent.read_trusted(str(path))


def test_the_agent_refuses_a_configuration_file_that_other_users_can_write(
    agent: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "host.json"
    path.write_text("{}")
    path.chmod(0o666)
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "elsewhere.json")
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    for refused in (path, link, pipe):
        with pytest.raises(agent.BadSettings):
            agent.read_trusted(str(refused))


@pytest.mark.parametrize(
    "values",
    [
        {"time_scale": 0},
        {"time_scale": True},
        {"time_scale": "1"},
        {"power_off": "shutdown"},
        {"power_off": []},
        {"disarm": [1]},
        {"root": 1},
        {"runner_user": 0},
    ],
)
def test_the_agent_refuses_a_host_file_with_wrong_values(
    agent: ModuleType, values: dict[str, Any]
) -> None:
    with pytest.raises(agent.BadSettings):
        agent.Host(values)


@pytest.mark.case(
    "the runner refuses to run as root",
    topic="Runner and listener",
    source="actions/runner Constants.cs",
)
def test_the_runner_is_never_root(agent: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for user in ("root", None, "nobody-of-this-name"):
        with pytest.raises(agent.BadSettings):
            agent.runner_account(agent.Host({"runner_user": user}))
    identity, variables = agent.runner_account(agent.Host({"runner_user": "nobody"}))
    assert identity["user"] != 0
    assert 0 not in (identity["group"], *identity["extra_groups"])
    assert variables["USER"] == "nobody"


# --- what the listener writes ---------------------------------------------------------------------


def test_each_log_line_is_read_whole_and_once(agent: ModuleType, tmp_path: Path) -> None:
    old = tmp_path / "Runner_1-utc.log"
    old.write_text("Acknowledging runner request 'old'\n")
    reader = agent.LogReader(str(tmp_path))
    assert list(reader.pieces()) == []
    with old.open("a") as file:
        file.write("[x] Acknowledging run")
        file.flush()
        assert b"".join(reader.pieces()) == b""
        file.write("ner request 'a'\nand")
    assert b"".join(reader.pieces()) == b"[x] Acknowledging runner request 'a'\n"
    (tmp_path / "Runner_2-utc.log").write_text("new\n")
    assert b"".join(reader.pieces()) == b"new\n"
    assert b"".join(reader.pieces()) == b""


def test_a_long_log_line_is_cut_to_its_beginning(agent: ModuleType) -> None:
    lines = agent.Lines()
    long = b"Running job: " + b"x" * agent.MOST_LINE + b"OAuth token has been revoked"
    assert lines.whole(long[:5000]) == b""
    whole = lines.whole(long[5000:] + b"\nListening")
    assert whole.startswith(b"Running job: xx")
    assert len(whole) <= agent.MOST_LINE + 1
    assert lines.whole(b" for Jobs\n") == b"Listening for Jobs\n"


def test_logs_are_read_without_following_waiting_or_filling_memory(
    agent: ModuleType, tmp_path: Path
) -> None:
    reader = agent.LogReader(str(tmp_path / "_diag"))
    assert list(reader.pieces()) == [], "no folder yet"
    folder = tmp_path / "_diag"
    folder.mkdir()
    (tmp_path / "secret").write_text("secret\n")
    (folder / "Runner_link.log").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "Runner_pipe.log")
    (folder / "Runner_folder.log").mkdir()
    with (folder / "Runner_huge.log").open("wb") as file:
        file.truncate(1 << 30)
    assert sum(len(piece) for piece in reader.pieces()) == 0, "no whole line"
    # A job may replace a file by a link after the agent has looked at it.
    reader._files = lambda: [("Runner_link.log", 0)]
    assert list(reader.pieces()) == []
    del reader._files
    for number in range(100):
        (folder / f"Runner_many{number}.log").write_text("x\n")
    assert len(list(reader.pieces())) <= agent.MOST_LOG_FILES


@pytest.mark.case(
    "messages in the listener's log",
    topic="Runner and listener",
    source="actions/runner Runner.Listener",
)
@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("Acknowledging runner request 'f00'.", "message"),
        ("Message '12' received from session 'a-b'.", "message"),
        ("2026-09-01 10:00:00Z: Running job: build / linux", "message"),
        ("Received job message of length 12 from service", "message"),
        ("2026-09-01 10:00:00Z: Job build completed with result: Succeeded", "finished"),
        (
            "Failed to create a session. The runner registration has been deleted from the server,"
            " please re-configure.",
            "refused",
        ),
        ("Runner OAuth token has been revoked. Unable to pull message.", "refused"),
        ("No message retrieved from session 'a-b' within last 30 minutes.", None),
        ("2026-09-01 10:00:00Z: Listening for Jobs", None),
    ],
)
def test_the_agent_reads_each_sign_from_the_listeners_log(
    agent: ModuleType, text: str, sign: str | None
) -> None:
    reader = agent.SignReader()
    reader.feed(text.encode() + b"\n")
    signs = reader.take(None, False)
    assert [name for name in ("message", "finished", "refused") if getattr(signs, name)] == (
        [sign] if sign else []
    )
    assert not any(reader.take(None, False)[2:])


@pytest.mark.case(
    "the name of a job imitates a message of the listener",
    topic="Runner and listener",
    source="actions/runner JobDispatcher.cs",
)
@pytest.mark.parametrize("sign", ["registration has been deleted from the server", "' received"])
@pytest.mark.parametrize(
    ("line", "meant"),
    [("Running job: {}", "message"), ("Job {} completed with result: Failed", "finished")],
)
def test_the_name_of_a_job_cannot_imitate_a_log_line(
    agent: ModuleType, sign: str, line: str, meant: str
) -> None:
    reader = agent.SignReader()
    reader.feed(f"{line.format(sign)}\nListening for Jobs\n".encode())
    signs = reader.take(None, False)
    assert [name for name in ("message", "finished", "refused") if getattr(signs, name)] == [meant]


def test_a_refusal_on_a_separate_line_counts_although_a_job_runs(agent: ModuleType) -> None:
    reader = agent.SignReader()
    reader.feed(b"Running job: build\nRunner OAuth token has been revoked.\n")
    signs = reader.take(None, False)
    assert (signs.message, signs.refused) == (True, True)


DEPRECATED = "Runner version v2.320.0 is deprecated and cannot receive messages."


def test_the_last_error_line_before_any_job_is_kept(agent: ModuleType) -> None:
    """Standard error as it is (actions/runner#3651); from the log, what Terminal.cs marks so."""
    reader = agent.SignReader()
    reader.feed(b"Listening for Jobs\n")
    assert reader.take(None, False).error == ""
    reader.feed(b"Runner connect error: first\n\n", errors=True)
    assert reader.take(None, False).error == "Runner connect error: first"
    logged = (
        f"[RUNNER 2026-09-24 10:43:26Z ERR Terminal] WRITE ERROR: An error occurred: {DEPRECATED}"
    )
    reader.feed(logged.encode() + b"\n[RUNNER ERR Listener] GitHub.AccessDeniedException\n")
    signs = reader.take(None, False)
    assert (signs.deprecated, signs.error) == (True, f"An error occurred: {DEPRECATED}")
    reader.feed(b"[RUNNER ERR Terminal] WRITE ERROR: not even WRITE ERROR: succeeded\n")
    assert reader.take(None, False).error == "not even WRITE ERROR: succeeded"
    reader.feed(logged.encode() + b"\n")
    reader.feed(b"Running job: build\n")
    reader.feed(b"said by a job\n", errors=True)
    assert reader.take(None, False).error == f"An error occurred: {DEPRECATED}"


@pytest.mark.case(
    "a listener retries its connection for ever, as behind a proxy that replaces GitHub's "
    "certificate: the exit is logged with the error and counts against the SKU",
    topic="Runner and listener",
    source="actions/runner BrokerMessageListener.cs",
)
@pytest.mark.parametrize("line", ["Listening for Jobs", "Runner reconnected."])
def test_an_error_is_over_once_the_listener_is_connected(agent: ModuleType, line: str) -> None:
    """BrokerMessageListener.cs and Runner.cs write these after what they retried has succeeded."""
    reader = agent.SignReader()
    reader.feed(b"Runner connect error: reset. Retrying until reconnected.\n", errors=True)
    assert reader.take(None, False).error
    reader.feed(f"2026-11-22 07:00:00Z: {line}\n".encode())
    assert reader.take(None, False).error == ""


def test_an_error_line_is_printable_short_and_quotes_no_secret(agent: ModuleType) -> None:
    """A JIT configuration is one word; so is the piece of one that is cut off."""
    line = b"Failed:\x1b[31m \xff" + b"eyJ" + b"a1B2" * 2000 + b" end " + b"word " * 1000
    shown = agent.readable(line)
    assert shown.isprintable()
    assert "a1B2" not in shown
    assert "[...]" in shown
    assert len(shown) <= 400


# --- processes ------------------------------------------------------------------------------------

RUN = """#!/bin/bash
echo "$ACTIONS_RUNNER_INPUT_JITCONFIG" > jit
tr '\\0' ' ' < /proc/$$/cmdline > argv
bin/Runner.Listener
"""
LISTENER = """#!/bin/bash
echo "Listening for Jobs"
while [ ! -e job ]; do echo x >> ticks; sleep 0.02; done
echo "Running job: build"
while [ -e hold ]; do sleep 0.02; done
bin/Runner.Worker
echo "Acknowledging runner request 'said by a job'"
while [ ! -e leave ]; do sleep 0.02; done
exit 3
"""
WORKER = """#!/bin/bash
while [ ! -e done ]; do sleep 0.02; done
"""


@pytest.fixture
def installed(agent: ModuleType, open_folder: Path) -> Iterator[Any]:
    """A LinuxRunner with a scripted run.sh, under a folder that any user may write."""
    (open_folder / "bin").mkdir()
    for name, text in (
        ("run.sh", RUN),
        ("bin/Runner.Listener", LISTENER),
        ("bin/Runner.Worker", WORKER),
    ):
        (open_folder / name).write_text(text)
        (open_folder / name).chmod(0o755)
    open_folder.chmod(0o777)
    (open_folder / "bin").chmod(0o755)
    host = agent.Host({"runner_directory": str(open_folder), "runner_user": "nobody"})
    runner = agent.LinuxRunner(host)
    runner.start("the-jit-config", {})
    yield runner
    runner.kill()
    with contextlib.suppress(ProcessLookupError):
        # A worker whose listener exited is no longer below run.sh, but still in its process group.
        os.killpg(runner._process.pid, signal.SIGKILL)
    close_pipes(runner)


def close_pipes(runner: Any) -> None:
    runner._process.stdout.close()
    runner._process.stderr.close()


def see(runner: Any, seen: Callable[[Any], bool]) -> Any:
    """Look until something is seen."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        signs = runner.read_signs(0.05)
        if seen(signs):
            return signs
    raise TimeoutError


@pytest.mark.case(
    "the agent passes the JIT configuration in the environment, never as an argument",
    topic="Runner and listener",
    source="actions/runner Constants.cs",
)
def test_the_agent_runs_a_runner_from_start_to_exit(installed: Any, open_folder: Path) -> None:
    # Once a worker is seen, the listener's messages do not count any more.
    (open_folder / "hold").touch()
    (open_folder / "job").touch()
    see(installed, lambda signs: signs.message)
    (open_folder / "hold").unlink()
    assert see(installed, lambda signs: signs.worker).exited is None
    (open_folder / "done").touch()
    # After a worker was seen, log lines about a refusal do not count.
    assert not see(installed, lambda signs: not signs.worker).message
    (open_folder / "leave").touch()
    signs = see(installed, lambda signs: signs.exited is not None)
    assert (signs.exited, signs.message) == (3, False)
    assert (open_folder / "jit").read_text() == "the-jit-config\n"
    assert "the-jit-config" not in (open_folder / "argv").read_text()
    if os.geteuid() == 0:
        assert (open_folder / "jit").stat().st_uid != 0


def test_the_listeners_log_is_in_the_runners_folder(agent: ModuleType, open_folder: Path) -> None:
    runner = agent.LinuxRunner(agent.Host({"runner_directory": str(open_folder)}))
    (open_folder / "Runner_1.log").write_text("of another folder\n")
    (open_folder / "_diag").mkdir()
    (open_folder / "_diag" / "Runner_1.log").write_text("of the listener\n")
    assert list(runner._log.pieces()) == [b"of the listener\n"]


@pytest.mark.case(
    "jobs get the variables in `.env` and `.path` of the image",
    topic="Runner and listener",
    source="actions/runner runsvc.sh",
)
def test_the_runner_uses_the_path_of_the_image(agent: ModuleType, open_folder: Path) -> None:
    """The listener reads `.env` itself; the program that starts it reads `.path` (runsvc.sh)."""
    program = open_folder / "run.sh"
    program.write_text('#!/bin/bash\n[[ "$PATH" == /image/bin:/usr/bin:/bin ]] && exit 4\n')
    program.chmod(0o755)
    (open_folder / ".path").write_text("/image/bin:/usr/bin:/bin\n")
    (open_folder / ".env").write_text("LANG=C.UTF-8\n")
    host = agent.Host({"runner_directory": str(open_folder), "runner_user": "nobody"})
    runner = agent.LinuxRunner(host)
    runner.start("the-jit-config", {})
    assert see(runner, lambda signs: signs.exited is not None).exited == 4
    close_pipes(runner)
    assert (open_folder / ".path").read_text() == "/image/bin:/usr/bin:/bin\n"
    assert (open_folder / ".env").read_text() == "LANG=C.UTF-8\n"
    for text in ("", "two\nlines", "\x1b[2J"):
        (open_folder / ".path").write_text(text)
        assert agent.search_path(str(open_folder)) == {}


def test_a_stop_signals_only_the_listener(installed: Any, open_folder: Path) -> None:
    """run.sh forwards no signal by default, and the listener ends the steps of its worker."""
    (open_folder / "job").touch()
    see(installed, lambda signs: signs.worker)
    installed.suspend()
    assert installed.interrupt()
    assert not installed.suspended
    see(installed, lambda signs: signs.exited is not None)


@pytest.mark.case(
    "the machine is shut down while `run.sh` has no listener yet: the agent signals the listener "
    "once it runs",
    topic="Runner and listener",
    source="actions/runner run-helper.sh",
)
def test_a_stop_signals_nothing_before_the_listener_runs(
    agent: ModuleType, open_folder: Path
) -> None:
    """As while run.sh waits for Docker (RUNNER_WAIT_FOR_DOCKER_IN_SECONDS, run-helper.sh.template)."""
    program = open_folder / "run.sh"
    program.write_text("#!/bin/bash\nread -r _ < wait\n")
    program.chmod(0o755)
    os.mkfifo(open_folder / "wait")
    host = agent.Host({"runner_directory": str(open_folder), "runner_user": "nobody"})
    runner = agent.LinuxRunner(host)
    runner.start("the-jit-config", {})
    try:
        assert not runner.interrupt()
    finally:
        runner.kill()
        close_pipes(runner)


REFUSED_RUN = f"""#!/bin/bash
[[ "$ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE" == 1 ]] || exit 0
echo "Listening for Jobs"
printf 'An error occurred: {DEPRECATED}' >&2
exit 7
"""


@pytest.mark.case(
    "GitHub refuses the version of a runner: the agent reads it from the listener's last error "
    "line or exit status 7; the log and a metric show it",
    topic="Runner and listener",
    source="actions/runner#3651; actions/runner#2246",
)
def test_the_agent_reads_the_output_written_right_before_the_exit(
    agent: ModuleType, open_folder: Path
) -> None:
    """The line has no end, and the runner writes it to stderr just before it exits."""
    program = open_folder / "run.sh"
    program.write_text(REFUSED_RUN)
    program.chmod(0o755)
    runner = agent.LinuxRunner(
        agent.Host({"runner_directory": str(open_folder), "runner_user": "nobody"})
    )
    runner.start("the-jit-config", {})
    runner._process.wait(10)
    signs = runner.read_signs(0.0)
    assert signs.exited == 7
    assert signs.deprecated
    assert signs.error == f"An error occurred: {DEPRECATED}"
    close_pipes(runner)


@pytest.mark.case(
    "a listener does not start because a library is missing: the health check reports it",
    topic="Runner and listener",
    source="actions/runner: Linux prerequisites",
)
@pytest.mark.parametrize(
    ("answer", "ok", "detail"),
    [
        ("[ $1 = --version ] && echo 2.336.0", True, "2.336.0"),
        ("echo greetings", True, "not known: the answer is not a version"),
        ("echo 2.336.0; exec sleep 10", True, "not known: no answer in 60 s"),
        (
            'echo "Couldn\'t find a valid ICU package" >&2; exit 134',
            False,
            "Runner.Listener exited with 134: Couldn't find a valid ICU package",
        ),
    ],
)
def test_the_health_checks_include_the_runners_version(
    agent: ModuleType, open_folder: Path, answer: str, ok: bool, detail: str
) -> None:
    (open_folder / "run.sh").touch()
    install_listener(open_folder, answer)
    host = agent.Host({"runner_directory": str(open_folder), "runner_user": "nobody"})
    timeout = 0.05 if "sleep" in answer else 10.0
    found = {check.name: check for check in agent.run_health_checks({}, None, host, timeout)}
    assert (found["runner_version"].ok, found["runner_version"].detail) == (ok, detail)
    (open_folder / "bin" / "Runner.Listener").unlink()
    found = {check.name: check for check in agent.run_health_checks({}, None, host, timeout)}
    assert not found["runner_version"].ok
    assert "does not start" in found["runner_version"].detail


@pytest.fixture
def spared() -> Iterator[None]:
    """Give this process an OOM score like the agent's (or, without the privilege, the opposite)."""
    path = Path("/proc/self/oom_score_adj")
    before = path.read_text()
    try:
        path.write_text("-900")
    except PermissionError:
        path.write_text("100")
    yield
    path.write_text(before)


@pytest.mark.case(
    "memory runs out: the kernel kills the job, not the agent",
    topic="EC2's machines",
    source="systemd.exec",
)
def test_the_runner_does_not_inherit_the_agents_oom_protection(
    spared: None, agent: ModuleType, open_folder: Path
) -> None:
    """The unit's OOMScoreAdjust is only for the agent: the kernel first kills a job that uses up the memory."""
    program = open_folder / "run.sh"
    program.write_text("#!/bin/bash\nread -r own < /proc/self/oom_score_adj; exit $((own + 7))\n")
    program.chmod(0o755)
    runner = agent.LinuxRunner(
        agent.Host({"runner_directory": str(open_folder), "runner_user": "nobody"})
    )
    runner.start("the-jit-config", {})
    assert see(runner, lambda signs: signs.exited is not None).exited == 7
    close_pipes(runner)


def test_a_frozen_runner_does_nothing_until_it_is_resumed(
    installed: Any, open_folder: Path
) -> None:
    ticks = open_folder / "ticks"
    see(installed, lambda _: ticks.exists())
    installed.suspend()
    assert installed.suspended
    before = ticks.stat().st_size
    (open_folder / "job").touch()
    time.sleep(0.15)
    assert ticks.stat().st_size == before
    assert not installed.worker_runs()
    installed.resume()
    installed.resume()
    see(installed, lambda signs: signs.worker)


def test_kill_ends_a_frozen_runner_and_its_worker(
    agent: ModuleType, installed: Any, open_folder: Path
) -> None:
    (open_folder / "job").touch()
    see(installed, lambda signs: signs.worker)
    below = agent.descendants(installed._process.pid)
    assert len(below) >= 2
    installed.suspend()
    installed.kill()
    end = time.monotonic() + PATIENCE
    alive = [pid for pid in below if Path(f"/proc/{pid}").exists()]
    while alive and time.monotonic() < end:
        time.sleep(0.02)
        alive = [pid for pid in alive if "\nState:\tZ" not in _status(pid)]
    assert alive == []


def _status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "\nState:\tZ"


def test_both_ways_to_list_child_processes_agree(agent: ModuleType, installed: Any) -> None:
    pid = installed._process.pid

    # The listener starts short-lived processes: one may end between the two reads.
    def agree(_: object) -> bool:
        children: list[int] = agent.children_of(pid)
        return bool(children) and children == agent.children_by_parent(pid)

    see(installed, agree)
    assert agent.children_of(2**22 + 1) == []


def test_a_process_with_any_name_is_found_below_its_parent(
    agent: ModuleType, tmp_path: Path
) -> None:
    """A job chooses the names of its processes, which stand in /proc/PID/stat as they are (proc(5))."""
    program = tmp_path / os.fsdecode(b"a) 1 \xff")
    program.symlink_to(shutil.which("cat") or "")
    with subprocess.Popen([program], stdin=subprocess.PIPE) as process:
        assert process.pid in agent.children_by_parent(os.getpid())
        process.communicate()


def test_a_runner_that_closed_its_output_is_looked_at_without_waiting_for_its_end(
    agent: ModuleType, open_folder: Path
) -> None:
    program = open_folder / "run.sh"
    program.write_text("#!/bin/bash\nexec >&- 2>&-\nread -r _ < wait\nexit 5\n")
    program.chmod(0o755)
    os.mkfifo(open_folder / "wait")
    host = agent.Host({"runner_directory": str(open_folder), "runner_user": "nobody"})
    runner = agent.LinuxRunner(host)
    runner.start("the-jit-config", {})
    try:
        see(runner, lambda _: not runner._open_pipes(runner._process))
        assert runner.read_signs(0.05).exited is None
        (open_folder / "wait").write_text("")
        assert see(runner, lambda signs: signs.exited is not None).exited == 5
    finally:
        runner.kill()


# --- HTTP -----------------------------------------------------------------------------------------


class Scripted(http.server.BaseHTTPRequestHandler):
    """Answers with what the server's `answers` hold for a path: status, headers, body."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        status, headers, body = self.server.answers[self.path]  # type: ignore[attr-defined]
        self.server.asked.append(dict(self.headers))  # type: ignore[attr-defined]
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - the names that http.server looks for
    do_PUT = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing."""


@contextlib.contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[Any]:
    """A scripted server. TLS is there from the start: a socket that is replaced later may end its thread."""
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    made.daemon_threads = True
    made.answers = {}  # type: ignore[attr-defined]
    made.asked = []  # type: ignore[attr-defined]
    if context is not None:
        made.socket = context.wrap_socket(
            made.socket, server_side=True, do_handshake_on_connect=False
        )
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def server() -> Iterator[Any]:
    with serving() as made:
        yield made


@pytest.fixture
def https_server(tmp_path: Path) -> Iterator[Any]:
    """A scripted server with TLS. `certificate` is its own, in PEM."""
    certificate, key = make_certificate("127.0.0.1")
    (tmp_path / "both.pem").write_bytes(certificate + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "both.pem")
    with serving(context) as made:
        made.certificate = certificate.decode()
        yield made


def url_of(server: Any, scheme: str = "http") -> str:
    return f"{scheme}://127.0.0.1:{server.server_address[1]}"


@pytest.fixture
def controller(agent: ModuleType, server: Any) -> Iterator[Any]:
    """The agent's client for the scripted server."""
    link = agent.Link(url_of(server))
    yield agent.Controller(link, "lab", lambda: "cHJvb2Y=", agent.Clock(1.0))
    link.close()


Answer = tuple[int, dict[str, str], bytes]

ATTESTATION = "/bootstrap/attest"
POLL = "/bootstrap/machines/m-1/poll"


def attestation_body(machine: object = "m-1") -> bytes:
    return json.dumps({"machine": machine, "sku": "s", "health_checks": {}}).encode()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, "TryAgain"),
        (401, "AttestAgain"),
        (403, "PowerOff"),
        (404, "TryAgain"),
        (409, "AttestAgain"),
        (410, "PowerOff"),
        (426, "PowerOff"),
        (429, "TryAgain"),
        (500, "TryAgain"),
        (503, "TryAgain"),
    ],
)
def test_each_error_answer_leads_to_its_reaction(
    agent: ModuleType, server: Any, controller: Any, status: int, error: str
) -> None:
    server.answers = {ATTESTATION: (status, {"Retry-After": "7"}, b'{"error": "word"}')}
    with pytest.raises(getattr(agent, error)) as caught:
        controller.attest()
    assert "word" in str(caught.value)
    if error == "TryAgain":
        assert caught.value.retry_after == 7


@pytest.mark.parametrize(
    ("named", "read"), [("0", 0.0), ("-3", 0.0), ("1e9", 300.0), ("Wed, 21 Oct", None)]
)
def test_the_value_of_retry_after_is_bounded(
    agent: ModuleType, server: Any, controller: Any, named: str, read: float | None
) -> None:
    server.answers = {ATTESTATION: (503, {"Retry-After": named}, b'{"error": "busy"}')}
    with pytest.raises(agent.TryAgain) as caught:
        controller.attest()
    assert caught.value.retry_after == read


@pytest.mark.case(
    "a proxy's page does not count as an answer of the controller",
    topic="EC2's machines",
    source="RFC 9110, 15.3.1",
)
@pytest.mark.parametrize("status", [200, 403, 410, 426])
@pytest.mark.parametrize("page", [b"<html>come back later</html>", b'{"status": "maintenance"}'])
def test_a_proxys_error_page_does_not_count_as_the_controllers_answer(
    agent: ModuleType, server: Any, controller: Any, status: int, page: bytes
) -> None:
    """A proxy's maintenance page does not keep a machine running, and its refusal does not power one off."""
    before = controller.answered_at
    server.answers = {ATTESTATION: (status, {}, page)}
    with pytest.raises(agent.TryAgain):
        controller.attest()
    assert controller.answered_at == before


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        attestation_body("../../etc"),
        attestation_body(7),
        attestation_body("m" * 200),
        b'{"machine": "m-1"}',
        b"x" * 70_000,
    ],
)
def test_a_malformed_answer_is_no_answer(
    agent: ModuleType, server: Any, controller: Any, body: bytes
) -> None:
    server.answers = {ATTESTATION: (200, {}, body)}
    with pytest.raises(agent.TryAgain):
        controller.attest()
    assert controller.machine is None


@pytest.mark.parametrize("step", ["poll", "heartbeat", "may-release", "release"])
def test_a_proxys_json_answers_do_not_keep_a_machine_waiting_for_ever(
    agent: ModuleType, server: Any, step: str
) -> None:
    """Whichever answer the proxy replaces, the machine powers off after 15 minutes."""
    clock = VirtualClock()
    link = agent.Link(url_of(server))
    asked = agent.Controller(link, "lab", lambda: "cHJvb2Y=", clock)
    server.answers = {ATTESTATION: (200, {}, attestation_body())}
    asked.attest()
    asked.answered_at -= 100
    answered_at, path = asked.answered_at, f"/bootstrap/machines/m-1/{step}"
    server.answers[path] = (200, {}, b'{"status": "maintenance"}')
    say = {"poll": lambda: asked.poll(1.0), "release": lambda: asked.release(1.0)}
    say |= {"may-release": asked.may_release, "heartbeat": lambda: asked.report("heartbeat", {})}
    with pytest.raises(agent.TryAgain):
        say[step]()
    assert asked.answered_at == answered_at
    link.close()


@pytest.mark.case(
    "a proxy's page does not count as an answer of the controller",
    topic="EC2's machines",
    source="RFC 9110, 15.3.1",
)
def test_a_machine_behind_a_proxy_in_maintenance_powers_off(
    agent: ModuleType, server: Any, open_folder: Path
) -> None:
    """End to end over HTTP: attestation and health checks went well, then a proxy answers in place of all."""
    (open_folder / "run.sh").touch()
    install_listener(open_folder)
    clock = VirtualClock()
    link = agent.Link(url_of(server))
    controller = agent.Controller(link, "lab", lambda: "cHJvb2Y=", clock)
    host = agent.Host({"root": str(open_folder), "runner_directory": str(open_folder)})
    host.runner_user = "nobody"
    machine = "/bootstrap/machines/m-1/"
    server.answers = {ATTESTATION: (200, {}, attestation_body())}
    server.answers |= {machine + step: (204, {}, b"") for step in ("stage", "health-checks")}
    maintenance: Answer = (200, {}, b'{"status": "maintenance"}')
    server.answers |= {machine + step: maintenance for step in ("poll", "heartbeat")}
    began = clock.now()
    with pytest.raises(agent.PowerOff, match="15 minutes"):
        agent.Agent(host, clock, controller).live()
    assert clock.now() - began == pytest.approx(900, abs=1)
    link.close()


@pytest.mark.parametrize(
    "answer",
    [
        {"state": "assigned"},
        {"state": "assigned", "runner": "r", "jit_config": ""},
        {"state": "assigned", "runner": "r", "jit_config": "a\nb"},
        {"state": "assigned", "runner": "r\n", "jit_config": "a"},
        {"state": "else"},
    ],
)
def test_a_malformed_assignment_is_no_assignment(
    agent: ModuleType, server: Any, controller: Any, answer: dict[str, str]
) -> None:
    server.answers = {
        ATTESTATION: (200, {}, attestation_body()),
        POLL: (200, {}, json.dumps(answer).encode()),
    }
    controller.attest()
    with pytest.raises(agent.TryAgain):
        controller.poll(1.0)


def test_the_agent_authenticates_with_one_nonce_until_it_ends(
    agent: ModuleType, server: Any, controller: Any
) -> None:
    ready: Answer = (200, {}, b'{"state": "ready"}')
    server.answers = {ATTESTATION: (200, {}, attestation_body()), POLL: ready}
    controller.attest()
    assert controller.poll(1.0) is None
    controller.attest()
    controller.poll(1.0)
    bearers = [asked["Authorization"] for asked in server.asked if "Authorization" in asked]
    assert len(bearers) == 2
    assert len(set(bearers)) == 1
    assert len(bearers[0]) == len("Bearer ") + 64


def test_the_clock_is_compared_with_the_date_header(
    agent: ModuleType, server: Any, controller: Any
) -> None:
    server.answers = {ATTESTATION: (200, {}, attestation_body())}
    controller.attest()
    assert controller.skew < 5
    host = agent.Host({"runner_user": None, "runner_directory": "/nowhere"})
    checks = agent.run_health_checks({"clock_skew_s": 10}, 60.0, host, 1.0)
    assert [check.name for check in checks if not check.ok] == ["clock", "runner"]
    checks = agent.run_health_checks({"clock_skew_s": 10, "disk_gb": 1e9}, None, host, 1.0)
    assert [check.name for check in checks if not check.ok] == ["disk", "clock", "runner"]


@pytest.mark.parametrize(("status", "ok"), [(200, True), (404, True), (502, False)])
@pytest.mark.parametrize("name", ["github", "broker"])
def test_the_checks_of_github_need_an_answer(
    agent: ModuleType, server: Any, name: str, status: int, ok: bool
) -> None:
    server.answers = {"/api/v3?x=1": (status, {}, b"")}
    host = agent.Host({"runner_directory": "/nowhere"})
    checks = agent.run_health_checks({name: url_of(server) + "/api/v3?x=1"}, 0.0, host, 1.0)
    assert [check.ok for check in checks if check.name == name] == [ok]


@pytest.mark.parametrize(
    ("files", "free", "ok"), [(1_000_000, 49_999, False), (1_000_000, 50_000, True), (0, 0, True)]
)
def test_the_disk_needs_free_inodes(agent: ModuleType, files: int, free: int, ok: bool) -> None:
    found = os.statvfs_result((4096, 4096, 1, 1, 1, files, free, free, 0, 255))
    assert agent.check_inodes(found).ok is ok
    host = agent.Host({"runner_user": None, "runner_directory": "/nowhere"})
    checks = agent.run_health_checks({"disk_gb": 0}, None, host, 1.0)
    assert "inodes" in [check.name for check in checks]


def test_the_github_check_fails_without_a_server_or_with_a_wrong_url(agent: ModuleType) -> None:
    host = agent.Host({"runner_directory": "/nowhere"})
    for url in ("http://127.0.0.1:1/", "ftp://github.com", "http://[", "no url"):
        checks = agent.run_health_checks({"github": url}, 0.0, host, 1.0)
        assert [check.ok for check in checks if check.name == "github"] == [False]


def test_the_agent_reads_the_metadata_service_with_a_token(agent: ModuleType, server: Any) -> None:
    path = "/x/latest/dynamic/instance-identity/rsa2048"
    server.answers = {"/x/latest/api/token": (200, {}, b"tok\n"), path: (200, {}, b"QUJD\nREVG\n")}
    assert agent.metadata_proof(url_of(server) + "/x", 2.0) == "QUJDREVG"
    assert server.asked[1]["X-aws-ec2-metadata-token"] == "tok"
    server.answers[path] = (404, {}, b"")
    with pytest.raises(agent.TryAgain):
        agent.metadata_proof(url_of(server) + "/x", 2.0)


def test_only_the_configured_certificate_authority_is_trusted(
    agent: ModuleType, https_server: Any
) -> None:
    other, _ = make_certificate("127.0.0.1")
    elsewhere, _ = make_certificate("127.0.0.2")
    https_server.answers = {"/": (200, {}, b"greeting")}
    url = url_of(https_server, "https")
    link = agent.Link(url, https_server.certificate)
    assert link.ask("GET", "/", {}).body == b"greeting"
    link.close()
    for authority in (other.decode(), elsewhere.decode(), None):
        with pytest.raises(agent.TryAgain, match="SSLCertVerificationError"):
            agent.Link(url, authority).ask("GET", "/", {})


@pytest.mark.case(
    "machines reach the controller and GitHub only through a proxy",
    topic="Runner and listener",
    source="GitHub: proxies of self-hosted runners",
)
@pytest.mark.parametrize(
    ("variables", "proxy"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://proxy:3128"}, ("proxy", 3128, {})),
        ({"https_proxy": "proxy:3128"}, ("proxy", 3128, {})),
        (
            {"HTTPS_PROXY": "http://us%40er:pa%3Ass@proxy"},
            ("proxy", 80, {"Proxy-Authorization": "Basic dXNAZXI6cGE6c3M="}),
        ),
        (
            {"HTTPS_PROXY": "http://user@proxy"},
            ("proxy", 80, {"Proxy-Authorization": "Basic dXNlcjo="}),
        ),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "a.example, fleet.example"}, None),
        ({"HTTPS_PROXY": "http://p:1", "no_proxy": ".example"}, None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "ci.fleet.example:8443"}, None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "ci.fleet.example:443,,"}, ("p", 1, {})),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "i.fleet.example"}, ("p", 1, {})),
    ],
)
def test_the_agent_uses_the_proxy_of_the_environment(
    agent: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    proxy: tuple[str, int, dict[str, str]] | None,
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert agent.proxy_for("ci.fleet.example", 8443) == proxy


@pytest.mark.parametrize("url", ["https://proxy:1", "http://proxy:port", "http://"])
def test_a_proxy_that_cannot_be_used_is_reported(
    agent: ModuleType, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", url)
    monkeypatch.setenv("NO_PROXY", "")
    with pytest.raises(agent.TryAgain, match="HTTPS_PROXY"):
        agent.Link("https://ci.fleet.example").ask("GET", "/", {})


class Tunnel(socketserver.StreamRequestHandler):
    """A proxy that connects every client to one server."""

    def handle(self) -> None:
        lines = iter(self.rfile.readline, b"\r\n")
        self.server.asked.extend(lines)  # type: ignore[attr-defined]
        with socket.create_connection(self.server.behind) as behind:  # type: ignore[attr-defined]
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=self._copy, args=(behind, self.connection))
            back.start()
            self._copy(self.connection, behind)
            back.join()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                target.sendall(piece)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@pytest.mark.case(
    "machines reach the controller and GitHub only through a proxy",
    topic="Runner and listener",
    source="GitHub: proxies of self-hosted runners",
)
def test_https_goes_through_the_proxy_and_plain_http_does_not(
    agent: ModuleType, https_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = https_server
    server.answers = {"/": (200, {"Connection": "close"}, b"greeting")}
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Tunnel) as proxy:
        proxy.behind, proxy.asked = server.server_address, []  # type: ignore[attr-defined]
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:pass@127.0.0.1:{proxy.server_address[1]}")
        monkeypatch.setenv("NO_PROXY", "")
        link = agent.Link(url_of(server, "https"), server.certificate)
        try:
            assert link.ask("GET", "/", {}).body == b"greeting"
            with pytest.raises(agent.TryAgain):
                agent.Link("http://127.0.0.1:1").ask("GET", "/", {})
        finally:
            link.close()
            proxy.shutdown()
            thread.join()
        asked = b"".join(proxy.asked)  # type: ignore[attr-defined]
    port = server.server_address[1]
    assert asked.startswith(f"CONNECT 127.0.0.1:{port} HTTP/1.".encode())
    assert b"Proxy-Authorization: Basic dXNlcjpwYXNz" in asked
    assert asked.count(b"CONNECT") == 1


def test_a_closed_keep_alive_connection_is_opened_again(agent: ModuleType, server: Any) -> None:
    server.answers = {"/": (200, {}, b"greeting")}
    link = agent.Link(url_of(server))
    assert link.ask("GET", "/", {}).status == 200
    link._connection.sock.shutdown(2)
    assert link.ask("GET", "/", {}).status == 200
    link.close()


def test_no_request_waits_for_longer_than_its_time(agent: ModuleType) -> None:
    """Neither the first one nor one whose persistent connection was closed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        link = agent.Link(f"http://127.0.0.1:{server.getsockname()[1]}")

        def answer_once() -> None:
            with server.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

        answering = threading.Thread(target=answer_once)
        answering.start()
        assert link.ask("GET", "/", {}).status == 204
        answering.join()
        for _ in range(2):
            with pytest.raises(agent.TryAgain, match="TimeoutError"):
                link.ask("GET", "/", {}, None, 0.05)


# --- the whole program ----------------------------------------------------------------------------


def run_agent(folder: Path, host: dict[str, Any] | str) -> subprocess.CompletedProcess[str]:
    """Run the agent's file as a service does, with a command in place of the power-off."""
    script = folder / "power-off"
    script.write_text('#!/bin/bash\necho off >> "${0%/*}/off"\nkill -9 $PPID\n')
    script.chmod(0o755)
    given = host if isinstance(host, str) else json.dumps({"power_off": [str(script)], **host})
    (folder / "host.json").write_text(given)
    (folder / "agent.py").write_bytes(build_agent())
    return subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            str(folder / "agent.py"),
            "--host-file",
            str(folder / "host.json"),
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={"PATH": str(folder)},
    )


def test_the_agent_ends_on_sigterm_after_it_requested_the_power_off(tmp_path: Path) -> None:
    """systemd signals the service that called `shutdown`, and would wait for it."""
    script = tmp_path / "signals"
    script.write_text("#!/bin/bash\nkill -TERM $PPID\n")
    script.chmod(0o755)
    closed = "http://127.0.0.1:1"
    controller = {"controller": closed, "provider": "p"}
    (tmp_path / "controller.json").write_text(json.dumps(controller))
    host = {"root": str(tmp_path), "metadata": closed, "time_scale": 1e6, "disarm": ["/bin/true"]}
    done = run_agent(tmp_path, {**host, "power_off": [str(script)]})
    assert "powering off: no answer that knows this machine" in done.stderr
    assert done.returncode == -signal.SIGTERM


def test_the_agent_powers_off_at_a_second_boot(tmp_path: Path) -> None:
    marker = tmp_path / "var" / "lib" / "runner-agent" / "started"
    marker.parent.mkdir(parents=True)
    marker.touch()
    done = run_agent(tmp_path, {"root": str(tmp_path)})
    assert (tmp_path / "off").read_text() == "off\n"
    assert "before" in done.stderr


@pytest.mark.parametrize(
    "controller", [None, "{}", '{"controller": "ftp://x", "provider": "p"}', '{"controller": 1}']
)
def test_without_a_controller_the_agent_powers_off(tmp_path: Path, controller: str | None) -> None:
    if controller is not None:
        (tmp_path / "controller.json").write_text(controller)
    run_agent(tmp_path, {"root": str(tmp_path)})
    assert (tmp_path / "off").read_text() == "off\n"


@pytest.mark.parametrize(
    ("exempt", "direct"),
    [
        ("2001:db8::1", True),
        ("[2001:db8::1]", True),
        ("a.example, [2001:DB8::1]:8443", True),
        ("[2001:db8::1]:443", False),
        ("2001:db8::", False),
    ],
)
def test_an_ipv6_address_is_exempt_from_the_proxy(
    agent: ModuleType, monkeypatch: pytest.MonkeyPatch, exempt: str, direct: bool
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://p:1")
    monkeypatch.setenv("NO_PROXY", exempt)
    assert (agent.proxy_for("2001:db8::1", 8443) is None) is direct
