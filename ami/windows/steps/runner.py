"""actions/runner, of the version of versions.yaml, with its .env, warmed up."""

import shutil
import zipfile

from library import BUILD, RUNNER, TOOLS, StepError, fetch, need_free_gb, note, retry, run, value

LISTENER = RUNNER / "bin" / "Runner.Listener.exe"


def before() -> None:
    """Check the space, and that there is no runner yet."""
    if RUNNER.exists():
        raise StepError(f"{RUNNER} is there already: the base image is not a stock image")
    need_free_gb(3)


def apply() -> None:
    """Unpack the runner."""
    archive = BUILD / "runner.zip"
    fetch(value("RUNNER_URL"), value("RUNNER_SHA256"), archive)
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(RUNNER)
    archive.unlink()
    (RUNNER / "_work").mkdir()
    TOOLS.mkdir(exist_ok=True)
    # A runner with a JIT configuration never runs config.cmd, which otherwise writes this file.
    lines = f"RUNNER_TOOL_CACHE={TOOLS}\nAGENT_TOOLSDIRECTORY={TOOLS}\n"
    (RUNNER / ".env").write_text(lines, encoding="ascii")
    # Compiles the runner's .NET code, which otherwise costs seconds of the first job.
    retry(3, "Runner.Listener warmup", lambda: _warm_up())
    # The agent reads the logs of the listener.
    shutil.rmtree(RUNNER / "_diag", ignore_errors=True)


def _warm_up() -> None:
    run(LISTENER, "warmup")


def after() -> None:
    """Check the version, and that the runner is not registered."""
    found = run(LISTENER, "--version").strip()
    if found != value("RUNNER_VERSION"):
        raise StepError(f"the runner says version {found}, not {value('RUNNER_VERSION')}")
    if not (RUNNER / "run.cmd").is_file():
        raise StepError(f"{RUNNER} has no run.cmd")
    if (RUNNER / ".runner").exists() or (RUNNER / ".credentials").exists():
        raise StepError("the runner is configured already")
    note("runner", found)
