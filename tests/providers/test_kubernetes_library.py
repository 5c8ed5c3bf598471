"""The official client library is imported by one thread at a time."""

import asyncio
from pathlib import Path

import pytest

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.providers.kubernetes.api import kubeconfigs as library
from autoscaler.providers.kubernetes.api.credentials import new_client
from tests.providers.kubernetes_pods import make_settings


async def test_a_client_waits_for_the_import_that_the_factory_began(tmp_path: Path) -> None:
    """Otherwise one of two concurrent imports fails, because the library's modules import each other."""
    settings = make_settings(kubeconfig=tmp_path / "absent", context="x")
    with pytest.raises(ProviderError):
        await new_client(settings)
    with library._LOCK:
        made = asyncio.create_task(new_client(settings))
        done, _ = await asyncio.wait([made], timeout=0.5)
        assert done == set()
    with pytest.raises(ProviderError):
        await made
