"""What the tests of the command line share: a whole configuration, and a run in this process."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from autoscaler.cli import commands
from tests.config.fleet_file import EXAMPLE, Folder

SCALE_CONFIG = Path(__file__).parent / "config" / "data" / "scale-config.yml"


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The example with every file that it names."""
    file = Folder(tmp_path).path / "fleet.yaml"
    file.write_text(EXAMPLE.read_text())
    return file


def run(*arguments: str | Path) -> Result:
    """Run one command in this process, with a wide terminal."""
    return CliRunner(env={"COLUMNS": "200"}).invoke(commands, [str(part) for part in arguments])


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
