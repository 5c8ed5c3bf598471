"""Tests a machine that was started from a new image: is everything there that the agent and jobs need?

Prints "image-test: passed" and the image's versions as JSON in one line, or "image-test: failed: REASON". The
line goes to the serial port COM1, which is EC2's console, and to standard output.
"""

import ast
import json
import ssl
import subprocess
import sys
import time
from pathlib import Path

RUNNER = Path("C:\\actions-runner")
AGENT_FOLDER = Path("C:\\runner-agent")
STATE = Path("C:\\ProgramData\\runner-agent")
HANDOVER = STATE / "handover"
CONSOLE = Path("\\\\.\\COM1")
TASK_SECONDS = 300.0
"""The first logon of an account makes its profile, which takes a while."""

LAUNCH = f"""\
Set-Location '{HANDOVER}'
& .\\image-test.cmd
"""
COMMAND = """\
@echo off\r
echo account %USERNAME%> image-test.new\r
C:\\actions-runner\\bin\\Runner.Listener.exe --version >> image-test.new 2>&1\r
echo writable> C:\\actions-runner\\_work\\image-test\r
if not exist C:\\actions-runner\\_work\\image-test exit /b 1\r
del C:\\actions-runner\\_work\\image-test\r
ren image-test.new image-test.txt\r
"""
"""What the agent's script does, too: the task runs it as the account of the runner."""


class TestError(Exception):
    """The image cannot be used. The text says why."""


def run(*words: str) -> str:
    """Return what a program prints within a minute. Raises TestError."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise TestError(f"{words[0]}: {error}") from error
    return done.stdout


def need(fact: bool, reason: str) -> None:
    """Raise TestError with the reason if the fact is false."""
    if not fact:
        raise TestError(reason)


def from_the_task() -> "tuple[str, str]":
    """Run the runner's task; return the account that it has, and the version that the runner says."""
    (HANDOVER / "image-test.cmd").write_text(COMMAND, encoding="ascii", newline="")
    (HANDOVER / "launch.ps1").write_text(LAUNCH, encoding="ascii")
    run("schtasks", "/run", "/tn", "actions-runner")
    answer = HANDOVER / "image-test.txt"
    end = time.monotonic() + TASK_SECONDS
    while not answer.exists():
        need(time.monotonic() < end, "the task actions-runner did not run as the runner's account")
        time.sleep(0.5)
    first, _, rest = answer.read_text("utf-8", errors="replace").partition("\n")
    return first.removeprefix("account ").strip(), rest.strip()


def check() -> "dict[str, str]":
    """Return the versions of the image. Raises TestError."""
    try:
        versions: dict[str, str] = json.loads((AGENT_FOLDER / "image.json").read_text("utf-8"))[
            "versions"
        ]
    except (OSError, ValueError, KeyError) as error:
        raise TestError(f"the manifest cannot be read: {error}") from error
    try:
        ast.parse((AGENT_FOLDER / "agent.py").read_bytes())
    except (OSError, SyntaxError) as error:
        raise TestError(f"the agent cannot be read: {error}") from error
    for path, why in (
        (STATE / "controller.json", "the machine was configured for a fleet"),
        (STATE / "state" / "started", "the machine has run a runner"),
        (RUNNER / ".runner", "the runner is registered"),
    ):
        need(not path.exists(), why)
    roots = len(ssl.create_default_context().get_ca_certs())
    need(roots >= 100, f"Python sees {roots} root certificates")
    account, version = from_the_task()
    need(account == "runner", f"the task runs as {account}")
    need(
        version == versions["runner"],
        f"the runner says version {version!r}, the manifest {versions['runner']}",
    )
    if "driver" in versions:
        said = run("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
        found = " ".join(sorted(set(said.split())))
        need(found == versions["driver"], f"the GPUs have driver {found!r}")
    return versions


def report(line: str) -> None:
    """Write a line to the console. EC2Launch may have the port open for a moment."""
    print(line, flush=True)
    for _ in range(60):
        try:
            # "r+": CreateFile opens a port only as something that exists.
            with CONSOLE.open("r+b", buffering=0) as port:
                port.write(f"\r\n{line}\r\n".encode())
        except OSError as error:
            print(f"COM1: {error}", flush=True)
            time.sleep(1)
        else:
            return


def main() -> int:
    """Return the exit status: 0 if the image passed."""
    try:
        versions = check()
    except TestError as error:
        report("image-test: failed: " + " ".join(str(error).split()))
        return 1
    report("image-test: passed " + json.dumps(versions))
    return 0


sys.exit(main())
