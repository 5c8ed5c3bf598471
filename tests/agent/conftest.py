"""The agent, loaded by its path: nothing of ours imports it."""

import importlib.util
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path("autoscaler/agent/agent.py")


@pytest.fixture(scope="session")
def agent() -> ModuleType:
    spec = importlib.util.spec_from_file_location("runner_agent", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may enter: pytest's own are closed to them."""
    folder = Path(tempfile.mkdtemp(prefix="runner-agent-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
