"""`make chaos` as it is called: what it says of a mistake, and how it ends."""

import signal
from pathlib import Path

import pytest

from autoscaler.simulator.world.schedule import (
    Fault,
    FaultKind,
    JobArrival,
    Schedule,
    from_json,
)
from tests.chaos.__main__ import kept, main

LOST = Schedule(
    0, (JobArrival(5.0, 1, ("gpu",), 60.0),), (Fault(0.0, FaultKind.WEBHOOK_VANISHED, 60.0),)
)


@pytest.mark.parametrize(
    "arguments", [["--seeds", "0"], ["--seeds", "-3"], ["--processes", "0"], ["--seeds", "many"]]
)
def test_no_seeds_and_no_processes_are_a_mistake(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2


@pytest.mark.parametrize("text", ["# Readme", "{}", "[]", '{"seed":', None, "folder"])
def test_an_unreadable_schedule_is_reported_in_one_line_and_is_no_violation(
    text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kept.json"
    if text == "folder":
        path.mkdir()
    elif text is not None:
        path.write_text(text)
    assert main(["--replay", str(path)]) == 2
    assert capsys.readouterr().out.startswith(f"cannot replay {path}: ")


def test_a_replay_prints_its_timeline_and_what_was_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kept.json"
    path.write_text(LOST.to_json())
    stops = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert main(["--replay", str(path)]) == 1
    reported = capsys.readouterr().out
    assert "webhook_vanished for 60 s" in reported
    assert "job 1 is queued in the end" in reported
    # Signals are the command's own to answer, not of who calls it.
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == stops


def test_a_schedule_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "found" / "0.json"
    assert str(path) in kept(LOST, path)
    assert from_json(path.read_text()) == LOST
    (tmp_path / "file").touch()
    assert kept(LOST, tmp_path / "file" / "0.json").startswith("not kept: ")
