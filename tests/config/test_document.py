"""YAML files that cannot be read, and the limits of size, depth and expansion."""

import pytest

from autoscaler.config import ConfigurationError, load
from autoscaler.config.reading.document import MAX_BYTES, MAX_DEPTH, parse
from autoscaler.providers.registry import provider_kinds
from tests.config.fleet_file import MINIMAL, Folder

BILLION_LAUGHS = b"a: &a [x, x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"%c: &%c [*%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c]\n"
    % (ord("b") + level, ord("b") + level, *[ord("a") + level] * 10)
    for level in range(9)
)

DEEP_BY_ALIAS = b"".join(
    b"k%d: &k%d [%s]\n" % (level, level, b"*k%d" % (level - 1) if level else b"x")
    for level in range(MAX_DEPTH + 1)
)

UNREADABLE = [
    (b"", 1, "is empty"),
    (b"# nothing\n", 1, "is empty"),
    (b"a: 1\nb: [1, 2\nc: 3\n", 3, "no comma or closing bracket"),
    (b"a:\n\t- 1\n", 2, "is indented with a tab"),
    (b"a: 1\nb: \x00\n", 2, "control character"),
    (b"a: 1\nb: \xff\xfe\n", 2, "is not UTF-8"),
    (b'a: "\\uD800"\n', 1, "is not YAML"),
    (b'a: "\\UFFFFFFFF"\n', 1, "is not YAML"),
    (b"a: 1\n---\nb: 2\n", 2, "second document"),
    (b"a: !!python/object/apply:os.system [x]\n", 1, "tag"),
    (b"a: !!int 12\n", 1, "tag"),
    (b"a: &x [*x]\n", 1, "has no anchor above it"),
    (b"a: *gone\n", 1, "has no anchor"),
    (b"? [a]\n: 1\n", 1, "has a key that is not plain text"),
    (b"a: &a {b: 1}\nc:\n  <<: *a\n", 3, "merge keys"),
    (b"[" * 40 + b"]" * 40, 1, "nested deeper"),
    (DEEP_BY_ALIAS, MAX_DEPTH, "nested deeper"),
    (BILLION_LAUGHS, 6, "values after aliases are expanded"),
    (b"a" * (MAX_BYTES + 1), 1, "larger than 1024 KiB"),
]


@pytest.mark.case(
    "a repeated key; tags, merge keys, a second document",
    topic="Operators' files",
    source="YAML 1.2.2",
)
@pytest.mark.parametrize(
    ("content", "line", "what"), UNREADABLE, ids=[row[2] for row in UNREADABLE]
)
def test_an_unreadable_yaml_file_is_refused(content: bytes, line: int, what: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(content, "fleet.yaml")
    (problem,) = caught.value.problems
    assert what in problem.what
    assert problem.line == line
    assert problem.fix


@pytest.mark.parametrize(
    "text",
    [
        "PASSWORD",
        "root:PASSWORD:1:2\nabc\n",
        "root:PASSWORD:1:2:::\n",
        "PASSWORD: 1",
        "a: *PASSWORD",
        "a: !PASSWORD b",
        "- !PASSWORD b",
        "@PASSWORD",
        "'PASSWORD",
        "a: [PASSWORD",
        "-----BEGIN KEY-----\nPASSWORD\n-----END KEY-----\n",
    ],
)
def test_a_link_to_a_file_of_secrets_shows_nothing_of_it(folder: Folder, text: str) -> None:
    elsewhere = folder.path / "elsewhere"
    elsewhere.write_text(text)
    (folder.path / "fleet.yaml").unlink(missing_ok=True)
    (folder.path / "fleet.yaml").symlink_to(elsewhere)
    with pytest.raises(ConfigurationError) as raised:
        load(folder.path / "fleet.yaml", provider_kinds())
    assert "PASSWORD" not in str(raised.value)


def test_a_file_whose_root_is_not_a_mapping_is_refused(folder: Folder) -> None:
    problem = folder.problem("- a\n- b\n")
    assert (problem.line, problem.key) == (1, "")
    assert str(problem) == (
        f"{folder.path / 'fleet.yaml'}:1: a list is not a mapping; "
        "fix: write `key: value` lines below it"
    )


def test_a_missing_file_is_reported(folder: Folder) -> None:
    with pytest.raises(ConfigurationError, match=r"gone\.yaml: cannot be read: No such file"):
        load(folder.path / "gone.yaml", provider_kinds())
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory"):
        load(folder.path, provider_kinds())


@pytest.mark.case(
    "`on`, `no` and `yes` are text",
    topic="Operators' files",
    source="YAML 1.2.2",
)
def test_scalars_are_those_of_yaml_1_2() -> None:
    content = (
        b"on: [on, yes, NO, true, False, null, ~, 12, -3, 1.5, 1e3, 0x1F, 1:30, '7', 2026-11-21]"
    )
    found = parse(content, "f").content["on"]
    texts = ["on", "yes", "NO", "0x1F", "1:30", "7", "2026-11-21"]
    assert [value for value in found if isinstance(value, str)] == texts
    assert [value for value in found if not isinstance(value, str)] == [
        *(True, False, None, None, 12, -3, 1.5, 1000.0)
    ]


def test_a_number_that_is_too_long_is_text() -> None:
    assert parse(b"a: " + b"9" * 5000, "f").content == {"a": "9" * 5000}


@pytest.mark.case(
    "a repeated key; tags, merge keys, a second document",
    topic="Operators' files",
    source="YAML 1.2.2",
)
def test_every_duplicate_key_is_reported_with_both_lines() -> None:
    document = parse(b"a:\n  - b: 1\n    b: 2\n  - {c: 1, c: 2}\na: 3\n", "f")
    assert [(problem.line, problem.key) for problem in document.problems] == [
        (3, "a[0].b"),
        (4, "a[1].c"),
        (5, "a"),
    ]
    assert document.content == {"a": [{"b": 1}, {"c": 1}]}


def test_odd_names_are_quoted_and_escaped_in_keys(folder: Folder) -> None:
    text = MINIMAL.replace("  gpu:\n", '  "g\\e[31m":\n')
    problem = folder.problem(text)
    assert "\x1b" not in str(problem)
    assert problem.key == 'skus."g\\u001b[31m"'
