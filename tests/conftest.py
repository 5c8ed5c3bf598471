"""In which order tests run, and how Hypothesis looks for mutants' mistakes."""

import pytest
from hypothesis import Phase, settings

# For `make mutants`: that an example fails is enough, and the smallest one takes minutes to find.
settings.register_profile(
    "mutants", settings.get_profile("ci"), phases=(Phase.explicit, Phase.generate)
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The rules come last: they take seconds, and what is plainly wrong shows sooner elsewhere."""
    items.sort(key=lambda item: item.path.name == "test_rules.py")
