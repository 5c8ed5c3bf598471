"""`make release-check` runs the stages that a stage needs, and none that needs a failed one."""

from pathlib import Path

import pytest

from tests.release import __main__ as command
from tests.release.building import Site, StageError, run


def test_a_stage_runs_with_those_that_it_needs() -> None:
    assert command.selected(["serve"]) == ["versions", "files", "install", "serve"]
    assert command.selected([]) == list(command.STAGES)


def test_each_stage_needs_an_earlier_one() -> None:
    names = list(command.STAGES)
    for name, (_, needs) in command.STAGES.items():
        assert not needs or names.index(needs) < names.index(name)


def test_a_stage_that_needs_a_failed_one_fails_and_the_others_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fail(site: Site) -> str:
        raise StageError("no wheel")

    stages = {"a": (fail, ""), "b": (lambda _: "never", "a"), "c": (lambda _: "fine", "")}
    monkeypatch.setattr(command, "STAGES", stages)
    assert command.check(Site(tmp_path), []) == ["a", "b"]
    printed = capsys.readouterr().out
    assert "FAILED: no wheel" in printed
    assert "not run: it needs a" in printed
    assert "ok: fine" in printed


def test_a_stage_that_hangs_fails_and_leaves_no_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def hang(site: Site) -> str:
        return run("sleep", "1000")

    monkeypatch.setattr(command, "STAGES", {"a": (hang, "")})
    monkeypatch.setattr(command, "LONGEST", 1)
    assert command.check(Site(tmp_path), []) == ["a"]
    assert "FAILED: not finished after 1 s" in capsys.readouterr().out
