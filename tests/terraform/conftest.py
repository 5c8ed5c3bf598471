"""The parts of Terraform on this host, a copy of `terraform/`, and a moto."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.ec2.moto import MotoProcess
from lab.terraform.commands import copied
from lab.terraform.parts import Parts, find


@pytest.fixture(scope="session")
def parts() -> Parts:
    return find()


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(tmp_path_factory.mktemp("terraform"))


@pytest.fixture(scope="session")
def moto() -> Iterator[MotoProcess]:
    process = MotoProcess()
    process.start()
    yield process
    process.close()
