"""Commands that print tables, on narrow terminals: whole words, and no line that is too long."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from contextlib import suppress

import pytest

from autoscaler.model import events as e
from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import SkuName
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from tests.ledger.builders import World, failure
from tests.planner.fleets import catalogue, sku
from tests.test_operator_commands import Controller
from tests.test_operator_commands import controller as controller

pytestmark = pytest.mark.systems

WIDTHS = (60, 80, 120)
SKU = "lf.c.linux.g6.4xlarge.experimental.nvidia.gpu"
DEMAND = DemandClass("org:acme", "Default", (SKU,), (SkuName(SKU),))
MACHINE, INSTANCE = "9f86d081884c7d60", "i-0123456789abcdef0"
WAITING, RUNNING, UNMATCHED = 48123456789, 48123456790, 48123456791
LABELS = "lf.linux.g6.4xlarge.experimental.nvidia.gpus, self-hosted"
REPOSITORY = "acme/integration-testing-of-widgets"
NAMES = {
    "repository": REPOSITORY,
    "workflow": "linux-binary-manywheel",
    "name": "manywheel-py3_13t-cuda12_8-test / test (default, 3, 6, linux.g5.4xlarge.nvidia.gpu)",
}
OFFERING = "east/g5.xlarge/a/on-demand"


@pytest.fixture
def long_names(controller: Controller) -> Controller:
    """A controller of a fleet whose names are as long as those of large fleets."""
    world = World(catalogue(sku(SKU, max_machines=2400)), now=controller.asked.world.now)
    controller.asked.world = world
    world.observe(RUNNING, JobState.QUEUED, (SKU,), **NAMES)
    (machine,) = world.send(1, MACHINE[:-1], SKU)
    assert machine == MACHINE
    world.answer(MACHINE[:-1], INSTANCE)
    world.boot(MACHINE)
    world.do(e.HealthChecksReported, machine, True, "ok")
    world.observe(
        RUNNING,
        JobState.IN_PROGRESS,
        (SKU,),
        runner_name=world.assignment(MACHINE, DEMAND),
        **NAMES,
    )
    world.observe(WAITING, JobState.QUEUED, (SKU,), **NAMES)
    world.observe(UNMATCHED, JobState.QUEUED, tuple(LABELS.split(", ")), **NAMES)
    world.send(1, "c", SKU)
    words = "There is no Spot capacity available that matches your request."
    world.answer("c", failures=[failure(FailureClass.CAPACITY, message=words)])
    row = HistoryRow(world.now, "machine", MACHINE, "health_checks_reported", f"{words} " * 3)
    controller.asked.rows[MACHINE] = [row]
    return controller


def on_terminal(controller: Controller, *arguments: str, columns: int = 80) -> list[str]:
    """Return the lines that a command prints to a terminal."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    sized = {"COLUMNS", "LINES"}
    process = subprocess.Popen(
        [sys.executable, "-m", "autoscaler.cli", *arguments, "--config", str(controller.file)],
        stdin=its,
        stdout=its,
        stderr=its,
        env={name: value for name, value in os.environ.items() if name not in sized},
    )
    os.close(its)
    printed = b""
    # Linux reports the end of a terminal's other side as an error (EIO).
    with os.fdopen(ours, "rb", buffering=0) as terminal, suppress(OSError):
        while part := terminal.read(65_536):
            printed += part
    assert process.wait() == 0, printed
    return printed.decode().replace("\r\n", "\n").splitlines()


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize(
    ("arguments", "whole"),
    [
        (("status",), (SKU, "capacity", "1 of 2400")),
        (("jobs",), (str(WAITING), "1/1", "capacity", SKU, REPOSITORY)),
        (("jobs", "--running"), (str(RUNNING), MACHINE, SKU, REPOSITORY)),
        (("jobs", "--unmatched"), (str(UNMATCHED), "labels", LABELS, REPOSITORY)),
        (("machines",), (MACHINE, str(RUNNING), SKU, INSTANCE)),
        (("history", MACHINE), (MACHINE, "health_checks_reported")),
    ],
)
def test_a_table_fits_a_terminal_and_keeps_each_name_whole(
    long_names: Controller, arguments: tuple[str, ...], whole: tuple[str, ...], columns: int
) -> None:
    lines = on_terminal(long_names, *arguments, columns=columns)
    assert max(map(len, lines)) <= columns
    words = [word for line in lines for word in re.split(r"  +", line)]
    assert [name for name in whole if name not in words] == []
    assert "…" not in "".join(lines)
    (row,) = [
        line
        for line in long_names.run(*arguments).stdout.splitlines()
        if all(n in line for n in whole)
    ]
    assert len(row) > 80


def test_the_offerings_of_an_explanation_keep_each_name_whole(long_names: Controller) -> None:
    lines = on_terminal(long_names, "explain", str(WAITING))
    said = " ".join(on_terminal(long_names, "explain", str(WAITING), columns=60))
    assert all(name in said for name in (str(WAITING), SKU, OFFERING, REPOSITORY))
    table = lines[next(n for n, line in enumerate(lines) if line.startswith("SKU")) :]
    assert max(map(len, table)) <= 80
    words = [word for line in table for word in re.split(r"  +", line)]
    assert {SKU, OFFERING} <= set(words)


def test_a_table_that_fits_has_one_line_for_each_row(controller: Controller) -> None:
    controller.asked.world.queue(1, 2)
    rows = on_terminal(controller, "jobs")
    assert rows[0].split() == ["job", "SKU", "waits", "place", "why", "repository", "name"]
    assert [row.split()[:2] for row in rows[1:]] == [["1", "gpu"], ["2", "gpu"]]
