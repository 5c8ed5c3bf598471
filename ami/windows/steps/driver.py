"""NVIDIA's driver, installed by the agent as `driver: install` does it at boot.

The plan is that of `autoscaler images driver --os windows`. The build machine must have a GPU: only then can
the driver be tested.
"""

import json
import shutil

from library import AGENT_FOLDER, BUILD, PYTHON, STATE, StepError, note, run, say

AGENT = AGENT_FOLDER / "agent.py"
PLAN = BUILD / "driver.json"
SECONDS = 3000.0
"""More than the budget that the plan has."""


def planned(key: str) -> str:
    """Return a text of the plan, or nothing."""
    return str(json.loads(PLAN.read_text("utf-8")).get(key, ""))


def before() -> None:
    """Check the agent and the plan."""
    if not AGENT.is_file():
        raise StepError(f"{AGENT} is missing: the step agent installs it")
    if planned("vendor") != "nvidia":
        raise StepError("driver.json is no plan of NVIDIA's driver: set -var driver_plan=FILE")


def apply() -> None:
    """Let the agent install the driver."""
    say(run(PYTHON, "-I", "-S", AGENT, "install-driver", PLAN, seconds=SECONDS).strip())
    # Its downloads.
    shutil.rmtree(STATE / "state", ignore_errors=True)


def after() -> None:
    """Ask the driver for its version, in words that an error does not have."""
    said = run("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    found = " ".join(sorted(set(said.split())))
    if found != planned("version"):
        raise StepError(f"the GPUs have driver '{found}', not {planned('version')}")
    note("driver", found)
