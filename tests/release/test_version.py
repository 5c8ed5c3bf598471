"""A tag becomes a release only if every file has its version, and the changelog says what is new."""

import shutil
import tomllib
from pathlib import Path

import pytest

from scripts.release import CHART, ROOT, ReleaseError, notes, version

CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-11-29\n\n### Added\n\n- A thing.\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    (tmp_path / "uv.lock").write_text(
        '[[package]]\nname = "gpu-runner-autoscaler"\nversion = "1.2.3"\n'
    )
    (tmp_path / CHART).mkdir(parents=True)
    (tmp_path / CHART / "Chart.yaml").write_text("version: 1.2.3\nappVersion: 1.2.3\n")
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    return tmp_path


def test_this_project_has_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert version(ROOT) == project["version"]


def test_a_tag_of_the_version_is_released(project: Path) -> None:
    assert version(project, "v1.2.3") == "1.2.3"
    assert notes(project, "1.2.3") == "### Added\n\n- A thing."


@pytest.mark.parametrize(
    ("file", "old", "new", "named"),
    [
        ("pyproject.toml", "1.2.3", "1.2.4", "pyproject.toml: version: 1.2.4"),
        ("uv.lock", "1.2.3", "1.2.4", "uv.lock: version: 1.2.4"),
        (f"{CHART}/Chart.yaml", "version: 1.2.3", "version: 1.2.4", "Chart.yaml: version: 1.2.4"),
        (f"{CHART}/Chart.yaml", "appVersion: 1.2.3", "appVersion: 2", "appVersion: 2"),
        ("CHANGELOG.md", "[1.2.3] - 2026-11-29", "[1.2.3]", "no section of this version"),
        ("CHANGELOG.md", "[1.2.3]", "[1.2.4]", "no section of this version"),
        ("CHANGELOG.md", "[Unreleased]\n", "[Unreleased]\n\n- Late.\n", "[Unreleased] has entries"),
    ],
)
def test_a_file_that_disagrees_is_named(
    project: Path, file: str, old: str, new: str, named: str
) -> None:
    text = (project / file).read_text()
    assert old in text
    (project / file).write_text(text.replace(old, new, 1))
    with pytest.raises(ReleaseError) as raised:
        version(project, "v1.2.3")
    assert named in str(raised.value)


@pytest.mark.parametrize("tag", ["v1.2.4", "1.2.3", "v1.2.3-rc1"])
def test_another_tag_is_refused(project: Path, tag: str) -> None:
    with pytest.raises(ReleaseError):
        version(project, tag)


def test_without_a_tag_the_changelog_may_have_entries_that_are_not_released(project: Path) -> None:
    shutil.copy(ROOT / "CHANGELOG.md", project / "CHANGELOG.md")
    assert version(project) == "1.2.3"
