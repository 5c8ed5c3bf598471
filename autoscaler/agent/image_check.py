"""The health check that an image brings itself, such as a short computation on each GPU."""

from __future__ import annotations

import os

from autoscaler.agent.actions import BadSettings
from autoscaler.agent.clock import Clock
from autoscaler.agent.host import WINDOWS, Host
from autoscaler.agent.limits import IMAGE_CHECK
from autoscaler.agent.programs import NotInstalled, NoUsableAnswer, last_line, run_program
from autoscaler.agent.runner.account import runner_account
from autoscaler.agent.verdicts import Check

PROGRAM = "/opt/runner-agent/health-check"


def check_image(host: Host, clock: Clock) -> list[Check]:
    """Run the image's program as the user of the runner, which shows whether jobs may open the devices.

    Without such a program, and on Windows, there is no check.
    """
    path = host.root + PROGRAM
    if WINDOWS or not os.path.lexists(path):
        return []
    try:
        identity, variables = runner_account(host)
        environment = {**os.environ, **variables}
        done = run_program([path], clock.network(IMAGE_CHECK), env=environment, cwd="/", **identity)
    except (BadSettings, NotInstalled, NoUsableAnswer) as error:
        return [Check("image", False, str(error))]
    detail = last_line(done.text)
    if done.status != 0:
        return [Check("image", False, f"exited with {done.status}: {detail}")]
    return [Check("image", True, detail)]
