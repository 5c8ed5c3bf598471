"""Completion in shells: the script for each shell, and the words that the command answers to it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("autoscaler")


def completed(program: list[str], **variables: str) -> str:
    """Return what a program prints that finds `autoscaler` on the PATH."""
    path = f"{PROGRAM.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **variables}
    return subprocess.run(
        program, env=environment, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["autoscaler", "quar"], ["quarantine"]),
        (["autoscaler", "images", "p"], ["publish", "prune"]),
        (["autoscaler", "machines", "--st"], ["--state"]),
        (["autoscaler", "serve", "--log-level", "w"], ["warning"]),
    ],
)
def test_bash_completes_commands_options_and_values(words: list[str], expected: list[str]) -> None:
    """A real bash evaluates the script, and calls it as it does for the tabulator key."""
    script = (
        'eval "$(_AUTOSCALER_COMPLETE=source_bash autoscaler)"; complete -p autoscaler >&2\n'
        'COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _autoscaler_completion autoscaler; echo ${COMPREPLY[@]}'
    )
    assert completed(["bash", "-c", script, "-", *words]).split() == expected


def test_zsh_and_fish_get_a_script_and_answers() -> None:
    """Not in these shells themselves, which a host may lack."""
    arguments = {"_TYPER_COMPLETE_ARGS": "autoscaler images p"}
    zsh = completed(["autoscaler"], _AUTOSCALER_COMPLETE="source_zsh")
    assert "\ncompdef _autoscaler_completion autoscaler\n" in zsh
    said = completed(["autoscaler"], _AUTOSCALER_COMPLETE="complete_zsh", **arguments)
    assert ['"publish":' in said, '"prune":' in said, '"build":' in said] == [True, True, False]
    fish = completed(["autoscaler"], _AUTOSCALER_COMPLETE="source_fish")
    assert fish.startswith("complete --command autoscaler ")
    action = {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    found = completed(["autoscaler"], _AUTOSCALER_COMPLETE="complete_fish", **arguments, **action)
    assert sorted(line.split("\t")[0] for line in found.splitlines()) == ["prune", "publish"]
