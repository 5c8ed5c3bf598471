"""The benchmark still runs and ends in its figure; how large that is depends on the machine."""

import asyncio
import re
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "webhook_accept.py"


async def test_the_benchmark_prints_a_ratio() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(BENCHMARK), "--deliveries", "200", stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert process.returncode == 0
    assert re.fullmatch(rb"ratio webhook/bare: \d+\.\d\d", said.splitlines()[-1])
