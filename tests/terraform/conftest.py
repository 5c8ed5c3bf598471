"""The parts of Terraform on this host, and a copy of `terraform/`."""

from pathlib import Path

import pytest

from lab.terraform.commands import copied
from lab.terraform.parts import Parts, find


@pytest.fixture(scope="session")
def parts() -> Parts:
    return find()


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(tmp_path_factory.mktemp("terraform"))
