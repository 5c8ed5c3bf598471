"""Any file is either accepted or refused with problems; no other exception is raised."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.config import ConfigurationError, Problem, load
from autoscaler.config.reading.document import parse
from autoscaler.providers.registry import provider_kinds
from tests.config.fleet_file import EXAMPLE

WORDS = [
    "fleet",
    "github",
    "skus",
    "on",
    "provider",
    "us-east-1",
    "10m",
    "*",
    "[",
    "acme/*",
    "\x7f",
]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False),
    st.sampled_from(WORDS),
    st.text(max_size=20),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.sampled_from(WORDS), st.text(max_size=8)), inner, max_size=3),
    ),
    max_leaves=8,
)
EXAMPLE_DATA = parse(EXAMPLE.read_bytes(), "fleet.yaml").content


def problems_of(folder: Path, content: bytes) -> tuple[Problem, ...]:
    """Return the problems of a file, or nothing if it was accepted."""
    file = folder / "fleet.yaml"
    file.write_bytes(content)
    try:
        load(file, provider_kinds(), files=False)
    except ConfigurationError as error:
        return error.problems
    return ()


def is_whole(problem: Problem) -> bool:
    """Return True if a problem has a place, a message and a fix, each on one line."""
    said = problem.what and problem.fix and problem.fix != "see docs/configuration.md"
    return bool(said) and problem.line >= 1 and str(problem).isprintable()


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values below one."""
    children: list[tuple[Any, Any]] = []
    if isinstance(value, dict | list):
        children = list(value.items() if isinstance(value, dict) else enumerate(value))
    below = [place for key, child in children for place in places(child, (*path, key))]
    return [path, *below] if path else below


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy of `value` with another value at `path`."""
    if not path:
        return new
    if isinstance(value, dict):
        return {
            key: replaced(v, path[1:], new) if key == path[0] else v for key, v in value.items()
        }
    return [replaced(v, path[1:], new) if i == path[0] else v for i, v in enumerate(value)]


@pytest.mark.case(
    "random bytes and random values for a configuration",
    topic="Operators' files",
    source="YAML 1.2.2",
)
@settings(max_examples=200, deadline=None)
@given(content=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_random_bytes_are_accepted_or_refused_with_problems(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    problems = problems_of(tmp_path_factory.getbasetemp(), content)
    assert problems
    assert all(map(is_whole, problems))


@pytest.mark.case(
    "random bytes and random values for a configuration",
    topic="Operators' files",
    source="YAML 1.2.2",
)
@settings(max_examples=200, deadline=None)
@given(value=VALUES)
def test_random_values_are_accepted_or_refused_with_problems(
    tmp_path_factory: pytest.TempPathFactory, value: Any
) -> None:
    problems = problems_of(tmp_path_factory.getbasetemp(), yaml.safe_dump(value).encode())
    assert problems
    assert all(map(is_whole, problems))


@settings(max_examples=300, deadline=None)
@given(path=st.sampled_from(places(EXAMPLE_DATA)), value=VALUES)
def test_the_example_with_one_random_value_is_accepted_or_refused_with_problems(
    tmp_path_factory: pytest.TempPathFactory, path: tuple[Any, ...], value: Any
) -> None:
    content = yaml.safe_dump(replaced(EXAMPLE_DATA, path, value)).encode()
    assert all(map(is_whole, problems_of(tmp_path_factory.getbasetemp(), content)))


def test_the_example_has_no_problems(tmp_path: Path) -> None:
    assert problems_of(tmp_path, yaml.safe_dump(EXAMPLE_DATA).encode()) == ()
