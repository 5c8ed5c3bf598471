"""A build of Packer that waits for ever is ended, and one that works is not."""

import sys
import threading
from pathlib import Path

import pytest

from autoscaler.images.baking import run_packer
from autoscaler.images.build_watch import AFTER_MACHINE, LIMIT, TO_CLEAN_UP, BuildWatch


class Build:
    """Packer under a watch, with a clock that each look moves by a minute."""

    def __init__(self, states: list[str | None], *, looks: int, cleans_up: bool = True) -> None:
        self.said: list[str] = []
        self._states = states
        self._looks = looks
        self._time = 0.0
        self._cleans_up = cleans_up
        self._finished = threading.Event()
        self.watch = BuildWatch(self._state, self._now, poll=0.0)

    def run(self) -> str:
        self.watch.run(self._finished, self._interrupt, lambda: self.said.append("killed"))
        return self.watch.reason

    def _now(self) -> float:
        self._time += 60.0
        self._looks -= 1
        if self._looks == 0:
            self._finished.set()
        return self._time

    def _state(self) -> str | None:
        return self._states.pop(0) if len(self._states) > 1 else self._states[0]

    def _interrupt(self) -> None:
        self.said.append("interrupted")
        if self._cleans_up:
            self._finished.set()


@pytest.mark.parametrize("end", ["terminated", "shutting-down"])
def test_a_build_whose_machine_ended_is_interrupted(end: str) -> None:
    build = Build([None, "pending", "running", end], looks=200)
    assert build.run() == "the build machine ended 10 minutes ago, and Packer still waits"
    assert build.said == ["interrupted"]


def test_a_machine_that_ec2_does_not_show_any_more_has_ended_too() -> None:
    build = Build(["running", "terminated", None], looks=200)
    assert build.run().startswith("the build machine ended")


@pytest.mark.parametrize("state", ["running", "stopping", "stopped", None])
def test_a_build_within_the_limit_is_left_alone(state: str | None) -> None:
    build = Build([state], looks=int(LIMIT / 60) - 2)
    assert (build.run(), build.said) == ("", [])


def test_packer_has_time_to_clean_up_after_it_terminated_its_machine() -> None:
    build = Build(["running", "terminated"], looks=int(AFTER_MACHINE / 60))
    assert (build.run(), build.said) == ("", [])


def test_a_build_that_takes_too_long_is_interrupted() -> None:
    build = Build(["running"], looks=10_000)
    assert build.run() == "the build took longer than 3 hours"
    assert build.said == ["interrupted"]


def test_packer_is_killed_if_it_does_not_clean_up() -> None:
    build = Build(["terminated"], looks=10_000, cleans_up=False)
    assert "Packer did not clean up, and was killed" in build.run()
    assert build.said == ["interrupted", "killed"]


def test_after_an_operators_interrupt_packer_is_killed_as_well() -> None:
    build = Build(["running"], looks=int(TO_CLEAN_UP / 60) + 100, cleans_up=False)
    build.watch.interrupted = True
    assert build.run().startswith("the build was interrupted; Packer did not clean up")
    assert build.said == ["killed"]


def test_a_packer_that_ignores_its_interrupt_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packer, script, builds = tmp_path / "packer", tmp_path / "script.py", tmp_path / "builds"
    script.write_text(
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        f"open({str(builds)!r}, 'w')\nwhile True: signal.pause()\n"
    )
    # The path of an interpreter after `#!` may have no space.
    packer.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{script}'\n")
    packer.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    times = iter(range(0, 10**9, 300))
    watch = BuildWatch(
        # Not before it ignores the interrupt.
        lambda: "terminated" if builds.exists() else "running",
        lambda: float(next(times)),
        poll=0.01,
    )
    assert run_packer(["build"], watch) != 0
    assert "killed" in watch.reason
