"""Each test is in one of the two suites."""

from pathlib import Path

import pytest

from tests.suites.__main__ import main, select
from tests.suites.parts import PARTS, SYSTEMS, Part, Suite

ROOT = Path(__file__).parents[2]
FILES = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py"))


def runs(part: Part, file: str) -> bool:
    """Return True if pytest collects this file for this part."""
    ignored = [one.removeprefix("--ignore=") for one in part.options if one.startswith("--ignore=")]
    return any(is_below(file, path) for path in part.paths) and not any(
        is_below(file, path) for path in ignored
    )


def is_below(file: str, path: str) -> bool:
    return file == path or file.startswith(f"{path}/")


def parts_of(file: str, suite: Suite) -> list[str]:
    """The parts that run a file, but for the one that runs the crowds of the laboratory apart."""
    return [part.name for part in PARTS[suite] if runs(part, file) and part.name != "crowds"]


def test_each_file_of_tests_is_in_one_part_of_a_suite() -> None:
    """Files whose tests are of both suites are in one part of each."""
    wrong = [
        file
        for file in FILES
        if len(parts_of(file, Suite.SYSTEMS)) != 1
        or len(parts_of(file, Suite.EVERYONE)) != int(not is_of_systems(file))
    ]
    assert wrong == []
    assert len(FILES) > 400


def is_of_systems(file: str) -> bool:
    return any(is_below(file, f"tests/{folder}") for folder in SYSTEMS)


def test_a_part_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["everyone", "cor"]) == 2
    assert "there is no part 'cor'; the parts are: contracts, lint, " in capsys.readouterr().err


def test_a_part_is_selected_with_the_part_that_it_needs() -> None:
    assert [part.name for part in select(PARTS[Suite.EVERYONE], ["core"])] == ["core"]
    found = [part.name for part in select(PARTS[Suite.SYSTEMS], ["cluster"])]
    assert found == ["kubernetes-programs", "cluster"]
