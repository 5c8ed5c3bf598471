"""What a screen reader gets of each page, read from the HTML alone."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

import pytest

from tests.server.test_console import PAGES, Reader
from tests.server.test_console import reader as reader

VOID = {"br", "circle", "hr", "img", "input", "link", "meta"}
"""Elements without an end tag."""


@dataclass
class Element:
    """One element. `text` is the text of all that is in it."""

    tag: str
    attributes: dict[str, str]
    parent: "Element | None" = None
    text: str = ""
    children: list["Element"] = field(default_factory=list)

    def __iter__(self) -> Iterator["Element"]:
        """Yield the elements below this one, in the order of the page."""
        for child in self.children:
            yield child
            yield from child

    def all(self, *tags: str) -> list["Element"]:
        return [one for one in self if one.tag in tags]

    def has(self, **attributes: str) -> bool:
        return all(self.attributes.get(name) == value for name, value in attributes.items())


class Page(HTMLParser):
    """Parses a page. `root` has its elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.root = self._in = Element("", {})
        self.feed(text)
        self.close()
        assert self._in is self.root, f"<{self._in.tag}> has no end"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs}, self._in)
        self._in.children.append(element)
        if tag not in VOID:
            self._in = element

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in.children.append(
            Element(tag, {name: value or "" for name, value in attrs}, self._in)
        )

    def handle_endtag(self, tag: str) -> None:
        assert self._in.tag == tag, f"</{tag}> ends <{self._in.tag}>"
        assert self._in.parent is not None
        self._in = self._in.parent

    def handle_data(self, data: str) -> None:
        one: Element | None = self._in
        while one is not None:
            one.text += data
            one = one.parent


def problems(text: str) -> list[str]:
    """Return what a screen reader would miss."""
    root = Page(text).root
    return [*_of_page(root), *_of_tables(root), *_of_names(root)]


def _of_page(root: Element) -> Iterator[str]:
    if not root.all("html")[0].attributes.get("lang"):
        yield "the page has no language"
    if not root.all("title")[0].text.strip():
        yield "the page has no title"
    for tag in ("h1", "main"):
        if len(root.all(tag)) != 1:
            yield f"the page has {len(root.all(tag))} {tag}"
    levels = [int(one.tag[1]) for one in root.all("h1", "h2", "h3", "h4")]
    for before, after in zip([0, *levels], levels, strict=False):
        if after > before + 1:
            yield f"h{after} follows h{before}"
    for name, count in Counter(one.attributes.get("id") for one in root).items():
        if name is not None and count > 1:
            yield f"{count} elements have the id {name}"


def _of_tables(root: Element) -> Iterator[str]:
    for table in root.all("table"):
        if not table.all("thead"):
            yield "a table has no head"
        columns = len(table.all("tr")[0].children)
        for row in table.all("tr"):
            if len(row.children) != columns:
                yield f"a row has {len(row.children)} cells and the table {columns} columns"
        for head in table.all("th"):
            if head.attributes.get("scope") not in {"col", "row"}:
                yield f"the heading {head.text.strip()} has no scope"
            if not head.text.strip():
                yield "a heading of a table is empty"


def _of_names(root: Element) -> Iterator[str]:
    ids = {one.attributes.get("id"): one for one in root}
    labels = {one.attributes.get("for") for one in root.all("label") if one.text.strip()}
    for one in root:
        name = one.attributes.get("aria-label", "").strip() or one.text.strip()
        described = f"<{one.tag} {one.attributes}>"
        match one.tag:
            case "svg":
                if not one.has(**{"aria-hidden": "true"}) and not (one.has(role="img") and name):
                    yield f"{described} has no text and is not hidden"
            case "input" | "select" | "textarea":
                if not one.has(type="hidden") and one.attributes.get("id") not in labels:
                    yield f"{described} has no label"
            case "a" | "button" | "summary":
                if not name:
                    yield f"{described} has no name"
            case "nav" | "section":
                labelled = ids.get(one.attributes.get("aria-labelledby"))
                if labelled is None and not one.attributes.get("aria-label"):
                    yield f"{described} has no label"


@pytest.mark.parametrize("path", [*PAGES, "/jobs/99", "/skus/nothing"])
async def test_a_screen_reader_gets_all_of_a_page(reader: Reader, path: str) -> None:
    await reader.sign_in()
    _, text = await reader.get(path)
    assert problems(text) == []


async def test_a_screen_reader_gets_all_of_the_pages_before_the_sign_in(reader: Reader) -> None:
    for path, headers in (("/", {}), ("/jobs/1", {"Sec-Fetch-Site": "cross-site"})):
        _, text = await reader.get(path, headers)
        assert problems(text) == []


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ("<svg></svg>", "has no text and is not hidden"),
        ('<svg role="img"></svg>', "has no text and is not hidden"),
        ("<table><thead><tr><th>a</th></tr></thead></table>", "the heading a has no scope"),
        ("<table><tr><td>a</td></tr></table>", "a table has no head"),
        ('<label for="other">a</label><input id="one">', "has no label"),
        ('<label for="one"></label><input id="one">', "has no label"),
        ('<a href="/"><svg aria-hidden="true"></svg></a>', "has no name"),
        ('<section aria-labelledby="none"><p>a</p></section>', "has no label"),
        ("<h1>b</h1>", "the page has 2 h1"),
        ("<h3>b</h3>", "h3 follows h1"),
        ('<p id="a"></p><p id="a"></p>', "2 elements have the id a"),
    ],
)
def test_a_page_without_it_is_found(part: str, problem: str) -> None:
    page = '<html lang="en"><title>a</title><main><h1>a</h1>{}</main></html>'
    assert problems(page.format("")) == []
    found = problems(page.format(part))
    assert any(problem in one for one in found), found


def test_a_page_without_a_language_or_title_is_found() -> None:
    page = "<html><title></title><main><h1>a</h1></main></html>"
    assert problems(page) == ["the page has no language", "the page has no title"]
