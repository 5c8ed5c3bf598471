"""EC2 keeps the contract of providers."""

import pytest

from tests.providers.contract import ProviderContract


@pytest.mark.asyncio(loop_scope="session")
class TestEc2Contract(ProviderContract):
    """Against moto, with ClientTokens added."""
