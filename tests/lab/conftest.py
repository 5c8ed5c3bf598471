"""One moto process for all laboratories: each has an account of its own in it."""

from collections.abc import Iterator

import pytest

from lab.ec2.moto import MotoProcess


@pytest.fixture(scope="session")
def moto() -> Iterator[MotoProcess]:
    process = MotoProcess()
    process.start()
    yield process
    process.close()
