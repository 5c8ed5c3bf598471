"""Reads the steps of the README, so that the tests type what a newcomer reads."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MOST_STEPS = 12
"""Of one way to a first fleet, with the installation of the program."""

_STEP = re.compile(r"^\*\*(\d+)\. ", re.MULTILINE)
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Step:
    """One numbered step. `text` is all of it, in Markdown."""

    text: str

    @property
    def title(self) -> str:
        """The words in bold."""
        found = re.search(r"\*\*(.+?)\*\*", self.text, re.DOTALL)
        assert found is not None, self.text
        return " ".join(found[1].split())

    @property
    def commands(self) -> list[str]:
        """Return the commands, each in one line."""
        lines = [text for kind, text in _BLOCK.findall(self.text) if kind == "sh"]
        return "".join(lines).replace("\\\n", "").splitlines()

    @property
    def workflow(self) -> str:
        """Return the workflow, which is empty if the step has none."""
        return "".join(text for kind, text in _BLOCK.findall(self.text) if kind == "yaml")


def steps(heading: str) -> list[Step]:
    """Return the steps below a heading, such as `### On EC2`."""
    [section] = re.findall(
        rf"^{re.escape(heading)}\n(.*?)(?=^##)", README, re.MULTILINE | re.DOTALL
    )
    starts = [one.start() for one in _STEP.finditer(section)]
    ends = [*starts[1:], len(section)]
    found = [Step(section[start:end]) for start, end in zip(starts, ends, strict=True)]
    numbers = [int(_STEP.match(one.text)[1]) for one in found]  # type: ignore[index]
    assert numbers == list(range(1, len(found) + 1)), numbers
    return found


def quoted(pattern: str) -> str:
    """Return the one text in backticks that begins as the pattern says, in one line."""
    [found] = re.findall(rf"`({pattern}[^`]*)`", README)
    return " ".join(found.split())
