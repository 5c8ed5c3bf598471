"""Writes the man page and the completion scripts of `autoscaler`, which the wheel installs, from its commands.

    python scripts/shell_files.py

The files are in share/, as a prefix such as /usr/local has them: man(1), bash-completion, zsh and fish find
them there.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.completion import get_completion_script
from typer.main import get_command

from autoscaler.cli import commands

ROOT = Path(__file__).parents[1]
SHARE = ROOT / "share"
COMMAND = "python scripts/shell_files.py"
PROGRAM = "autoscaler"

_COMPLETIONS = {
    "bash": "bash-completion/completions/autoscaler",
    "zsh": "zsh/site-functions/_autoscaler",
    "fish": "fish/vendor_completions.d/autoscaler.fish",
}
_FIRST_CALL = """
# zsh loads this file at the first completion, which must complete, too.
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _autoscaler_completion "$@"
fi
"""


def shell_files() -> dict[str, str]:
    """Return the text of each file by its path in share/."""
    return {"man/man1/autoscaler.1": man_page()} | {
        path: _completion(shell) for shell, path in _COMPLETIONS.items()
    }


def man_page() -> str:
    """Return the page for man(1), in the macros of man(7): each command with its options."""
    # Typer's commands have the methods of click's, and no types of their own.
    root: Any = get_command(commands)
    words = _text(root.help).partition(".")[0]
    lines = [
        '.TH AUTOSCALER 1 "" "gpu\\-runner\\-autoscaler" "User Commands"',
        ".SH NAME",
        f"{PROGRAM} \\- {_escaped(words[0].lower() + words[1:])}",
        ".SH SYNOPSIS",
        f".B {PROGRAM}",
        "COMMAND [OPTIONS]",
        ".SH COMMANDS",
    ]
    for path, command in _leaves(PROGRAM, root):
        lines += _section(path, command)
    return "\n".join(lines) + "\n"


def _leaves(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield each command that is no group, with the words that call it."""
    subcommands = getattr(command, "commands", None)
    if subcommands is None:
        yield path, command
        return
    for name, one in subcommands.items():
        yield from _leaves(f"{path} {name}", one)


def _section(path: str, command: Any) -> Iterator[str]:
    context = command.context_class(command, info_name=path)
    arguments = [_argument(one) for one in command.params if one.param_type_name == "argument"]
    yield f".SS {_escaped(' '.join([path, '[OPTIONS]', *arguments]))}"
    for number, paragraph in enumerate(_text(command.help).split("\n\n")):
        if number:
            yield ".PP"
        yield _escaped(" ".join(paragraph.split()))
    for parameter in command.get_params(context):
        shown = parameter.get_help_record(context)
        if shown is not None:
            yield from (
                ".TP",
                f"\\fB{_escaped(shown[0])}\\fR",
                _escaped(" ".join(shown[1].split())),
            )


def _argument(parameter: Any) -> str:
    """Return an argument as a usage line has it: in brackets if it is optional."""
    name = str(parameter.metavar or parameter.name.upper())
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def _text(help_text: str | None) -> str:
    return inspect.cleandoc(help_text or "")


def _escaped(text: str) -> str:
    """Return a line of text without what roff interprets (groff_char(7), man(7))."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _completion(shell: str) -> str:
    script = get_completion_script(
        prog_name=PROGRAM, complete_var=f"_{PROGRAM.upper()}_COMPLETE", shell=shell
    )
    return script.strip() + "\n" + (_FIRST_CALL if shell == "zsh" else "")


if __name__ == "__main__":
    for name, content in shell_files().items():
        file = SHARE / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
