"""The cases that tests show: reads their `case` markers and writes the tables of docs/cases.md.

    python -m tests.cases                                            (a part of `make pages`)

A test that shows how this project copes with something that GitHub, EC2, a machine, an operator or an
attacker does has this marker above it, once for each case:

    @pytest.mark.case("`queued` twice", topic="GitHub's events", source="ARC#836; RFC 8259, 7")

`source` has one or more names, separated by `; `. Each is `REPOSITORY#NUMBER` for an issue or a pull request at
GitHub, or a name that docs/cases.md defines at its end. `param="..."` names the parameter of a parametrized
test that shows the case. Tests of one case repeat its text, and their sources are joined.

The files are parsed, not imported, so every argument is a literal.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "cases.md"
BEGIN = "<!-- Written by `make pages` from the tests' markers. -->\n"
END = "<!-- End of what `make pages` writes. -->\n"
MARKER = "pytest.mark.case"

TOPICS = (
    "GitHub's events",
    "GitHub's REST API",
    "Runner and listener",
    "EC2's API",
    "EC2's machines",
    "Kubernetes",
    "Images and disks",
    "Accelerators",
    "Operators' files",
    "Hostile input",
    "Complaints about other fleets",
)
"""The headings of the page, in order."""

REPOSITORIES = {
    "amazonica": "mcohen01/amazonica",
    "ARC": "actions/actions-runner-controller",
    "aws-sdk-java-v2": "aws/aws-sdk-java-v2",
    "aws-sdk-js": "aws/aws-sdk-js",
    "cdk-github-runners": "CloudSnorkel/cdk-github-runners",
    "GAR": "github-aws-runners/terraform-aws-github-runner",
    "GARM": "cloudbase/garm",
    "Karpenter": "aws/karpenter-provider-aws",
    "packer": "hashicorp/packer",
    "pytorch": "pytorch/pytorch",
    "runs-on": "runs-on/runs-on",
    "ubicloud": "ubicloud/ubicloud",
}
"""By short name: the repository at GitHub. Other repositories are named in full."""

ISSUE = re.compile(r"([\w.-]+(?:/[\w.-]+)?)#(\d+)")
DEFINITION = re.compile(r"^\[([^\]]+)\]: (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Shown:
    """One marker: a case, and the test that shows it."""

    case: str
    topic: str
    sources: tuple[str, ...]
    test: str


class WrongMarkerError(Exception):
    """A marker that cannot be read. The message names the file and the line."""


def markers(path: str, text: str) -> Iterator[Shown]:
    """Return the markers of a test file. Raises: WrongMarkerError."""
    if MARKER not in text:
        return
    tree = ast.parse(text)
    machines = {
        node.value.value.id: node.targets[0].id
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Attribute)
        and isinstance(node.value.value, ast.Name)
        and node.value.attr == "TestCase"
    }
    """By state machine: the test that hypothesis makes of it."""
    read = 0
    for name, decorator in _decorators(tree.body, machines):
        read += 1
        yield _shown(f"{path}::{name}", f"{path}:{decorator.lineno}", decorator)
    if read != sum(isinstance(node, ast.expr) and _is_marker(node) for node in ast.walk(tree)):
        raise WrongMarkerError(f"{path}: {MARKER} may only stand directly above a test")


def _decorators(body: list[ast.stmt], machines: dict[str, str]) -> Iterator[tuple[str, ast.Call]]:
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        name = machines.get(node.name, node.name)
        if not name.startswith(("test_", "Test")):
            continue
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and _is_marker(decorator.func):
                yield name, decorator
        if isinstance(node, ast.ClassDef):
            for inner, decorator in _decorators(node.body, {}):
                yield f"{name}::{inner}", decorator


def _is_marker(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "case" and ast.unparse(node) == MARKER


def _shown(test: str, where: str, call: ast.Call) -> Shown:
    try:
        (case,) = (ast.literal_eval(one) for one in call.args)
        named = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
        topic, source, param = named.pop("topic"), named.pop("source"), named.pop("param", None)
    except (KeyError, ValueError) as error:
        wanted = "one text, topic=, source= and perhaps param=, all of them literals"
        raise WrongMarkerError(f"{where}: {MARKER} takes {wanted}") from error
    if named:
        raise WrongMarkerError(f"{where}: unknown argument {', '.join(named)}")
    if topic not in TOPICS:
        raise WrongMarkerError(f"{where}: unknown topic {topic!r}; tests/cases.py lists the topics")
    suffix = f"[{param}]" if param is not None else ""
    return Shown(case, topic, tuple(source.split("; ")), test + suffix)


@cache
def every_marker() -> tuple[Shown, ...]:
    """Return the markers of all tests. Raises: WrongMarkerError."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return tuple(
        shown for file in files for shown in markers(str(file.relative_to(ROOT)), file.read_text())
    )


def definitions(page: str) -> dict[str, str]:
    """Return the addresses that a page defines, by name."""
    return dict(DEFINITION.findall(page))


def link(source: str, page: str) -> str:
    """Return a source as a link for this page. Raises: KeyError if the page does not define it."""
    if source in definitions(page):
        return f"[{source}]"
    if issue := ISSUE.fullmatch(source):
        name, number = issue.groups()
        repository = name if "/" in name else REPOSITORIES[name]
        # GitHub redirects from an issue to the pull request of the same number.
        return f"[{source}](https://github.com/{repository}/issues/{number})"
    raise KeyError(source)


def tables(found: tuple[Shown, ...], page: str) -> str:
    """Return the tables of all cases, in markdown. Raises: KeyError for an undefined source."""
    cases: dict[tuple[str, str], list[Shown]] = defaultdict(list)
    for shown in found:
        cases[shown.topic, shown.case].append(shown)
    rows: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for (topic, case), those in cases.items():
        sources = dict.fromkeys(source for shown in those for source in shown.sources)
        links = ", ".join(link(source, page) for source in sources)
        tests = ", ".join(f"`{test}`" for test in dict.fromkeys(shown.test for shown in those))
        order = f"{min(sources, key=str.casefold)} {case}".casefold()
        rows[topic].append((order, f"| {case} | {links} | {tests} |\n"))
    head = "| case | source | shown by |\n|---|---|---|\n"
    return "\n".join(
        f"## {topic}\n\n{head}{''.join(row for _, row in sorted(rows[topic]))}"
        for topic in TOPICS
        if rows[topic]
    )


def written(page: str, tables: str) -> str:
    """Return the page with these tables in the place of those that it has."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables}\n{END}{after}"


if __name__ == "__main__":
    text = PAGE.read_text()
    PAGE.write_text(written(text, tables(every_marker(), text)))
