"""The folder that most of these tests write their fleet.yaml to."""

from pathlib import Path

import pytest

from tests.config.fleet_file import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)
