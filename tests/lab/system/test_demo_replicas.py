"""The demo with three replicas on a real PostgreSQL server: one leader is killed, another one suspended."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.demo import DemoOptions
from lab.replicas.takeovers import Faults
from tests.lab.test_demo import Replay, assert_nothing_behind, open_folder, pool, replay
from tests.patience import PATIENCE

PUSH = """\
about: a small push
repository: acme/widgets
skus:
  cpu.small: {instance_type: m7g.large, os: linux, arch: arm64, disk_gb: 20}
  gpu.large: {instance_type: g5.xlarge, os: linux, arch: x64, disk_gb: 100}
phases:
  - name: build
    jobs: [{label: cpu.small, count: 3, minutes: 10}]
  - name: test
    jobs: [{label: gpu.large, count: 3, minutes: 10}]
"""
# Longer than the lease of 15 s.
FAULTS = Faults(down=2.0, suspended=25.0, patience=PATIENCE)


@pytest.fixture
def folder() -> Iterator[Path]:
    yield from open_folder()


def test_every_job_runs_once_while_replicas_take_over_from_one_another(folder: Path) -> None:
    push = Path(tempfile.mkstemp(dir=folder)[1])
    push.write_text(PUSH)
    with pool(1) as workers:
        options = DemoOptions(40.0, push=push, replicas=FAULTS)
        found: Replay = workers.submit(replay, folder / "demo", options).result()
    assert found.status == 0, found.output
    assert found.lines("PASSED: ") == [
        "PASSED: every job ran exactly once, and nothing is left."
    ], found.output
    killed, suspended = found.lines("Takeover: ")
    seconds = r"\. (Replica \d) leads, after ([\d.]+) s without a leader\.$"
    by_kill = re.search(r"SIGKILL ended (replica \d)" + seconds, killed)
    by_stop = re.search(r"SIGSTOP suspended (replica \d)" + seconds, suspended)
    assert by_kill is not None, killed
    assert by_stop is not None, suspended
    assert by_kill[2].lower() == by_stop[1], "the one that took over was suspended"
    assert by_stop[2].lower() != by_stop[1]
    # A lease of 15 s is renewed every 3 s.
    assert min(float(by_kill[3]), float(by_stop[3])) > 10.0
    kept = {file.name for file in found.kept.iterdir()}
    assert kept >= {"controller.log", "controller-2.log", "controller-3.log", "state.db"}
    assert '"event": "leadership_ended"' in "".join(
        file.read_text() for file in found.kept.glob("controller*.log")
    )
    assert_nothing_behind(found.folder)
