"""The AWS CLI knows every command that the documents and modules name, with its options."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from lab.terraform.parts import find_python_program
from tests.terraform.account import REGION, credentials

ROOT = Path(__file__).parents[2]
IN_TEXT = re.compile(r"`(aws [a-z][^`]+)`")
IN_BLOCK = re.compile(r"^ *(aws [a-z](?:.*\\\n)*.*)$", re.MULTILINE)


def commands() -> list[str]:
    """Return each command with options in a document or a module."""
    files = [
        ROOT / "README.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "terraform").rglob("*.tf"),
    ]
    texts = [file.read_text(encoding="utf-8") for file in files]
    found = {one for text in texts for form in (IN_TEXT, IN_BLOCK) for one in form.findall(text)}
    # What is behind a pipe is another program.
    alone = {one.replace("\\\n", " ").split(" | ")[0] for one in found}
    return sorted({" ".join(one.split()) for one in alone if "--" in one})


COMMANDS = commands()
NOT_SENT = "Could not connect to the endpoint URL"


def failure(command: str, folder: Path) -> str:
    """Run a command without a service. Return its error: the CLI checks the command before it connects.

    `folder` gets the files that the command reads.
    """
    for name in re.findall(r"file://(\S+)", command):
        (folder / name).write_text("{}")
    cli = find_python_program("aws")
    done = subprocess.run(
        [sys.executable, str(cli / "bin" / "aws"), *shlex.split(command)[1:]],
        # Nothing listens on this port.
        env={
            **credentials("http://127.0.0.1:9"),
            "AWS_DEFAULT_REGION": REGION,
            "AWS_MAX_ATTEMPTS": "1",
            "NO_PROXY": "127.0.0.1",
            "PYTHONPATH": str(cli),
            "PATH": os.defpath,
        },
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    return done.stderr


def test_the_documents_name_commands() -> None:
    assert (
        "aws autoscaling start-instance-refresh --auto-scaling-group-name FLEET-controller"
        in COMMANDS
    )
    assert any(command.startswith("aws kms create-grant ") for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_aws_cli_knows_a_command_of_the_documents(command: str, tmp_path: Path) -> None:
    assert NOT_SENT in failure(command, tmp_path)


@pytest.mark.parametrize(
    "command",
    [
        "aws autoscaling start-instance-refresh --group FLEET-controller",
        "aws autoscaling start-refresh --auto-scaling-group-name FLEET-controller",
        "aws autoscaling start-instance-refresh",
    ],
)
def test_the_aws_cli_refuses_what_it_does_not_know(command: str, tmp_path: Path) -> None:
    assert NOT_SENT not in failure(command, tmp_path)
