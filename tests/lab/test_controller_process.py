"""The controller of a laboratory ends when the process of the laboratory is killed."""

import asyncio
import sys
from pathlib import Path

from tests.lab.system.harness import until
from tests.patience import PATIENCE

PARENT = """
import asyncio, sys
from pathlib import Path
from lab.controller_process import ControllerProcess

async def main():
    controller = ControllerProcess(["-c", sys.argv[1]], "http://127.0.0.1:1", Path(sys.argv[2]), {})
    await controller.start()
    await asyncio.sleep(600)

asyncio.run(main())
"""
CONTROLLER = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: print("SIGTERM", flush=True) or exit())
print("started", flush=True)
time.sleep(600)
"""


async def test_the_controller_gets_sigterm_when_its_laboratory_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = ["-c", PARENT, CONTROLLER, str(log)]
    laboratory = await asyncio.create_subprocess_exec(sys.executable, *words)

    def said() -> list[str]:
        return log.read_text().split() if log.exists() else []

    try:
        await until(lambda: said() == ["started"], PATIENCE, said)
    finally:
        laboratory.kill()
        await laboratory.wait()
    await until(lambda: said() == ["started", "SIGTERM"], PATIENCE, said)
