"""Runs the whole demo with a small push whose jobs run on EC2 and in pods of a real API server."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.demo import DemoOptions
from lab.watch import Patience
from tests.cluster.rights import shipped
from tests.lab.test_demo import Replay, assert_nothing_behind, open_folder, pool, replay

PUSH = """\
about: a small push
repository: acme/widgets
skus:
  cpu.small: {instance_type: m7g.large, os: linux, arch: arm64, disk_gb: 20}
phases:
  - name: build
    jobs: [{label: cpu.small, count: 1, minutes: 3}]
  - name: test
    jobs: [{label: cpu.small, count: 1, minutes: 3}]
not_replayed:
  - {label: macos-15, count: 4, why: macOS}
  - label: rocm.half
    count: 3
    why: ROCm
    on_pods: {phase: test, minutes: 3, pod: {resource: amd.com/dpx_nps2, count: 1, dollars_per_hour: 2.0}}
"""
SCALE = 100.0


@pytest.fixture(scope="module")
def push(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of two jobs on EC2, and of three that can run on pods."""
    file = tmp_path_factory.mktemp("push") / "push.yaml"
    file.write_text(PUSH)
    return file


@pytest.fixture(scope="module")
def green(push: Path) -> Iterator[Replay]:
    """A replay that passes."""
    yield from replayed(DemoOptions(SCALE, push=push, kubernetes=True))


def replayed(options: DemoOptions) -> Iterator[Replay]:
    """Replay in a process of its own: signal handlers and the umask belong to a process."""
    with contextmanager(open_folder)() as folder, pool(1) as workers:
        yield workers.submit(replay, folder, options).result()


def test_green_when_every_job_runs_once_on_ec2_or_in_a_pod(green: Replay) -> None:
    status, output, kept, folder = green
    assert status == 0, output
    assert output.rstrip().endswith("PASSED: every job ran exactly once, and nothing is left.")
    assert "3 jobs run in pods." in output
    assert "kubernetes:" in (kept / "fleet.yaml").read_text()
    assert_nothing_behind(folder)


def test_the_table_counts_pods_and_instances(green: Replay) -> None:
    output = green.output
    rows = {line.split()[0]: line.split() for line in output.splitlines() if "$" in line}
    assert {name: row[1] for name, row in rows.items() if name != "Cost:"} == {
        "cpu.small": "2",
        "rocm.half": "3",
        "all": "5",
    }
    # At least three pods, each for three minutes at two dollars an hour.
    assert float(rows["rocm.half"][-1].removeprefix("$")) >= 0.30
    pods = re.search(r"^Pods: (\d+) launched, \d+ at the peak, 0 left\.$", output, re.MULTILINE)
    assert pods is not None, output
    assert int(pods[1]) == int(rows["rocm.half"][2]) >= 3
    # The controller's part of the wait is known for pods, too.
    assert rows["rocm.half"][3].endswith("s")
    calls = re.search(r"^Calls to Kubernetes: \d+", output, re.MULTILINE)
    assert calls is not None, output
    assert "\nused: EC2 instances or pods launched.\nadded, max: " in output
    assert "Not replayed, because they do not run on EC2: 4 (macOS)." in output


def test_the_controller_needs_no_other_rights_than_the_shipped_ones(green: Replay) -> None:
    lines = (green.kept / "calls.txt").read_text().splitlines()
    sent = {tuple(line.split()[1:3]) for line in lines if line.startswith("Kubernetes ")}
    shown = {(verb, name.lstrip("+").partition(".")[0]) for verb, name in shipped()}
    assert ("create", "pods") in sent
    assert sent <= shown


def test_red_when_no_job_runs(push: Path) -> None:
    """It gives up before any machine can boot. No fault was planted, so the demo fails."""
    hasty = Patience(stuck=1.0, left=1.0, real_floor=0.001)
    for found in replayed(DemoOptions(SCALE, push=push, kubernetes=True, patience=hasty)):
        assert found.status == 1
        assert found.lines("FAILED: ")[0].startswith("FAILED: gave up: for ")
        assert_nothing_behind(found.folder)
