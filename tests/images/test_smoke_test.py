"""The test of a new image on a machine, with a stand-in for EC2 and virtual time."""

import os
import signal
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from autoscaler.images.interruptions import SIGNALS, interruptible_sleep
from autoscaler.providers.ec2.images.account import AwsImages, ImageEc2Error
from autoscaler.providers.ec2.images.smoke_test import (
    FAILED,
    PATIENCE,
    USER_DATA,
    Verdict,
    publish,
    read_verdict,
)
from autoscaler.providers.ec2.tags import PUBLISHED
from tests.powershell import mistakes

NOW = "2026-11-23T21:00:00Z"
PASSED = 'boot\n[   12.0] cloud-init: image-test: passed {"runner": "2.338.0"}\n'


class Machine(AwsImages):
    """EC2 with one machine. `console` and `states` are the answers in order; the last one repeats."""

    def __init__(
        self, console: list[str], states: list[str], platform: str = "linux", start: str = "#!"
    ) -> None:
        super().__init__("us-east-1")
        self.named, self.start = platform, start
        self.outputs, self.states = console, states
        self.time = 0.0
        self.terminated: list[str] = []
        self.tags: dict[str, str] = {}
        self.refuses = ""

    def platform(self, image: str) -> str:
        assert image == "ami-1"
        return self.named

    def launch(self, image: str, user_data: str) -> str:
        assert (image, user_data.startswith(self.start)) == ("ami-1", True)
        return "i-1"

    def console(self, instance: str) -> str:
        if self.refuses:
            raise ImageEc2Error(self.refuses)
        return self.outputs.pop(0) if len(self.outputs) > 1 else self.outputs[0]

    def state(self, instance: str) -> str:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def terminate(self, instance: str) -> None:
        self.terminated.append(instance)

    def tag(self, image: str, tags: dict[str, str]) -> None:
        self.tags |= tags

    def untag(self, image: str, key: str) -> None:
        self.tags.pop(key, None)

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def publish(self) -> Verdict:
        return publish(self, "ami-1", NOW, self.now, lambda: nullcontext(self.sleep))


def test_an_image_that_passes_is_published_and_its_machine_terminated() -> None:
    machine = Machine(["", "boot", PASSED], ["pending", "running"])
    assert machine.publish() == Verdict(True, '{"runner": "2.338.0"}')
    assert (machine.tags, machine.terminated) == ({PUBLISHED: NOW}, ["i-1"])


def test_an_image_that_fails_gets_the_reason_and_is_not_published() -> None:
    machine = Machine([f"image-test: failed: {'x' * 300}\n"], ["running"])
    assert not machine.publish().passed
    assert (machine.tags, machine.terminated) == ({FAILED: "x" * 256}, ["i-1"])


def test_a_later_test_takes_back_what_an_earlier_one_said() -> None:
    """Fleets take an image that has the tag `published`, whatever else it has."""
    failing = Machine(["image-test: failed: no disk\n"], ["running"])
    failing.tags = {PUBLISHED: "2026-11-01T00:00:00Z"}
    failing.publish()
    assert failing.tags == {FAILED: "no disk"}
    passing = Machine([PASSED], ["running"])
    passing.tags = {FAILED: "no disk"}
    passing.publish()
    assert passing.tags == {PUBLISHED: NOW}


def test_a_machine_that_ends_without_a_verdict_fails_the_image() -> None:
    machine = Machine(["Kernel panic\n"], ["pending", "running", "terminated"])
    assert machine.publish() == Verdict(False, "machine i-1 is terminated and printed no verdict")
    assert set(machine.tags) == {FAILED}


def test_a_verdict_that_was_printed_just_before_the_end_counts() -> None:
    assert Machine([PASSED], ["terminated"]).publish().passed


def test_a_machine_that_hangs_fails_the_image_after_a_while() -> None:
    machine = Machine(["boot\n"], ["running"])
    assert machine.publish() == Verdict(False, "machine i-1 printed no verdict for 900 s")
    assert machine.time == PATIENCE
    assert machine.terminated == ["i-1"]


def test_an_error_of_ec2_tags_nothing_and_terminates_the_machine() -> None:
    machine = Machine([""], ["running"])
    machine.refuses = "GetConsoleOutput: UnauthorizedOperation"
    with pytest.raises(ImageEc2Error):
        machine.publish()
    assert (machine.tags, machine.terminated) == ({}, ["i-1"])


def test_an_image_of_windows_gets_powershell_that_schedules_a_shutdown_first() -> None:
    start = "<powershell>\nshutdown.exe /s /t 1200\n"
    assert Machine([PASSED], ["running"], "windows", start).publish().passed
    script = USER_DATA["windows"].removeprefix("<powershell>\n").removesuffix("</powershell>\n")
    assert mistakes(script) == []


def test_a_line_that_has_not_ended_is_not_read() -> None:
    assert read_verdict("image-test: failed: the user of") is None
    assert read_verdict("image-test: passed {}\r\n") == Verdict(True, "{}")


class InterruptedMachine(Machine):
    """A machine of a command that gets a signal while it launches the machine, and while it terminates it."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(["boot\n"], ["running"])
        self.number = number

    def launch(self, image: str, user_data: str) -> str:
        os.kill(os.getpid(), self.number)
        return super().launch(image, user_data)

    def terminate(self, instance: str) -> None:
        os.kill(os.getpid(), self.number)
        super().terminate(instance)


@pytest.fixture
def no_signal_ignored() -> Iterator[None]:
    """No signal is ignored, as some are under `nohup` or in the background of a shell."""
    before = {one: signal.signal(one, signal.SIG_DFL) for one in SIGNALS}
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


@pytest.mark.usefixtures("no_signal_ignored")
@pytest.mark.parametrize("number", SIGNALS)
def test_no_signal_cuts_off_the_launch_or_the_termination(number: signal.Signals) -> None:
    """A signal ends the next sleep, and the machine is terminated; a second signal changes nothing."""
    before = signal.getsignal(number)
    machine = InterruptedMachine(number)
    with pytest.raises(KeyboardInterrupt):
        publish(machine, "ami-1", NOW, machine.now, interruptible_sleep)
    assert (machine.tags, machine.terminated) == ({}, ["i-1"])
    assert signal.getsignal(number) is before
