"""The rules come last: they take seconds, and what is plainly wrong shows sooner elsewhere."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name == "test_rules.py")
