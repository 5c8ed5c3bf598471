"""The exact messages for a file with more than a dozen errors."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from autoscaler.app.preflight import load_for_service
from autoscaler.config import ConfigurationError, settings_type
from autoscaler.config.problems import nearest
from autoscaler.config.settings.sections import keys, section_in
from autoscaler.config.settings.shapes import Section
from autoscaler.providers.registry import provider_kinds
from tests.config.fleet_file import Folder

SETTINGS = settings_type(provider_kinds())
DATA = Path(__file__).parent / "data"


@pytest.mark.case(
    "unknown keys, wrong types, missing files: all reported at once, each with file, line, key "
    "and fix",
    topic="Operators' files",
    source="YAML 1.2.2",
)
def test_all_errors_of_a_file_are_reported_at_once(folder: Folder) -> None:
    file = folder.path / "fleet.yaml"
    file.write_text((DATA / "errors.yaml").read_text())
    with pytest.raises(ConfigurationError) as caught:
        load_for_service(file)
    said = str(caught.value).replace(f"{folder.path}/", "").replace(str(folder.path), "FOLDER")
    assert said.splitlines() == (DATA / "errors.txt").read_text().splitlines()
    assert len(caught.value.problems) > 12


def sections(of: type[Section]) -> Iterator[type[Section]]:
    """A section and all below it."""
    yield of
    for field in keys(of).values():
        inner = section_in(field.annotation)
        if inner is not None:
            yield from sections(inner)


@pytest.mark.case(
    "a misspelt key",
    topic="Operators' files",
    source="YAML 1.2.2",
)
@pytest.mark.parametrize(
    "section",
    sorted(set(sections(SETTINGS)), key=str),
    ids=str,
)
def test_a_misspelt_key_is_reported_with_the_right_one(section: type[Section]) -> None:
    for key in keys(section):
        dropped, swapped = key[:2] + key[3:], key[:-2] + key[:-3:-1]
        for misspelt in (dropped, swapped) if len(key) > 3 else ():
            if misspelt not in keys(section):
                assert nearest(misspelt, keys(section)) == key, misspelt


def test_the_golden_errors_cover_every_kind_of_mistake() -> None:
    said = (DATA / "errors.txt").read_text()
    for what in (
        "unknown key; fix: did you mean private_key_file?",
        "does not exist",
        "is repeated; the first one is on line 17",
        "instance type g5.xlrage is not known; fix: did you mean g5.xlarge?",
        "labels are case-insensitive",
        "is not a whole number",
        "is empty; fix: write at least one",
    ):
        assert what in said
