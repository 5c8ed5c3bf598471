"""`autoscaler serve` as a process, with a provider that one line registers."""

import asyncio
import os
import sys
from pathlib import Path

from autoscaler.config.settings import Settings
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
from autoscaler.app import serve
lines = ("tests.app.test_running:ClosingKind",)
sys.exit(serve(Path("fleet.yaml"), log_format="json", log_level="info", providers=lines))
"""


class ClosingProvider(MemoryProvider):
    """Writes a line when it is closed."""

    async def close(self) -> None:
        sys.stdout.write(f"closed {self.name}\n")


class ClosingFactory(MemoryFactory):
    """Creates such providers, and writes a line when it is closed itself."""

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


async def test_every_provider_is_closed_before_its_factory(tmp_path: Path) -> None:
    """A provider may have connections and tasks of its own, such as a watch of pods.

    SIGTERM arrives as soon as the process serves.
    """
    folder = Folder(tmp_path)
    nowhere = "scopes: [{org: acme}]\n  api_url: http://127.0.0.1:9"
    (folder.path / "fleet.yaml").write_text(TEXT.replace("scopes: [{org: acme}]", nowhere))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-u",
        "-c",
        SERVE,
        cwd=folder.path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        lines: list[str] = []
        async for line in process.stdout:
            lines.append(line.decode())
            if '"serving"' in lines[-1]:
                process.terminate()
        assert await process.wait() == 0, "".join(lines)
    closed = [line.strip() for line in lines if line.startswith("closed")]
    assert sorted(closed[:2]) == ["closed east", "closed west"]
    assert closed[2:] == ["closed a factory"] * 2
