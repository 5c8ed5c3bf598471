"""The sizes of the store's files in /metrics."""

import asyncio
from pathlib import Path

from autoscaler.app.process import report_store_size
from autoscaler.observability.metrics import PrometheusTelemetry
from tests.controller.controllers import cancelled
from tests.observability.test_metrics import value
from tests.server.fakes import until


async def test_the_sizes_of_the_file_and_its_log_are_shown(tmp_path: Path) -> None:
    telemetry = PrometheusTelemetry([], [], "1")
    (tmp_path / "state.db").write_bytes(b"x" * 8192)
    task = asyncio.create_task(report_store_size(tmp_path / "state.db", telemetry))
    await until(lambda: value(telemetry, "store_bytes", file="store") is not None)
    await cancelled(task)
    assert value(telemetry, "store_bytes", file="store") == 8192
    assert value(telemetry, "store_bytes", file="write_ahead_log") == 0
