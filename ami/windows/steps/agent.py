"""The agent, so that the user data need not fetch it, and the program that tests the finished image."""

import ast
import hashlib
import shutil

from library import (
    ADMINISTRATORS,
    AGENT_FOLDER,
    BUILD,
    HERE,
    SYSTEM,
    USERS,
    StepError,
    full,
    note,
    restrict,
    value,
)

AGENT = AGENT_FOLDER / "agent.py"


def before() -> None:
    """Check that Packer uploaded the agent."""
    if not (BUILD / "agent.py").is_file():
        raise StepError("agent.py was not uploaded")


def apply() -> None:
    """Copy both programs to a folder that users of the machine can only read."""
    shutil.copyfile(BUILD / "agent.py", AGENT)
    shutil.copyfile(HERE / "files" / "test-image.py", AGENT_FOLDER / "test-image.py")
    # The hooks of a job run this Python as the account of the runner.
    restrict(AGENT_FOLDER, full(SYSTEM), full(ADMINISTRATORS), f"{USERS}:(OI)(CI)RX")


def after() -> None:
    """Check that the agent is the one that was sent, and that this Python can read it."""
    content = AGENT.read_bytes()
    if hashlib.sha256(content).hexdigest() != value("AGENT_SHA256"):
        raise StepError(f"{AGENT} has another SHA-256 than the one that was sent")
    try:
        ast.parse(content)
    except SyntaxError as error:
        raise StepError(f"this Python cannot read {AGENT}: {error}") from error
    note("agent", value("AGENT_SHA256"))
