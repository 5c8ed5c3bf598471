"""The sizes of the store's files and of their disk in /metrics."""

import asyncio
import os
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
    await until(lambda: bool(value(telemetry, "store_disk_bytes")))
    await cancelled(task)
    assert value(telemetry, "store_bytes", file="store") == 8192
    assert value(telemetry, "store_bytes", file="write_ahead_log") == 0
    # Other programs use the same disk, so its free space changes while a test reads it.
    disk, size = os.statvfs(tmp_path), value(telemetry, "store_disk_bytes")
    reserved = (disk.f_bfree - disk.f_bavail) * disk.f_frsize
    assert size == disk.f_blocks * disk.f_frsize - reserved
    assert 0 < (value(telemetry, "store_disk_free_bytes") or 0) <= (size or 0)
