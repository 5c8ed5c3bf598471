"""Starts a machine from a new image, lets the image test itself, and shows the image to fleets if it passed.

The machine writes the verdict to its console, so nothing needs to reach it. Then it powers itself off, and that
terminates it.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType

from autoscaler.providers.ec2.images.account import AwsImages
from autoscaler.providers.ec2.tags import MAX_TAG_VALUE, PUBLISHED

PATIENCE = 900.0
"""Seconds from the launch of the machine to its verdict."""

POLL = 5.0
"""Seconds between two looks at the console."""

FAILED = "autoscaler:test-failed"
"""The tag of an image that did not pass: why."""

_LINUX = """\
#!/bin/bash
shutdown -P +20
test=/opt/runner-agent/test-image
if [ -x $test ]; then $test; else echo "image-test: failed: the image has no $test"; fi
shutdown -P now
"""
"""The first line is for a test that hangs. cloud-init writes the output to the console."""

_WINDOWS = """\
<powershell>
shutdown.exe /s /t 1200
$test = 'C:\\runner-agent\\test-image.py'
if (Test-Path $test) { & 'C:\\runner-agent\\python\\python.exe' -I $test }
else {
  $console = New-Object System.IO.Ports.SerialPort 'COM1'
  $console.Open()
  $console.WriteLine("image-test: failed: the image has no $test")
  $console.Close()
}
shutdown.exe /a
shutdown.exe /s /f /t 0
</powershell>
"""
"""The test writes its verdict to COM1, the console. Windows refuses a shutdown while one is scheduled."""

Sleeping = Callable[[], AbstractContextManager[Callable[[float], None]]]
"""Opens a time in which only the function that it gives, a sleep in seconds, may be interrupted."""

USER_DATA: Mapping[str, str] = MappingProxyType({"linux": _LINUX, "windows": _WINDOWS})
"""The user data of the machine that tests an image, by the image's operating system."""

_PASSED, _REFUSED = "image-test: passed ", "image-test: failed: "


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a test. `text` is what the image contains (JSON) if it passed, and otherwise the reason."""

    passed: bool
    text: str


def read_verdict(console: str) -> Verdict | None:
    """Return the verdict in a console's output; None if it has none yet.

    A line that has not ended is not read: EC2 shows output while it is written.
    """
    for line in console.split("\n")[:-1]:
        for start, passed in ((_PASSED, True), (_REFUSED, False)):
            if start in line:
                return Verdict(passed, line.partition(start)[2].strip())
    return None


def try_image(ec2: AwsImages, image: str, now: Callable[[], float], sleeping: Sleeping) -> Verdict:
    """Test an image on a machine, and terminate the machine. Raises ImageEc2Error."""
    user_data = USER_DATA[ec2.platform(image)]
    with sleeping() as sleep:
        instance = ec2.launch(image, user_data)
        try:
            return _wait_for_verdict(ec2, instance, now, sleep)
        finally:
            ec2.terminate(instance)


def _wait_for_verdict(
    ec2: AwsImages, instance: str, now: Callable[[], float], sleep: Callable[[float], None]
) -> Verdict:
    began = now()
    while now() - began < PATIENCE:
        # The state first: output that was written before the end is then in the console.
        state = ec2.state(instance)
        # EC2 checks the machine's tag before it shows the console; a pending machine may not have it yet.
        verdict = None if state == "pending" else read_verdict(ec2.console(instance))
        if verdict is not None:
            return verdict
        if state in ("shutting-down", "terminated", "stopped"):
            return Verdict(False, f"machine {instance} is {state} and printed no verdict")
        sleep(POLL)
    return Verdict(False, f"machine {instance} printed no verdict for {PATIENCE:.0f} s")


def publish(
    ec2: AwsImages,
    image: str,
    moment: str,
    now: Callable[[], float],
    sleeping: Sleeping,
) -> Verdict:
    """Test an image and tag it: as published at `moment` (ISO 8601), or with the reason.

    An image that was published before and fails now is no longer visible to fleets.

    Raises ImageEc2Error.
    """
    verdict = try_image(ec2, image, now, sleeping)
    if verdict.passed:
        ec2.tag(image, {PUBLISHED: moment})
        ec2.untag(image, FAILED)
    else:
        ec2.untag(image, PUBLISHED)
        ec2.tag(image, {FAILED: verdict.text[:MAX_TAG_VALUE] or "unknown"})
    return verdict
