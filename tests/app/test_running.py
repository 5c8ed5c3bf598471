"""`autoscaler serve` as a process, with a provider that one line registers."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import NoReturn

from autoscaler.config.settings.fleet import Settings
from autoscaler.controller.ports.provider import ProviderContext
from autoscaler.model.identifiers import ProviderName
from tests.config.fleet_file import Folder
from tests.patience import PATIENCE
from tests.providers.memory.fleet import TEXT
from tests.providers.memory.kind import MemoryFactory, MemoryKind
from tests.providers.memory.provider import MemoryProvider

ROOT = Path(__file__).parents[2]

SERVE = """\
import sys
from pathlib import Path
from autoscaler.app.running import serve
from autoscaler.providers.registry import PROVIDERS
providers = tuple(sys.argv[1:]) or PROVIDERS
sys.exit(serve(Path("fleet.yaml"), log_format="json", log_level="info", providers=providers))
"""


class ClosingProvider(MemoryProvider):
    """A provider that prints a line when it is closed."""

    async def close(self) -> None:
        sys.stdout.write(f"closed {self.name}\n")


class ClosingFactory(MemoryFactory):
    """Creates such providers, and prints a line when it is closed."""

    def make(self, context: ProviderContext) -> MemoryProvider:
        made = super().make(context)
        return ClosingProvider(made.name, "nowhere", {}, context.installations)

    async def close(self) -> None:
        sys.stdout.write("closed a factory\n")


class ClosingKind(MemoryKind):
    """The kind of these providers."""

    def factory(self, name: ProviderName, settings: Settings, folder: Path) -> MemoryFactory:
        del folder
        return ClosingFactory(name, settings)


class UnusableFactory(MemoryFactory):
    """Cannot create a provider."""

    def make(self, context: ProviderContext) -> NoReturn:
        raise ValueError("its cloud is not round")


class UnusableKind(MemoryKind):
    """The kind of these factories."""

    def factory(self, name: ProviderName, settings: Settings, folder: Path) -> MemoryFactory:
        del folder
        return UnusableFactory(name, settings)


async def served(folder: Folder, kind: str) -> tuple[int, list[str]]:
    """Return the exit status and the output of a process that gets SIGTERM as soon as it serves."""
    nowhere = "scopes: [{org: acme}]\n  api_url: http://127.0.0.1:9"
    (folder.path / "fleet.yaml").write_text(TEXT.replace("scopes: [{org: acme}]", nowhere))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-u",
        "-c",
        SERVE,
        f"tests.app.test_running:{kind}",
        cwd=folder.path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    lines: list[str] = []
    async with asyncio.timeout(PATIENCE):
        async for line in process.stdout:
            lines.append(line.decode().strip())
            if '"serving"' in lines[-1]:
                process.terminate()
        return await process.wait(), lines


async def test_every_provider_is_closed_before_its_factory(tmp_path: Path) -> None:
    """A provider may have its own connections and tasks, such as a watch of pods."""
    status, lines = await served(Folder(tmp_path), "ClosingKind")
    assert status == 0, lines
    closed = [line for line in lines if line.startswith("closed")]
    assert sorted(closed[:2]) == ["closed east", "closed west"]
    assert closed[2:] == ["closed a factory"] * 2


async def test_a_provider_that_cannot_be_created_ends_the_start_with_its_reason(
    tmp_path: Path,
) -> None:
    status, lines = await served(Folder(tmp_path), "UnusableKind")
    (stopped,) = (json.loads(line) for line in lines)
    assert stopped["event"] == "stopped"
    assert stopped["reason"] == "provider east cannot be created: its cloud is not round"
    assert status == 1
