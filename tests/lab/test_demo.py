"""Runs the whole demo with a small push: it passes if all is well or it reports a planted fault."""

import multiprocessing
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import psutil
import pytest
from rich.console import Console

from autoscaler.model.catalogue import OperatingSystem
from autoscaler.model.jobs.runners import Runner
from lab import host_check
from lab.demo import DemoOptions, main
from lab.read_store import read_store
from lab.verdict import Fault
from lab.watch import Patience
from tests.lab.system.harness import records_in
from tests.patience import PATIENCE

PUSH = """\
about: a small push
repository: acme/widgets
skus:
  cpu.small: {instance_type: m7g.large, os: linux, arch: arm64, disk_gb: 20}
  gpu.large: {instance_type: g5.xlarge, os: linux, arch: x64, disk_gb: 100}
  win.large: {instance_type: c5d.4xlarge, os: windows, arch: x64, disk_gb: 100}
phases:
  - name: build
    jobs: [{label: cpu.small, count: 2, minutes: 3}]
  - name: test
    jobs: [{label: gpu.large, count: 2, minutes: 3}, {label: win.large, count: 1, minutes: 2}]
not_replayed:
  - {label: macos-15, count: 4, why: macOS}
"""
SCALE = 200.0
PRICES = {"m7g.large": 0.1, "g5.xlarge": 1.0, "c5d.4xlarge": 1.5}


GREEN, LOST, LEAKED, HASTY = "green", "lost", "leaked", "hasty"


class Replay(NamedTuple):
    """A replay's exit status and output, the files it kept, and its working folder."""

    status: int
    output: str
    kept: Path
    folder: Path

    def lines(self, begin: str) -> list[str]:
        """Return the lines that begin with this text."""
        return [line for line in self.output.splitlines() if line.startswith(begin)]


def open_folder() -> Iterator[Path]:
    """Make a folder that every user may enter: as root, the lab's machines run as another user."""
    made = Path(tempfile.mkdtemp(prefix="demo-test-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def folder() -> Iterator[Path]:
    """The folder in which the lab makes its own folder."""
    yield from open_folder()


@pytest.fixture(scope="module")
def push(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of five jobs in two phases."""
    file = tmp_path_factory.mktemp("push") / "push.yaml"
    file.write_text(PUSH)
    return file


@pytest.fixture(scope="module")
def replays(push: Path) -> Iterator[dict[str, Replay]]:
    """One replay of each kind. They run at the same time, because a replay mostly waits."""
    # On a busy host a machine boots for many seconds, each of them SCALE seconds here.
    lost = Patience(stuck=6000.0, left=3000.0, overdue=1e6, real_floor=1.0)
    leaked = Patience(stuck=60_000.0, left=3000.0, overdue=1e6, real_floor=1.0)
    plain = DemoOptions(SCALE, push=push)
    options = {
        GREEN: plain,
        LOST: replace(plain, fault=Fault.LOST_JOB, patience=lost),
        LEAKED: replace(plain, fault=Fault.LEAKED_MACHINE, patience=leaked),
        # Gives up before any machine can boot. No fault was planted, so the demo fails.
        HASTY: replace(plain, patience=Patience(stuck=1.0, left=1.0, real_floor=0.001)),
    }
    with contextmanager(open_folder)() as folder, pool(len(options)) as workers:
        work = {name: workers.submit(replay, folder / name, of) for name, of in options.items()}
        yield {name: one.result() for name, one in work.items()}


def pool(size: int) -> ProcessPoolExecutor:
    """Return a pool of new processes: signal handlers and the umask belong to a process."""
    return ProcessPoolExecutor(size, mp_context=multiprocessing.get_context("spawn"))


def replay(place: Path, options: DemoOptions) -> Replay:
    """Run the demo in this process, which was made for it. It must work under a strict umask."""
    kept, folder = place / "kept", place / "lab"
    folder.mkdir(parents=True)
    tempfile.tempdir = str(folder)
    os.umask(0o077)
    status, output = demo(replace(options, keep=kept))
    assert os.umask(0o077) == 0o077
    return Replay(status, output, kept, folder)


def price_of(instance_type: str, os: OperatingSystem) -> float:
    assert (os is OperatingSystem.WINDOWS) == (instance_type == "c5d.4xlarge")
    return PRICES[instance_type]


def demo(options: DemoOptions) -> tuple[int, str]:
    """Run the demo and return its exit status and output."""
    out = StringIO()
    console = Console(file=out, width=80, highlight=False, markup=False, emoji=False)
    status = main(price_of, read_store, options, console)
    return status, out.getvalue()


def kept_runners(kept: Path) -> tuple[Runner, ...]:
    """Return every runner in the kept store."""
    with closing(sqlite3.connect(kept / "state.db")) as file:
        return records_in(file).runners


def assert_nothing_behind(folder: Path) -> None:
    """Assert that the lab left no file, and no process that uses one of its files."""
    assert list(folder.iterdir()) == []
    assert [
        process.info
        for process in psutil.process_iter(["cmdline"])
        if any(str(folder) in part for part in process.info["cmdline"] or ())
    ] == []


@pytest.mark.systems
def test_the_demo_passes_if_every_job_runs_once(replays: dict[str, Replay]) -> None:
    status, output, kept, folder = replays[GREEN]
    assert status == 0, output
    assert output.rstrip().endswith("PASSED: every job ran exactly once, and nothing is left.")
    assert {file.name for file in kept.iterdir()} >= {"controller.log", "fleet.yaml", "state.db"}
    assert_nothing_behind(folder)


@pytest.mark.systems
def test_the_demo_prints_its_table_and_summary(replays: dict[str, Replay]) -> None:
    output = replays[GREEN].output
    rows = {line.split()[0]: line.split() for line in output.splitlines() if "$" in line}
    table = {name: (int(row[1]), int(row[2])) for name, row in rows.items() if name != "Cost:"}
    jobs = {"cpu.small": 2, "gpu.large": 2, "win.large": 1, "all": 5}
    assert {name: row[0] for name, row in table.items()} == jobs
    # On a busy host, machines that answer too late are replaced.
    assert all(machines >= jobs[name] for name, (_, machines) in table.items())
    launched = table["all"][1]
    assert launched == sum(machines for _, machines in table.values()) - launched
    # At least two machines, each for three minutes at one dollar an hour.
    assert float(rows["gpu.large"][-1].removeprefix("$")) >= 0.10
    found = re.search(
        r"^Machines: (\d+) launched, \d+ at the peak, 0 left\.$", output, re.MULTILINE
    )
    assert found is not None
    assert int(found[1]) == launched
    # Each name is registered once. A busy host may need more than five registrations.
    runners = kept_runners(replays[GREEN].kept)
    assert sum(runner.job is not None for runner in runners) == 5
    calls = (replays[GREEN].kept / "calls.txt").read_text().splitlines()
    jit = "POST /orgs/{org}/actions/runners/generate-jitconfig"
    assert f"GitHub {jit} 201 {len(runners)}" in calls
    assert any(re.fullmatch(r"EC2 DescribeInstances \d+", line) for line in calls)
    metrics = (replays[GREEN].kept / "metrics.txt").read_text()
    counter = re.search(
        r'^autoscaler_launches_total\{.*"gpu\.large"\} (\d+)$', metrics, re.MULTILINE
    )
    assert counter is not None, metrics
    # Slots that EC2 did not fill count too.
    assert int(counter[1]) >= 2
    assert "Not replayed, because they do not run on EC2: 4 (macOS)." in output


@pytest.mark.systems
def test_the_controller_reads_the_prices_of_all_instance_types(replays: dict[str, Replay]) -> None:
    kept = replays[GREEN].kept
    metrics = (kept / "metrics.txt").read_text().splitlines()
    assert 'autoscaler_prices{capacity_type="on-demand",provider="lab",source="api"} 3' in metrics
    assert "prices_not_read" not in (kept / "controller.log").read_text()


@pytest.mark.systems
def test_the_demo_shows_the_controllers_part_of_the_wait(
    replays: dict[str, Replay],
) -> None:
    """The part is in real seconds and at most the whole wait, which is in lab time."""
    output = replays[GREEN].output
    rows = {line.split()[0]: line.split() for line in output.splitlines() if "$" in line}
    for name in ("cpu.small", "gpu.large", "win.large", "all"):
        _, most_added, _, most_waited = rows[name][3:7]
        hours, minutes, seconds = (0, *map(int, most_waited.split(":")))[-3:]
        added = float(most_added.removesuffix("s"))
        assert 0.0 < added <= (3600 * hours + 60 * minutes + seconds + 1) / SCALE + 0.05
    assert f"each real second counts as {SCALE:g}." in output


@pytest.mark.systems
def test_the_demo_prints_each_stage_from_the_start(replays: dict[str, Replay]) -> None:
    output = replays[GREEN].output
    stages = re.findall(r"^ +\d+\.\d s  (\w+ \w+ ?\w*)", output, re.MULTILINE)
    assert [stage.strip() for stage in stages] == [
        "starting EC2",
        "starting GitHub",
        "starting the controller",
        "pushing 5 jobs",
    ]
    assert output.index("starting EC2") < output.index("lab time, all: ")


@pytest.mark.systems
def test_the_demo_shows_the_first_time_that_a_sku_takes_each_step(
    replays: dict[str, Replay],
) -> None:
    steps = re.findall(r"^ *[\d:]{4,}  (.*)$", replays[GREEN].output, re.MULTILINE)
    of_sku = [step for step in steps if "cpu.small" in step]
    assert re.fullmatch(
        r"The controller launches [12] machines? for cpu\.small \(m7g\.large\)", of_sku.pop(1)
    )
    assert of_sku == [
        "GitHub queues 2 jobs for cpu.small",
        "A machine of cpu.small is ready; the controller registers its runner",
        "GitHub starts a job on cpu.small, for 1 real second",
        "A job on cpu.small ends: success",
        "EC2 terminates a machine of cpu.small",
    ]
    launched = re.findall(r"The controller launches .* for (\S+)", "\n".join(steps))
    assert sorted(launched) == ["cpu.small", "gpu.large", "win.large"]


@pytest.mark.systems
def test_a_planted_lost_job_is_reported(replays: dict[str, Replay]) -> None:
    found = replays[LOST]
    assert found.status == 0, found.output
    assert found.lines("Noticed: ") == [
        "Noticed: gave up: for 100 minutes no job ran and no job changed its state",
        "Noticed: job build / cpu.small 1: started 0 times, queued, lost by the lab",
        "Noticed: never queued: 3 jobs, because jobs that they need did not end",
    ]
    assert "On purpose, GitHub forgets one queued job." in found.output
    last = "PASSED: the job that the lab's GitHub lost was noticed, as expected."
    assert found.output.splitlines()[-1] == last
    assert found.lines("FAILED: ") == []
    assert_nothing_behind(found.folder)


@pytest.mark.systems
def test_a_planted_leaked_machine_is_reported(replays: dict[str, Replay]) -> None:
    found = replays[LEAKED]
    assert found.status == 0, found.output
    gave_up, machine, volume = found.lines("Noticed: ")
    assert gave_up.endswith("every job ended, but nothing that is left was removed for 50 minutes")
    assert re.fullmatch(r"Noticed: left: machine i-[0-9a-f]{17} \(cpu\.small, running\)", machine)
    assert re.fullmatch(r"Noticed: left: volume vol-[0-9a-f]{17}", volume)
    assert re.search(r"^Machines: \d+ launched, .* 1 left\.$", found.output, re.MULTILINE)
    last = "PASSED: the machine that the lab's EC2 did not terminate was noticed, as expected."
    assert found.output.splitlines()[-1] == last
    assert_nothing_behind(found.folder)


@pytest.mark.systems
def test_the_demo_fails_on_an_error_without_a_planted_fault(replays: dict[str, Replay]) -> None:
    found = replays[HASTY]
    assert found.status == 1
    assert found.lines("FAILED: ")[0].startswith("FAILED: gave up: for ")
    # The last lines are the controller's own reasons, and no log.
    reasons, _, end = found.output.partition(
        "What `autoscaler explain` says of the job that waits longest:\n"
    )[2].partition("the controller's log, configuration and store.\n")
    assert re.match(r"  Job 40000000001 of acme/widgets \(.*cpu\.small 1\) runs on:", reasons)
    assert reasons.rstrip().endswith(str(found.kept) + " has")
    assert '"event"' not in found.output
    assert {line.partition(" ")[0] for line in end.splitlines()} == {"FAILED:"}
    assert '"event": "serving"' in (found.kept / "controller.log").read_text()
    assert_nothing_behind(found.folder)


def start(push: Path, folder: Path, *options: str, scale: float = 20.0) -> subprocess.Popen[str]:
    """Start the demo as a process. At this scale it does not end during the test."""
    return subprocess.Popen(
        [sys.executable, "-m", "lab", "--scale", f"{scale:g}", "--push", push, *options],
        env=os.environ | {"TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def read_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout is not None
    seen = ""
    while words not in seen:
        line = process.stdout.readline()
        assert line, seen
        seen += line
    return seen


@pytest.mark.systems
def test_ctrl_c_removes_all_files_and_processes(folder: Path, push: Path) -> None:
    process = start(push, folder)
    before = read_until(process, "lab time, all: 2 ")
    process.send_signal(signal.SIGINT)
    after, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert after.endswith("Stopped. Removing all processes and files.\n")
    assert "Traceback" not in before + after
    assert_nothing_behind(folder)


@pytest.mark.systems
def test_the_demo_prints_how_to_reach_the_controller_and_can_stay_up_with_it(
    folder: Path, push: Path
) -> None:
    process = start(push, folder, "--stay", scale=SCALE)
    seen = read_until(process, "Ctrl-C ends the demo with its result.")
    address, token = re.findall(r"^Console: (\S+) \(sign in with the token (\w+)\)$", seen, re.M)[0]
    form = urlencode({"token": token, "next": "/jobs"}).encode()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    signing_in = urllib.request.Request(f"{address}/sign-in", form, {"Origin": address})
    with opener.open(signing_in, timeout=PATIENCE) as answer:
        assert answer.url == f"{address}/jobs"
        assert "Waiting jobs" in answer.read().decode()
    command = re.findall(r"^Or run (.+)$", seen, re.M)[0]
    assert f"Commands: {command}\n" in seen
    shown = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("lab at ")
    assert "nothing is wrong" in shown.stdout
    process.send_signal(signal.SIGINT)
    after, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, seen + after
    assert "PASSED: every job ran exactly once" in after
    assert_nothing_behind(folder)


def test_an_invalid_push_file_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "push.yaml"
    file.write_text(PUSH.replace("gpu.large, count: 2", "gpu.huge, count: 2"))
    status, output = demo(DemoOptions(push=file))
    assert status == 2
    assert output.startswith(f"error: {file}: ")
    assert "gpu.huge" in output


def test_a_host_without_enough_memory_is_reported_before_the_start(
    push: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_check, "BASE_MB", 10**9)
    status, output = demo(DemoOptions(push=push))
    assert status == 2
    assert re.fullmatch(
        r"error: the demo with 3 machines needs 1000000075 MiB of memory, and \d+ MiB are free\n",
        output,
    )


def test_an_instance_type_without_a_price_is_reported(push: Path) -> None:
    def unknown(instance_type: str, os: OperatingSystem) -> float:
        raise ValueError(f"instance type {instance_type} is not known")

    out = StringIO()
    assert main(unknown, read_store, DemoOptions(push=push), Console(file=out, width=200)) == 2
    assert out.getvalue() == "error: instance type m7g.large is not known\n"


def test_a_lab_that_cannot_start_reports_the_reason(
    folder: Path, push: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folder / "a place"
    place.mkdir(mode=0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    status, output = demo(DemoOptions(push=push))
    assert status == 1
    assert output.splitlines()[-1].startswith(f"FAILED: {place}/")
    assert "has a blank in its name" in output
    assert_nothing_behind(place)
