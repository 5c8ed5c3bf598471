"""The fixture of tests that reload a configuration."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from autoscaler.app.preflight import load_for_service
from autoscaler.app.reloading import InUse, Reloading
from autoscaler.app.translation import catalogue, provider_factories
from autoscaler.controller.ports.operator_requests import (
    ConfigurationRequests,
)
from autoscaler.controller.ports.provider import ProviderContext
from autoscaler.model.identifiers import SkuName
from autoscaler.providers.registry import provider_kinds
from tests.app.reloads import INSTALLATIONS, Loop, Parts, Served
from tests.config.fleet_file import Folder
from tests.controller.fakes import RecordingTelemetry
from tests.controller.virtual_time import VirtualClock
from tests.providers.memory import REGISTERED
from tests.providers.memory.fleet import TEXT


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    file = Folder(tmp_path).path / "fleet.yaml"
    file.write_text(TEXT)
    configuration = load_for_service(file, try_store=False, providers=REGISTERED)
    context = ProviderContext(INSTALLATIONS, "0" * 64, RecordingTelemetry(), VirtualClock())
    providers = {
        name: factory.make(context)
        for name, factory in provider_factories(configuration, provider_kinds(REGISTERED)).items()
    }
    parts = Parts(catalogue(configuration, INSTALLATIONS, list(providers), providers))
    in_use, skus, loop = InUse(configuration, {}), set[SkuName](), Loop()
    port: ConfigurationRequests = Reloading(
        in_use, providers, context, parts, skus.update, loop, REGISTERED
    )
    assert isinstance(port, Reloading)
    yield Served(file, in_use, parts, port, skus, providers, loop)
