"""One line registers a provider: every line leads to a kind, and a wrong one is an error."""

from collections import Counter

import pytest

from autoscaler.config.provider_kind import ProviderKind
from autoscaler.providers.registry import PROVIDERS, provider_kinds


def test_every_registered_line_is_a_kind_with_a_key_of_its_own() -> None:
    kinds = provider_kinds()
    assert len(kinds) == len(PROVIDERS)
    assert all(isinstance(kind, ProviderKind) for kind in kinds)
    assert max(Counter(kind.key for kind in kinds).values()) == 1
    assert "ec2" in {kind.key for kind in kinds}


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("autoscaler.providers.nowhere.kind:Kind", ModuleNotFoundError),
        ("autoscaler.providers.ec2.kind:Ec2Kid", AttributeError),
        ("autoscaler.providers.ec2.settings:Timeouts", TypeError),
    ],
)
def test_a_wrong_line_is_an_error(line: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        provider_kinds((line,))
