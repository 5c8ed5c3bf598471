"""The health check that an image brings itself."""

import os
import pwd
from pathlib import Path
from types import ModuleType

import pytest

from tests.agent.doubles import VirtualClock


def install(root: Path, script: str, mode: int = 0o755) -> None:
    """Write the image's program."""
    program = root / "opt/runner-agent/health-check"
    program.parent.mkdir(parents=True)
    program.write_text(script)
    program.chmod(mode)


def check(
    agent: ModuleType, root: Path, clock: VirtualClock | None = None
) -> list[tuple[bool, str]]:
    """Run the image's check, as `nobody` if the test runs as root."""
    host = agent.Host({"root": str(root), "runner_user": "nobody"})
    found = agent.check_image(host, clock or VirtualClock())
    assert {one.name for one in found} <= {"image"}
    return [(one.ok, one.detail) for one in found]


def test_an_image_without_a_check_of_its_own_has_none(agent: ModuleType, open_folder: Path) -> None:
    assert check(agent, open_folder) == []


@pytest.mark.case(
    "a GPU is listed and computes wrongly: the image's own health check fails, and the machine is not used",
    topic="Accelerators",
    source="aws-samples/aws-deep-learning-ami-ubuntu-dcv-desktop#33",
)
@pytest.mark.parametrize(
    ("script", "ok", "detail"),
    [
        ("#!/bin/sh\necho 8 GPUs computed\n", True, "8 GPUs computed"),
        ("#!/bin/sh\n", True, "no output"),
        ("#!/bin/sh\nprintf 'GPU \\377\\n'\n", True, "GPU \ufffd"),
        (
            "#!/bin/sh\necho CUDA error: system not yet initialized >&2\nexit 3\n",
            False,
            "exited with 3: CUDA error: system not yet initialized",
        ),
        ("#!/nowhere/python3\n", False, "is not installed"),
    ],
)
def test_the_images_check_decides(
    agent: ModuleType, open_folder: Path, script: str, ok: bool, detail: str
) -> None:
    install(open_folder, script)
    [(passed, said)] = check(agent, open_folder)
    assert passed is ok
    assert said.endswith(detail)


def test_a_check_that_cannot_be_executed_fails(agent: ModuleType, open_folder: Path) -> None:
    install(open_folder, "#!/bin/sh\n", 0o644)
    [(passed, said)] = check(agent, open_folder)
    assert not passed
    assert said.endswith("does not start: Permission denied")


def test_a_check_that_hangs_fails_after_its_time(agent: ModuleType, open_folder: Path) -> None:
    install(open_folder, "#!/bin/sh\nexec sleep 5\n")
    clock = VirtualClock()
    asked: list[float] = []

    def short(seconds: float) -> float:
        asked.append(seconds)
        return 0.1

    clock.real_timeout = short  # type: ignore[method-assign]
    [(passed, said)] = check(agent, open_folder, clock)
    assert not passed
    assert said.endswith("did not answer in time")
    assert asked == [agent.IMAGE_CHECK]


def test_the_check_runs_as_the_user_of_the_runner(agent: ModuleType, open_folder: Path) -> None:
    """An agent that is not root runs as that user itself."""
    install(open_folder, "#!/bin/sh\necho $(id -u) in $(pwd)\n")
    user = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else os.geteuid()
    assert check(agent, open_folder) == [(True, f"{user} in /")]
