"""Pods keep the contract of providers."""

import pytest

from tests.providers.contract import ProviderContract


@pytest.mark.asyncio(loop_scope="session")
class TestKubernetesContract(ProviderContract):
    """Without nodes: the API server deletes a pod that has no node at once."""
