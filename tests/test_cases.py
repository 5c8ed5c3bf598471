"""docs/cases.md matches the markers of the tests, and each case has a public source."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests import cases
from tests.cases import Shown, WrongMarkerError, markers

ROOT = Path(__file__).parents[1]
PAGE = cases.PAGE.read_text()
LINK = re.compile(r"\[[^\]]+\](?:\(|: )([^)\s]+)")
ROUTES = {"/api/v3", "/rate_limit"}
"""The only words of the page that may begin with a slash."""


@cache
def texts_beside(path: str) -> str:
    """The text of a file and of those in its folder, where its parameters' ids are spelled."""
    return "\n".join(file.read_text() for file in sorted((ROOT / path).parent.glob("*.py")))


def cases_without_test(page: str) -> list[str]:
    """The cases of the table that is written by hand."""
    _, _, written_by_hand = page.partition(cases.END)
    rows = re.findall(r"^\| (.+?) \| (.+?) \|", written_by_hand, re.MULTILINE)
    return [case for case, source in rows if LINK.search(source)]


def faults(found: tuple[Shown, ...], page: str) -> Iterator[str]:
    """Return the mistakes of these markers as messages."""
    twice = [
        shown for shown, count in Counter((s.case, s.test) for s in found).items() if count > 1
    ]
    yield from (f"the same case twice: {test}: {case}" for case, test in twice)
    topics = {(shown.case, shown.topic) for shown in found}
    texts = [*(case for case, _ in topics), *cases_without_test(page)]
    spelled = Counter(re.sub(r"\W+", " ", text).strip().casefold() for text in texts)
    yield from (f"in two spellings or topics: {case}" for case, n in spelled.items() if n > 1)
    for shown in found:
        path, _, name = shown.test.partition("::")
        _, _, parameter = name.rstrip("]").partition("[")
        if parameter and f'"{parameter}"' not in texts_beside(path):
            yield f"{path} has no parameter {parameter!r}"
        for source in shown.sources:
            try:
                cases.link(source, page)
            except KeyError:
                yield f"unknown source {source!r}: {shown.test}"


def test_the_cases_page_matches_the_markers() -> None:
    expected = cases.written(PAGE, cases.tables(cases.every_marker(), PAGE))
    assert expected == PAGE, "run `make pages`"


def test_every_case_has_a_source_and_one_spelling() -> None:
    assert len({shown.case for shown in cases.every_marker()}) > 400
    assert len(cases_without_test(PAGE)) == 2
    assert list(faults(cases.every_marker(), PAGE)) == []


def test_every_defined_source_is_used() -> None:
    used = {source for shown in cases.every_marker() for source in shown.sources}
    assert cases.definitions(PAGE).keys() - used == set()


def test_every_source_is_public() -> None:
    links = [urlsplit(link) for link in LINK.findall(PAGE)]
    assert len(links) > 300
    assert {link.scheme for link in links} == {"https"}
    hosts = {link.hostname or "" for link in links}
    assert [host for host in hosts if not re.fullmatch(r"([a-z0-9-]+\.)+[a-z]{2,}", host)] == []


def test_the_cases_page_names_no_local_path() -> None:
    words = re.findall(r"(?<![\w.:/*`])`?(/\w[\w./-]*)", LINK.sub("", PAGE))
    assert set(words) == ROUTES


def marked(arguments: str, above: str = "def test_it(): ...") -> str:
    return f"import pytest\n\n@pytest.mark.case({arguments})\n{above}\n"


RIGHT = '"a case", topic="Hostile input", source="ARC#1; RFC 1"'
DEFINES = f"{cases.BEGIN}{cases.END}| other | [b](https://b.example) | no |\n\n[RFC 1]: https://a.example\n"


def test_markers_become_a_table() -> None:
    text = marked(RIGHT) + marked(
        '"a case", topic="Hostile input", source="ARC#1", param="x"',
        "@pytest.mark.parametrize('x', ['x'])\nasync def test_more(x): ...",
    )
    text += "class TestAll:\n    @pytest.mark.case('z', topic=\"EC2's API\", source='a/b#2')\n"
    text += "    def test_z(self): ...\n"
    assert cases.tables(tuple(markers("tests/test_a.py", text)), DEFINES) == (
        "## EC2's API\n\n| case | source | shown by |\n|---|---|---|\n"
        "| z | [a/b#2](https://github.com/a/b/issues/2) | `tests/test_a.py::TestAll::test_z` |\n"
        "\n## Hostile input\n\n| case | source | shown by |\n|---|---|---|\n"
        "| a case | [ARC#1](https://github.com/actions/actions-runner-controller/issues/1), [RFC 1] "
        "| `tests/test_a.py::test_it`, `tests/test_a.py::test_more[x]` |\n"
    )


def test_a_marker_on_a_state_machine_belongs_to_its_test() -> None:
    text = marked(RIGHT, "class Machine: ...\n\nTestMachine = Machine.TestCase")
    (shown,) = markers("tests/test_a.py", text)
    assert shown.test == "tests/test_a.py::TestMachine"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (marked('"a", topic="Hostile input"'), "tests/test_a.py:3: .* takes one text, topic="),
        (marked('topic="Hostile input", source="b#1"'), "takes one text"),
        (marked('CASE, topic="Hostile input", source="b#1"'), "all of them literals"),
        (marked('"a", topic="Other", source="b#1"'), "unknown topic 'Other'"),
        (marked(RIGHT + ', by="me"'), "unknown argument by"),
        (
            f"import pytest\n\npytestmark = pytest.mark.case({RIGHT})\n",
            "only stand directly above a test",
        ),
        (marked(RIGHT, "class Other: ..."), "only stand directly above a test"),
        (marked(RIGHT, "def helper(): ..."), "only stand directly above a test"),
    ],
)
def test_a_marker_that_cannot_be_read_is_an_error(text: str, fault: str) -> None:
    with pytest.raises(WrongMarkerError, match=fault):
        list(markers("tests/test_a.py", text))


SHOWN = Shown("a case", "Hostile input", ("ARC#1", "RFC 1"), "tests/test_cases.py::test_it")


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        (Shown("a case", "Hostile input", ("ARC#1",), SHOWN.test), "the same case twice"),
        (Shown("A case!", "Hostile input", ("ARC#1",), "tests/a.py::b"), "in two spellings"),
        (Shown("a case", "EC2's API", ("ARC#1",), "tests/a.py::b"), "in two spellings or topics"),
        (Shown("Other", "EC2's API", ("ARC#1",), "tests/a.py::b"), "in two spellings or topics"),
        (Shown("b", "EC2's API", ("RFC 2",), "tests/a.py::b"), "unknown source 'RFC 2'"),
        (Shown("b", "EC2's API", ("unknown#2",), "tests/a.py::b"), "unknown source 'unknown#2'"),
        (Shown("b", "EC2's API", ("",), "tests/a.py::b"), "unknown source ''"),
        (
            Shown("b", "EC2's API", ("ARC#1",), f"{SHOWN.test}[{'un' + 'known'}]"),
            "has no parameter 'unknown'",
        ),
    ],
)
def test_wrong_markers_are_reported(more: Shown, fault: str) -> None:
    assert list(faults((SHOWN,), DEFINES)) == []
    (found,) = faults((SHOWN, more), DEFINES)
    assert fault in found
