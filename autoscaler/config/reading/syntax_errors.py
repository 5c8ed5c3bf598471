"""Says where a text that is not YAML is wrong, and what to write.

The parser (libyaml) reports where it could not go on; the mistake is often above. Its words are those of
src/scanner.c and src/parser.c there.
"""

import re

import yaml

TEMPLATE = (
    "has braces where a key belongs",
    "if this is a template, write the values themselves: neither ${...} nor {{...}} is expanded",
)
"""The error and the fix for `${NAME}` and `{{ name }}` without quotes."""

_WITHOUT_SPACE = re.compile(r"\s*(- )?[A-Za-z_][\w.-]*:[^\s/].*")
_QUOTES = "put the value in quotes"


def not_yaml(error: yaml.MarkedYAMLError, text: str, line: int) -> tuple[int, str, str]:
    """Return the line of the mistake, the error and the fix for a text that the parser refuses.

    YAML indents with spaces alone (YAML 1.2.2, 6.1), and reserves @ and ` (5.3). `line` is the parser's.
    """
    context, start = error.context or "", error.context_mark
    lines = text.split("\n")
    here = lines[line - 1] if line <= len(lines) else ""
    begin = start.line + 1 if start is not None else line
    if "\t" in here[: len(here) - len(here.lstrip())]:
        return line, "is indented with a tab", "indent with spaces: YAML does not allow tabs there"
    if "${" in here or "{{" in here:
        return line, *TEMPLATE
    mark = error.problem_mark
    first = here[mark.column : mark.column + 1] if mark is not None else ""
    if first and first in "@`%":
        return line, f"has a value that begins with {first}", _QUOTES
    if context.startswith(("while scanning an alias", "while scanning an anchor")):
        sign = "*" if "alias" in context else "&"
        return line, f"has a value that begins with {sign}", _QUOTES
    if context.startswith("while scanning a quoted scalar"):
        return begin, "has a quote that is not closed", "close it on the same line"
    if context.startswith("while parsing a flow"):
        what = f"has no comma or closing bracket where one belongs, for what begins on line {begin}"
        return line, what, "close the bracket or brace there, or add the comma"
    if error.problem == "mapping values are not allowed in this context":
        return _second_value(lines, line)
    if error.problem in ("did not find expected key", "did not find expected '-' indicator"):
        what = "is indented otherwise than the lines to which it belongs"
        return (
            line,
            what,
            f"indent it like the line {begin}, or more if it belongs below the line above",
        )
    what = f"is not YAML: {error.problem or 'unreadable'}"
    return line, what, "look at indentation, quotes and brackets here and just above"


def _second_value(lines: list[str], line: int) -> tuple[int, str, str]:
    above = next((at for at in range(line - 1, 0, -1) if lines[at - 1].strip()), line)
    if _WITHOUT_SPACE.fullmatch(lines[above - 1]):
        return above, "has no space after the colon", "write one: `key: value`"
    what = "has a value where none belongs: a second colon, or more indentation than the line above"
    return line, what, "put a value with `: ` in quotes, or indent the line like the one above"
