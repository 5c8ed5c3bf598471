"""The account of the runner, its folders, and the scheduled task with which the agent starts the runner.

No program can start another one as an account without its password. So Windows keeps the password of this
account for the task, and nothing else knows it. sysprep would lose it.
"""

import re
import secrets
import string

from library import (
    ACCOUNT,
    ADMINISTRATORS,
    BUILD,
    HANDOVER,
    HERE,
    RUNNER,
    SYSTEM,
    TOOLS,
    StepError,
    full,
    restrict,
    run,
)

TASK = "actions-runner"
GROUP = "Administrators"
LENGTH = 14
"""`net user` asks a question about longer passwords."""


def new_password() -> str:
    """Return a password that Windows' policy accepts: it has three kinds of characters at least."""
    characters = string.ascii_letters + string.digits
    return "".join(secrets.choice(characters) for _ in range(LENGTH - 3)) + "aA1"


def before() -> None:
    """Check that there is no such account yet."""
    if re.search(rf"\b{ACCOUNT}\b", run("net", "user")):
        raise StepError(
            f"the account {ACCOUNT} is there already: the base image is not a stock image"
        )
    if not RUNNER.is_dir():
        raise StepError(f"{RUNNER} is missing: the step runner creates it")


def apply() -> None:
    """Create the account, give it its folders, and register the task."""
    # After 42 days, the default, the task could not start any more.
    run("net", "accounts", "/maxpwage:unlimited")
    password = new_password()
    run("net", "user", ACCOUNT, password, "/add", "/expires:never", "/passwordchg:no")
    # As on Linux, where the runner may use sudo. Only administrators may also log on for a task.
    run("net", "localgroup", GROUP, ACCOUNT, "/add")
    for folder in (RUNNER, TOOLS, HANDOVER):
        restrict(folder, full(SYSTEM), full(ADMINISTRATORS), full(ACCOUNT))
    task = BUILD / "task.xml"
    # Task Scheduler reads UTF-16.
    task.write_text((HERE / "files" / "actions-runner.xml").read_text("utf-8"), encoding="utf-16")
    run("schtasks", "/create", "/tn", TASK, "/xml", task, "/ru", ACCOUNT, "/rp", password)
    task.unlink()


def after() -> None:
    """Check the account and the task. The test of the image starts the task."""
    said = run("net", "user", ACCOUNT)
    if not re.search(r"Password expires\s+Never", said):
        raise StepError(f"the password of {ACCOUNT} expires")
    if not re.search(rf"\*{GROUP}\b", said):
        raise StepError(f"{ACCOUNT} is not in the group {GROUP}")
    xml = run("schtasks", "/query", "/tn", TASK, "/xml")
    if "launch.ps1" not in xml or "<LogonType>Password</LogonType>" not in xml:
        raise StepError(f"the task {TASK} does not run the agent's script as {ACCOUNT}")
