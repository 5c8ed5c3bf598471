"""The command behind `make chaos`: its messages about wrong input, and its exit status."""

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
from tests.chaos.__main__ import fails_with, main, write_schedule

LOST = Schedule(
    0, (JobArrival(5.0, 1, ("gpu",), 60.0),), (Fault(0.0, FaultKind.WEBHOOK_VANISHED, 60.0),)
)


@pytest.mark.parametrize(
    "arguments", [["--seeds", "0"], ["--seeds", "-3"], ["--processes", "0"], ["--seeds", "many"]]
)
def test_numbers_below_one_are_refused(arguments: list[str]) -> None:
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
    # The command handles signals only while it runs.
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == stops


def test_a_replay_can_end_at_the_first_violation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kept.json"
    path.write_text(LOST.to_json())
    assert main(["--replay", str(path), "--until-found"]) == 1
    reported = capsys.readouterr().out
    assert "job 1 starves beside a ready machine" in reported
    assert "in the end" not in reported


def test_a_schedule_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "found" / "0.json"
    assert str(path) in write_schedule(LOST, path)
    assert from_json(path.read_text()) == LOST
    (tmp_path / "file").touch()
    assert write_schedule(LOST, tmp_path / "file" / "0.json").startswith("not written: ")


@pytest.mark.parametrize(
    ("kind", "fails"),
    [
        ("job # starves beside a ready machine", True),
        ("job # is queued in the end", True),
        ("job # ran twice", False),
    ],
)
def test_a_schedule_fails_with_a_kind_of_violation_during_it_or_at_its_end(
    kind: str, fails: bool
) -> None:
    assert fails_with(LOST, kind) is fails
