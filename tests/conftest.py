"""The order of tests, objects that the garbage collector skips, and Hypothesis' profile for mutants."""

import gc
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from tests.suites.parts import SYSTEMS

pytest_plugins = ("tests.watchdog.plugin",)

TESTS = Path(__file__).parent

# For `make mutants`: any failing example is enough, and finding the smallest one takes minutes.
settings.register_profile(
    "mutants", settings.get_profile("ci"), phases=(Phase.explicit, Phase.generate)
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of the rules last: they take seconds, and other tests show simple mistakes sooner."""
    items.sort(key=lambda item: item.path.name == "test_rules.py")


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests in the folders of the systems."""
    if any(item.path.is_relative_to(TESTS / folder) for folder in SYSTEMS):
        item.add_marker(pytest.mark.systems)


@pytest.fixture(autouse=True, scope="module")
def freeze_what_was_there_before() -> None:
    """Leave all modules and collected tests out of the garbage collections of this file's tests.

    These are 300,000 objects, and a full collection looks at each. A test may undo this with `gc.unfreeze`.
    """
    gc.collect()
    gc.freeze()
