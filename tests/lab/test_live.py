"""How progress is shown on a terminal of 80 columns and in plain text."""

import re
from collections import Counter
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from lab.live import clock, screen
from lab.push import read_example
from lab.report import Report, SkuReport, print_not_replayed, print_report
from lab.verdict import PASSED
from lab.watch import Patience, Progress, SkuProgress

LONGEST = "linux.g6.4xlarge.experimental.nvidia.gpu"


def progress(seconds: float, **rows: SkuProgress) -> Progress:
    """Return progress of the built-in push's SKUs; `rows` are by the SKU's name up to its first dot."""
    nothing = SkuProgress(0, 0, 0, 0, 0, 10)
    skus = {name: rows.get(name.partition(".")[0], nothing) for name in read_example().skus}
    return Progress(seconds, 7, skus)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0:00"), (59.6, "1:00"), (605, "10:05"), (3661, "1:01:01")]
)
def test_lab_time_is_printed_in_hours_minutes_and_seconds(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown


def test_a_terminal_of_80_columns_shows_every_number_whole() -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=80, color_system=None)
    with screen(console) as shown:
        shown.show(progress(3661.0, windows=SkuProgress(13, 100, 12, 15, 2, 100)), last=True)
    lines = out.getvalue().splitlines()
    assert any("1:01:01 of lab time" in line and "7 machines at EC2" in line for line in lines)
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.count("·") or "13" in line}
    assert rows["windows.4xlarge.nonephemeral"] == ["13", "100", "12", "15", "2/100"]
    assert rows[LONGEST] == ["·", "·", "·", "·", "0/10"]
    assert rows["all"] == ["13", "100", "12", "15", "2/160"]


def test_plain_text_prints_changes_at_once_and_unchanged_rows_only_once() -> None:
    out = StringIO()
    with screen(Console(file=out, width=80)) as shown:
        first = progress(60.0, windows=SkuProgress(3, 2, 1, 0, 0, 10))
        shown.show(first, last=False)
        shown.show(progress(61.0), last=False)
        shown.show(progress(62.0, windows=SkuProgress(0, 0, 0, 0, 10, 10)), last=True)
    assert out.getvalue().splitlines() == [
        "1:00 lab time, all: 3 waiting, 2 booting, 1 ready, 0/70 done",
        "  windows.4xlarge.nonephemeral: 3 waiting, 2 booting, 1 ready, 0/10 done",
        "1:02 lab time, all: 10/70 done",
        "  windows.4xlarge.nonephemeral: 10/10 done",
    ]


@pytest.mark.parametrize("terminal", [False, True])
def test_a_step_is_printed_at_once(terminal: bool) -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=terminal, width=80, color_system=None)
    with screen(console) as shown:
        shown.show(progress(60.0), last=False)
        shown.show(replace(progress(61.0), steps=("A job ends", "Another ends")), last=False)
    # Without the codes that move the cursor to the table's first line.
    lines = re.sub(r"\x1b\[\d*[A-Z]", "", out.getvalue()).splitlines()
    assert [line for line in lines if line.endswith(" ends")] == [
        "   1:01  A job ends",
        "   1:01  Another ends",
    ]


def test_plain_text_repeats_unchanged_progress_seldom_and_always_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    out = StringIO()
    with screen(Console(file=out, width=80)) as shown:
        for now[0] in range(31):
            shown.show(progress(now[0]), last=now[0] == 30)
    assert [line.partition(" ")[0] for line in out.getvalue().splitlines()] == [
        "0:00",
        "0:20",
        "0:30",
    ]


@pytest.mark.parametrize(
    ("machines", "words"), [(0, ""), (1, ", 1 machine left"), (7, ", 7 machines left")]
)
def test_plain_text_reports_remaining_machines_after_every_job_is_done(
    machines: int, words: str
) -> None:
    out = StringIO()
    done = SkuProgress(0, 0, 0, 0, 5, 5)
    with screen(Console(file=out, width=80)) as shown:
        shown.show(Progress(60.0, machines, {"cpu": done}), last=True)
    assert out.getvalue().splitlines()[0] == f"1:00 lab time, all: 5/5 done{words}"


@pytest.mark.parametrize(
    ("share", "shown"), [(0.5, "0:50"), (0.95, "1:35"), (1.0, "1:40"), (0.001, "0:01")]
)
def test_percentiles_of_the_wait_are_shown(share: float, shown: str) -> None:
    row = SkuReport(100, tuple(map(float, range(1, 101))), (0.3, 0.4, 2.0), 1, 0.0)
    assert row.wait(share) == shown


@pytest.mark.parametrize(("share", "shown"), [(0.5, "0.4s"), (1.0, "2.0s")])
def test_percentiles_of_the_wait_for_the_controller_are_shown(share: float, shown: str) -> None:
    assert SkuReport(3, (5.0,), (0.3, 0.4, 2.0), 1, 0.0).controller(share) == shown


def test_on_a_slow_host_every_name_of_the_result_stays_on_its_line() -> None:
    slow = SkuReport(15, (1439.0, 3112.0), (12.5, 35.7), 30, 65.14)
    report = Report({LONGEST: slow}, 6000.0, 80.0, 48, 0, 50.0, 28, 45.0, Counter(), Counter())
    out = StringIO()
    print_report(Console(file=out, width=80), report)
    (row,) = [line.split() for line in out.getvalue().splitlines() if line.startswith(LONGEST)]
    assert row[1:5] == ["15", "30", "12s", "36s"]


def test_the_result_of_the_example_fits_a_screen_of_80_by_24() -> None:
    push = read_example()
    row = SkuReport(15, (1439.0, 1439.0), (0.25, 1.5), 100, 119.27)
    skus = dict.fromkeys(push.skus, row)
    skus["windows.4xlarge.nonephemeral"] = SkuReport(15, (), (), 0, 0.0)
    long = "GET /repos/{owner}/{repo}/actions/runs/{run_id}/jobs"
    calls = Counter({"GET /app/hook/deliveries": 305, long: 229})
    report = Report(skus, 6000.0, 80.0, 48, 0, 50.0, 28, 45.0, calls, calls)
    out = StringIO()
    console = Console(file=out, width=80)
    console.print()
    print_report(console, report)
    print_not_replayed(console, push)
    console.print(PASSED)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 23  # and the prompt
    rows = {line.split()[0]: line.split()[1:] for line in lines if "$" in line}
    seven = ["15", "100", "0.2s", "1.5s", "23:59", "23:59", "$119.27"]
    assert rows["linux.r7i.2xlarge"] == seven
    assert rows["windows.4xlarge.nonephemeral"] == ["15", "0", *["-"] * 4, "$0.00"]
    assert rows["all"] == ["105", "600", "0.2s", "1.5s", "23:59", "23:59", "$715.62"]
    text = out.getvalue()
    assert LONGEST in text.replace("\n", "")
    assert "28 of 105 jobs ended in 1:40:00 of lab time." in text
    assert "Machines: 600 launched, 48 at the peak, 0 left." in text
    assert "Cost: $715.62 for 50.0 machine hours, 90% of them with a job." in text
    assert "Calls to GitHub: 534, most of them 305 GET /app/hook/deliveries.\n" in text
    assert lines[-1] == PASSED
    assert "Most of it is booting; each real second counts as 80.\n" in text


def test_the_time_limit_is_at_least_what_a_machine_needs() -> None:
    slow = Patience(stuck=900, left=600, overdue=7200, real_floor=12).at(10)
    assert (slow.stuck, slow.left, slow.overdue) == (900, 600, 7200)  # 90 s and 12 minutes
    fast = Patience(stuck=900, left=600, overdue=7200, real_floor=12).at(1000)
    assert (fast.stuck, fast.left, fast.overdue) == (12_000, 12_000, 120_000)
