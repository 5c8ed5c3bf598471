"""GitHub's job hooks: programs that the runner starts before the first step of its job, and after the last one.

The agent writes them just before it starts the runner, to a folder that only the agent's user can write. The
variables ACTIONS_RUNNER_HOOK_JOB_STARTED and ACTIONS_RUNNER_HOOK_JOB_COMPLETED name them (GitHub
documentation, "Running scripts before or after a job"). Both run this file again, as the user of the runner
(`hooks/programs.py`).
"""

from __future__ import annotations

import json
import os
import sys

from autoscaler.agent.actions import BadSettings
from autoscaler.agent.host import WINDOWS, Host
from autoscaler.agent.limits import MOST_SETTINGS
from autoscaler.agent.programs import NotInstalled, NoUsableAnswer, last_line, run_program
from autoscaler.agent.runner.account import runner_account
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
