"""The agent's modules, as one namespace, which they are in the file that machines run."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

MODULES = [
    ".".join(file.with_suffix("").parts)
    for file in sorted(Path("autoscaler/agent").rglob("[a-z]*.py"))
]


class OneNamespace(ModuleType):
    """Every name of the agent's modules. Setting a name sets it in each module that uses it."""

    def __init__(self, modules: list[ModuleType]) -> None:
        super().__init__("runner_agent")
        for module in modules:
            names = {name: value for name, value in vars(module).items() if name[:2] != "__"}
            vars(self).update(names)
        vars(self)["modules_of_the_agent"] = modules

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        for module in vars(self)["modules_of_the_agent"]:
            if name in vars(module):
                setattr(module, name, value)


@pytest.fixture(scope="session")
def agent() -> ModuleType:
    return OneNamespace([import_module(name) for name in MODULES])


@pytest.fixture(autouse=True)
def _python_for_every_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the agent's Python be one that the user of the runner can run, as a machine's is.

    That of a virtual environment below /root is not.
    """
    monkeypatch.setattr("sys.executable", str(Path(sys.executable).resolve()))


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can open. They cannot open those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="runner-agent-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
