"""The agent in a pod: how it lives there, and how it ends."""

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autoscaler.app.agent_file import build_agent
from autoscaler.model.machines.failures import FailureScope
from autoscaler.providers.kubernetes.command import pod_command
from autoscaler.providers.kubernetes.listing.statuses import pod_state
from autoscaler.providers.kubernetes.manifest import container_modes, pod
from tests.agent.doubles import ScriptedController, ScriptedRunner, VirtualClock

SHA = "ab" * 32
URL = "https://fleet.internal.example:8443"

# Becomes the parent of orphans (prctl(2), PR_SET_CHILD_SUBREAPER = 36), as a container's first process is.
ORPHANS = """\
import ctypes, os, sys, time
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0
from autoscaler.agent.pod import reap_orphans
def child(work):
    pid = os.fork()
    if not pid:
        work()
        os._exit(7)
    return pid
middle = child(lambda: [child(lambda: None) for _ in range(3)])
def zombies():
    children = open(f'/proc/{os.getpid()}/task/{os.getpid()}/children').read().split()
    return [one for one in children if open(f'/proc/{one}/stat').read().split()[2] == 'Z']
while len(zombies()) < 4:
    time.sleep(0.01)
runner = child(lambda: None)
while len(zombies()) < 5:
    time.sleep(0.01)
reap_orphans(runner)
assert zombies() == [str(runner)], zombies()
assert os.waitstatus_to_exitcode(os.waitpid(runner, 0)[1]) == 7
reap_orphans(runner)
"""

# The runner exits after the agent has looked at it, and before the agent reaps orphans.
EXIT_BETWEEN = """\
import os, sys
from autoscaler.agent.host import Host
from autoscaler.agent.pod import PodRunner
folder = sys.argv[1]
runner = PodRunner(Host({'runner_directory': folder, 'runner_user': 'nobody'}))
runner.start('c2VjcmV0', {})
def exits():
    runner.worker_runs = lambda: False
    os.close(os.open(folder + '/wait', os.O_WRONLY))
    os.waitid(os.P_PID, runner._process.pid, os.WEXITED | os.WNOWAIT)
    return False
runner.worker_runs = exits
seen = [runner.read_signs(0.0).exited for _ in range(2)]
assert seen == [None, 5], seen
"""

# What a process of the same user gets from the agent, before and after the agent's first act in a container.
INSPECTION = """\
import ctypes, json, os, subprocess, sys
from autoscaler.agent.pod import live_in_pod
libc = ctypes.CDLL(None)
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(1001)
    os.setuid(1001)
    assert libc.prctl(4, 1, 0, 0, 0) == 0  # as after the start of a program: PR_SET_DUMPABLE
agent = os.getpid()
def traced():
    if libc.ptrace(16, agent, 0, 0):  # PTRACE_ATTACH
        raise OSError('ptrace')
    os.waitpid(agent, 0)
    libc.ptrace(17, agent, 0, 0)  # PTRACE_DETACH
LOOKS = {
    'environ': lambda: open(f'/proc/{agent}/environ', 'rb').read(),
    'mem': lambda: open(f'/proc/{agent}/mem', 'rb').close(),
    'maps': lambda: open(f'/proc/{agent}/maps').read(),
    'fd': lambda: os.listdir(f'/proc/{agent}/fd'),
    'root': lambda: os.listdir(f'/proc/{agent}/root/'),
    'ptrace': traced,
}
def succeeds(look):
    pid = os.fork()
    if not pid:
        try:
            look()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0
def job_sees():
    return [name for name, look in LOOKS.items() if succeeds(look)]
before = job_sees()
assert live_in_pod('/absent/host.json') == 1
after = job_sees()
runner = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
runner.stdin.write(b'x')
assert runner.stdout.read(1) == b'x'  # Its start, which makes it dumpable, is over.
agent = runner.pid
print(json.dumps([before, after, job_sees()]))
runner.stdin.close()
"""


@pytest.fixture
def host(agent: ModuleType, tmp_path: Path) -> Any:
    """The settings of a pod whose volumes are in a folder."""
    for folder in (pod.AGENT_FOLDER, pod.IDENTITY_FOLDER):
        (tmp_path / folder.strip("/")).mkdir(parents=True)
    path = tmp_path / "host.json"
    path.write_text(json.dumps({"root": str(tmp_path)}))
    return agent.pod_host(str(path))


@pytest.fixture
def scripted(
    agent: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[ScriptedController, ScriptedRunner]]:
    """The controller, which assigns a runner at once, and this runner."""
    clock = VirtualClock()
    controller, runner = ScriptedController(agent, clock), ScriptedRunner(agent, clock)
    controller.answers["poll"] = [agent.Assignment("fleet-1", "c2VjcmV0", {})]
    monkeypatch.setattr(agent, "connect", lambda *_: controller)
    monkeypatch.setattr(agent, "Clock", lambda _: clock)
    monkeypatch.setattr(agent, "PodRunner", lambda _: runner)
    monkeypatch.setattr(agent, "run_health_checks", lambda *_: [])
    monkeypatch.setattr(agent, "refuse_inspection", lambda: None)
    before = signal.getsignal(signal.SIGTERM)
    yield controller, runner
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def agent_file(tmp_path: Path) -> Path:
    file = tmp_path / "agent.py"
    file.write_bytes(build_agent())
    return file


def test_the_agent_uses_the_folders_that_the_provider_mounts(agent: ModuleType) -> None:
    assert agent.AGENT_FOLDER == pod.AGENT_FOLDER
    assert f"{pod.IDENTITY_FOLDER}/token" == agent.IDENTITY_TOKEN
    assert f"{agent.POD_RUNNER_DIRECTORY}/_work" == container_modes.WORK_FOLDER


def test_a_pods_settings_come_from_the_images_host_file(agent: ModuleType, tmp_path: Path) -> None:
    found = agent.pod_host(str(tmp_path / "absent.json"))
    assert (found.runner_directory, found.state) == ("/home/runner", "/run/runner-agent")
    path = tmp_path / "host.json"
    path.write_text('{"runner_directory": "/opt/runner"}')
    assert agent.pod_host(str(path)).runner_directory == "/opt/runner"


@pytest.mark.parametrize(("value", "checked"), [("in-job-pod", False), ("", True), (None, True)])
def test_accelerators_of_the_jobs_own_pod_are_not_looked_for_here(
    agent: ModuleType,
    host: Any,
    monkeypatch: pytest.MonkeyPatch,
    value: str | None,
    checked: bool,
) -> None:
    if value is not None:
        monkeypatch.setenv("RUNNER_AGENT_ACCELERATORS", value)
    monkeypatch.setenv("PATH", host.root)
    found = agent.pod_host(f"{host.root}/host.json")
    parameters = {"accelerator": {"vendor": "nvidia", "count": 1}}
    checks = agent.check_machine(parameters, None, found, agent.Clock(1.0))
    assert ("gpu_query" in {one.name for one in checks}) is checked


def test_github_has_as_long_to_answer_a_health_check_in_a_lab(
    agent: ModuleType, host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = agent.Clock(80.0)
    limits: list[float] = []
    assert clock.real_timeout(10.0) < agent.GITHUB_TIMEOUT
    scripted = ScriptedController(agent, clock)
    monkeypatch.setattr(agent, "connect", lambda *_: scripted)
    monkeypatch.setattr(agent, "Clock", lambda _: clock)

    def checked(_checks: object, skew: object, _host: object, limit: float) -> list[Any]:
        assert skew == scripted.skew, "how far this clock is from the controller's"
        limits.append(limit)
        return [agent.Check("github", False, "no answer")]

    monkeypatch.setattr(agent, "run_health_checks", checked)
    with pytest.raises(agent.PowerOff, match="the health checks failed: github"):
        agent.live(host)
    assert limits == [10.0]


def test_each_proof_is_the_token_that_kubelet_wrote_last(agent: ModuleType, host: Any) -> None:
    path = host.root + agent.IDENTITY_TOKEN
    with pytest.raises(agent.TryAgain, match="No such file"):
        agent.token_proof(path)
    for token in (b"a.b.c", b"d.e.f"):
        Path(path).write_bytes(token + b"\n")
        assert base64.b64decode(agent.token_proof(path)) == token
    Path(path).write_bytes(b"")
    with pytest.raises(agent.TryAgain, match="empty"):
        agent.token_proof(path)


def test_one_process_attests_and_supervises_the_runner(
    agent: ModuleType, host: Any, scripted: tuple[ScriptedController, ScriptedRunner]
) -> None:
    controller, runner = scripted
    runner.script = {5: {"worker": True}, 300: {"exited": 0, "worker": False}}
    assert agent.live_in_pod(f"{host.root}/host.json") == 0
    assert controller.bodies["health-checks"]["passed"] is True
    assert runner.started_with == "c2VjcmV0"
    assert Path(host.marker).exists()
    assert controller.bodies["exit"]["reason"] == "exited"


@pytest.mark.case(
    "the JIT configuration is in no file of the pod and in no Secret: the agent gives it to its runner",
    topic="Kubernetes",
    source="Kubernetes: emptyDir, medium Memory",
)
def test_the_jit_configuration_is_in_no_file_of_the_pod(
    agent: ModuleType, host: Any, scripted: tuple[ScriptedController, ScriptedRunner]
) -> None:
    _, runner = scripted
    runner.script = {5: {"exited": 0}}
    assert agent.live_in_pod(f"{host.root}/host.json") == 0
    files = [path for path in Path(host.root).rglob("*") if path.is_file()]
    assert {path.name for path in files} == {"host.json", "started"}
    assert not any(b"c2VjcmV0" in path.read_bytes() for path in files)


def test_the_provider_knows_failed_health_checks_by_the_exit_status(
    agent: ModuleType,
    host: Any,
    scripted: tuple[ScriptedController, ScriptedRunner],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    failed = [agent.Check("gpu_errors", False, "uncorrectable")]
    monkeypatch.setattr(agent, "run_health_checks", lambda *_: failed)
    status = agent.live_in_pod(f"{host.root}/host.json")
    ended = {"exitCode": status, "message": capfd.readouterr().err}
    shown = [{"name": "runner", "state": {"terminated": ended}}]
    found = pod_state({"status": {"phase": "Failed", "containerStatuses": shown}}).finding
    assert found is not None
    assert found.scope is FailureScope.HOST
    _, runner = scripted
    assert runner.started_with is None


@pytest.mark.parametrize("refusal", ["PowerOff", "Stopped", "BadSettings"])
def test_an_agent_that_gets_no_assignment_fails(
    agent: ModuleType,
    host: Any,
    scripted: tuple[ScriptedController, ScriptedRunner],
    refusal: str,
) -> None:
    controller, runner = scripted
    controller.answers["poll"] = [getattr(agent, refusal)("410 ended")]
    assert agent.live_in_pod(f"{host.root}/host.json") == 1
    assert runner.started_with is None


def test_a_runner_that_is_stopped_fails(
    agent: ModuleType,
    host: Any,
    scripted: tuple[ScriptedController, ScriptedRunner],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller, runner = scripted
    runner.script = {5: {"worker": True}}
    read = runner.read_signs

    def stopped(wait: float) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return read(wait)

    monkeypatch.setattr(runner, "read_signs", stopped)
    assert agent.live_in_pod(f"{host.root}/host.json") == 1
    assert controller.bodies["exit"]["reason"] == "stopped"


@pytest.mark.case(
    "the container runtime creates a pod's sandbox again, and its containers run a second time",
    topic="Kubernetes",
    source="Kubernetes: Init Containers",
)
def test_a_pod_whose_runner_was_started_attests_no_more(agent_file: Path, host: Any) -> None:
    Path(host.marker).touch()
    done = subprocess.run(
        [sys.executable, "-I", "-S", agent_file, "pod", "--host-file", f"{host.root}/host.json"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "a runner was started on this machine before" in done.stderr


@pytest.mark.case(
    "a container's first process gets the orphans of a job, and has to reap them",
    topic="Kubernetes",
    source="pid_namespaces(7)",
)
def test_orphans_of_a_job_are_reaped_and_the_runner_is_not() -> None:
    subprocess.run([sys.executable, "-c", ORPHANS], check=True)


def test_reaping_orphans_does_not_lose_the_exit_status_of_the_runner(open_folder: Path) -> None:
    program = open_folder / "run.sh"
    program.write_text("#!/bin/bash\nread -r _ < wait\nexit 5\n")
    program.chmod(0o755)
    os.mkfifo(open_folder / "wait")
    subprocess.run([sys.executable, "-c", EXIT_BETWEEN, open_folder], check=True)


@pytest.mark.case(
    "a job reads the agent's memory, environment or open files, or traces it",
    topic="Hostile input",
    source="prctl(2); ptrace(2)",
)
def test_a_job_can_neither_read_nor_trace_the_agent() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INSPECTION], check=True, capture_output=True, text=True
    )
    before, after, of_the_runner = json.loads(done.stdout)
    # Some hosts refuse ptrace anyway (Yama).
    assert set(before) >= {"environ", "mem", "maps", "fd", "root"}
    assert after == []
    assert "a job can inspect the agent" not in done.stderr
    assert set(of_the_runner) >= {"environ", "mem", "maps", "fd", "root"}, "jobs may use debuggers"


# --- the command of the container -----------------------------------------------------------------


def test_the_command_names_the_agent_by_its_hash_and_contains_no_variable() -> None:
    command = pod_command(URL + "/", "cluster", SHA, "-----BEGIN CERTIFICATE-----$(A)")
    *_, script, controller = command
    assert script.count(SHA) == 2
    assert json.loads(controller) == {
        "controller": URL,
        "provider": "cluster",
        "ca": "-----BEGIN CERTIFICATE-----$(A)",
    }
    # Kubernetes would replace $(NAME), and would turn $$ into $.
    assert not any(mark in part for part in command for mark in ("$(", "$$"))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (("ftp://x", "cluster", SHA), "not a plain http or https URL"),
        (("https://x/?a", "cluster", SHA), "not a plain http or https URL"),
        ((URL, "cluster", "ab"), "hexadecimal"),
        ((URL, "cluster", SHA, "-----BEGIN PRIVATE KEY-----"), "private key"),
        ((URL, "cluster", SHA, "x" * 65_537), "larger"),
    ],
)
def test_values_that_cannot_be_part_of_a_command_are_refused(
    values: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        pod_command(*values)


def test_a_pod_that_is_deleted_while_it_fetches_the_agent_ends_at_once(tmp_path: Path) -> None:
    """Its command is the container's first process, which gets no SIGTERM that it does not handle."""
    _, *arguments = pod_command("http://127.0.0.1:9", "cluster", SHA)
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env=os.environ | {"RUNNER_AGENT_ROOT": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith(
        f"cannot fetch the agent from http://127.0.0.1:9/bootstrap/agent.py?sha256={SHA}"
    )
    process.terminate()
    assert process.wait() == 143
    process.stderr.close()


def test_the_grace_period_is_longer_than_a_stopped_runner_needs(agent: ModuleType) -> None:
    """STOP seconds for the job's end, one exit report of at most ten, and five to kill what is left."""
    assert agent.STOP + 10.0 + 5.0 < pod.GRACE_SECONDS
