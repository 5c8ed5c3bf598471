"""GitHub's job hooks: programs that the runner starts before the first step of its job, and after the last one.

The agent writes them just before it starts the runner, to a folder that only the agent's user can write. The
variables ACTIONS_RUNNER_HOOK_JOB_STARTED and ACTIONS_RUNNER_HOOK_JOB_COMPLETED name them (GitHub
documentation, "Running scripts before or after a job"). Both run this file again, as the user of the runner,
and their output is in the job's log.

`job-started` ("Set up runner") prints where the job runs, and refuses a job that the SKU's `access` does not
admit. `job-completed` ("Complete runner") prints what the machine had left. After that, both run the image's
own program, if there is one. Except for the refusal, neither lets a job fail.

The exit status of a hook does not stop a job: GitHub's runner still runs steps with `if: always()`
(actions/runner, StepsRunner.cs). If its listener is stopped, the runner runs no other step and reports to
GitHub that the job failed. So the hook stops the listener.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

from autoscaler.agent.actions import BadSettings
from autoscaler.agent.hooks.job_access import Refusal, refusal_of_job
from autoscaler.agent.host import WINDOWS, Host, free_bytes, read_trusted
from autoscaler.agent.limits import HOOK_PROGRAM, MOST_EVENT, MOST_SETTINGS, REFUSED_JOB
from autoscaler.agent.programs import NotInstalled, NoUsableAnswer, last_line, run_program
from autoscaler.agent.runner.account import runner_account
from autoscaler.agent.runner.listener_log import readable
from autoscaler.agent.runner.processes import parent_of, process_name
from autoscaler.agent.verdicts import Check

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


HOOK_VARIABLES = {
    "job-started": "ACTIONS_RUNNER_HOOK_JOB_STARTED",
    "job-completed": "ACTIONS_RUNNER_HOOK_JOB_COMPLETED",
}


def install_hooks(host: Host, job: dict[str, Any], agent_file: str | None = None) -> dict[str, str]:
    """Write both hooks and the parameters of the job. Return the variables that name them. Raises OSError.

    Without parameters, from a controller of an earlier release, there are no hooks. `agent_file` is the
    agent's own file.
    """
    if not job:
        return {}
    folder = host.hooks
    os.makedirs(folder, exist_ok=True)
    os.chmod(folder, 0o755)  # noqa: S103 - the user of the runner reads it
    agent, parameters = os.path.join(folder, "agent.py"), os.path.join(folder, "job.json")
    # The user of the runner cannot read the agent's own folder.
    with open(agent_file or sys.argv[0], encoding="utf-8") as file:
        _write(agent, file.read())
    _write(parameters, json.dumps(job))
    variables = {}
    for hook, variable in HOOK_VARIABLES.items():
        variables[variable] = os.path.join(folder, hook + (".ps1" if WINDOWS else ".sh"))
        _write(variables[variable], hook_script(sys.executable, agent, hook, parameters))
    return variables


def hook_script(
    python: str, agent: str, hook: str, parameters: str, *, windows: bool = WINDOWS
) -> str:
    """Return the script of a hook: GitHub runs `.ps1` with PowerShell on Windows, `.sh` with bash elsewhere."""
    words = [python, "-I", "-S", agent, hook, parameters]
    if windows:
        quoted = " ".join("'" + word.replace("'", "''") + "'" for word in words)
        return f"& {quoted}\r\nexit $LASTEXITCODE\r\n"
    quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
    return f"exec {quoted}\n"


def check_hooks(host: Host, timeout: float) -> Check:
    """Return whether the runner will use the agent's hooks, and can start them. `timeout`: real seconds.

    The listener sets the variables in the image's `.env` itself (actions/runner, Program.cs, LoadAndSetEnv),
    and they replace those of the agent.
    """
    try:
        # As .NET reads it: without a byte order mark, and with any byte that is no UTF-8.
        path = os.path.join(host.runner_directory, ".env")
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            names = {line.partition("=")[0] for line in file.read(MOST_SETTINGS).splitlines()}
    except OSError:
        names = set()
    found = sorted(names.intersection(HOOK_VARIABLES.values()))
    if found:
        detail = f"the image's .env sets {', '.join(found)}: put the program at {IMAGE_HOOKS}"
        return Check("job_hooks", False, detail)
    try:
        identity, _ = runner_account(host)
        done = run_program([sys.executable, "-I", "-S", "-c", ""], timeout, **identity)
    except (BadSettings, NotInstalled, NoUsableAnswer) as error:
        return Check("job_hooks", False, f"the user of the runner cannot run Python: {error}")
    if done.status != 0:
        detail = f"the user of the runner cannot run {sys.executable}: {last_line(done.text)}"
        return Check("job_hooks", False, detail)
    return Check("job_hooks", True, "the user of the runner can run them")


IMAGE_HOOKS = "/opt/runner-agent/job-started and job-completed"


def _write(path: str, text: str) -> None:
    """Write a file that every user can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    os.chmod(path, 0o644)


LISTENER, WORKER = "Runner.Listener", "Runner.Worker"


def run_hook(hook: str, path: str) -> int:
    """Run `job-started` or `job-completed` with the parameters in a file; return the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # with which a worker stops its step: no traceback
    # On Windows, and with LC_ALL=C, names outside ASCII would end the hook with an error.
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    try:
        job = read_trusted(path) or {}
    except BadSettings as error:
        say(error)
        job = {}
    if hook == "job-started":
        say("\n".join(describe(job)))
        refusal = refusal_of_job(_mapping(job.get("access")), os.environ, _event())
        if refusal is not None:
            refuse(refusal, job)
            return 1
    else:
        say(free_space())
    run_image_program(f"/opt/runner-agent/{hook}")
    return 0


def describe(job: dict[str, Any]) -> list[str]:
    """Return lines for the author of the job: where it runs, and why it waited."""
    lines = [f"Machine: {_text(job, 'machine')} ({_text(job, 'instance')})"]
    lines += [f"SKU: {_text(job, 'sku')}", f"Offering: {_text(job, 'offering')}"]
    if job.get("image"):
        lines.append(f"Image: {_text(job, 'image')}")
    if "ready_s" in job and "idle_s" in job:
        ready, idle = _text(job, "ready_s"), _text(job, "idle_s")
        lines.append(f"Boot: ready {ready} s after its launch request, then idle for {idle} s")
    if "waited_s" in job:
        launched = "it was launched after that" if job.get("launched_for_it") else "it was there"
        lines.append(
            f"Wait: the first job with these labels waited {_text(job, 'waited_s')} s for "
            f"a machine; {launched}"
        )
    return lines


def refuse(refusal: Refusal, job: dict[str, Any]) -> None:
    """Say in the job's log why the job is refused, and stop the runner before the job's first step."""
    contact = _text(_mapping(job.get("access")), "contact")
    ask = f" Ask for access: {contact}" if contact else ""
    text = f"This job may not use the runner {_text(job, 'sku')}: {refusal.text}.{ask}"
    say(f"::error title=Refused by the runner ({refusal.code})::{escape(text)}")
    stop_runner()


def stop_runner() -> None:
    """Stop the listener, and wait to be stopped with it. Kill the worker if that takes too long.

    If a worker ends without a result, the listener reports to GitHub that the job failed
    (JobDispatcher.cs). On Windows no process can ask another one to end.
    """
    if WINDOWS:
        subprocess.run(["taskkill", "/F", "/IM", WORKER + ".exe"], check=False)  # noqa: S603, S607
        return
    above = ancestors(os.getpid())
    for program, number in ((LISTENER, signal.SIGTERM), (WORKER, signal.SIGKILL)):
        for pid in above:
            if process_name(pid) == program:
                os.kill(pid, number)
        if program == LISTENER:
            time.sleep(REFUSED_JOB)


def ancestors(pid: int) -> list[int]:
    """Return the processes above this one, the nearest first."""
    found: list[int] = []
    while (parent := parent_of(found[-1] if found else pid)) is not None and parent > 0:
        found.append(parent)
    return found


def free_space() -> str:
    """Return a line for the author of the job: the free space of its disk. A job may delete its folder."""
    try:
        return f"Disk: {free_bytes(os.getcwd()) / 2**30:.1f} GiB free after the job"
    except OSError as error:
        return f"Disk: not known: {error.strerror}"


def run_image_program(path: str) -> None:
    """Run the image's own program, if there is one. After `HOOK_PROGRAM` seconds, kill it and its children."""
    if WINDOWS or not os.path.lexists(path):
        return
    try:
        process = subprocess.Popen([path], start_new_session=True)  # noqa: S603
    except OSError as error:
        say(f"::warning::{path} does not start: {error.strerror}")
        return
    try:
        status = process.wait(HOOK_PROGRAM)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        say(f"::warning::{path} was stopped after {HOOK_PROGRAM:.0f} s")
        return
    if status != 0:
        say(f"::warning::{path} exited with {status}")


def say(text: object) -> None:
    """Write a line to the job's log now: the listener may stop this process next."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def escape(text: str) -> str:
    """Return text as the value of a workflow command (actions/toolkit, command.ts)."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _event() -> Any:
    """Return the payload of the run's event, or None."""
    try:
        with open(os.environ.get("GITHUB_EVENT_PATH", ""), encoding="utf-8-sig") as file:
            return json.loads(file.read(MOST_EVENT))
    # An event as deep as its sender likes (`client_payload`) must not end the hook before it has decided.
    except (OSError, ValueError, RecursionError):
        return None


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(values: dict[str, Any], key: str) -> str:
    """Return a value as readable text: it comes from the controller, and goes to a log with commands."""
    return readable(str(values.get(key, "")).encode())
