"""Turns off logging in the chaos tests."""

from collections.abc import Iterator

import pytest
import structlog

from tests.chaos.campaign import quiet


@pytest.fixture(autouse=True)
def no_logging() -> Iterator[None]:
    quiet()
    yield
    structlog.reset_defaults()
