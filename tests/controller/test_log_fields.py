"""Log lines about a job, a machine, a launch request or a runner have its ID."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.reporting.log_fields import (
    job_fields,
    machine_fields,
    runner_name_fields,
)
from autoscaler.model.identifiers import RunnerName
from autoscaler.model.jobs.job import JobState
from tests.controller.agents import launched, say
from tests.controller.controllers import World
from tests.controller.virtual_time import on_virtual_time
from tests.ledger import builders
from tests.planner.fleets import EAST

FOLDER = Path(__file__).parents[2] / "autoscaler" / "controller"
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
NEEDED = {
    "machine": {"machine", "launch_request"},
    "record": {"machine", "launch_request"},
    "job": {"job"},
    "jobs": {"jobs"},
    "request": {"launch_request"},
    "runner": {"runner", "machine"},
}
"""By the name of a variable in a line's fields: the fields that the line needs."""

GIVEN = {
    "machine_fields": {"machine", "launch_request"},
    "job_fields": {"job"},
    "runner_name_fields": {"runner", "machine"},
}
"""By function of `log_fields`: the fields that it gives a line."""


def lines() -> Iterator[tuple[str, ast.Call]]:
    """Yield every call of a logger in the controller, with its place."""
    for path in sorted(FOLDER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "_log"
                and node.func.attr in LEVELS
            ):
                yield f"{path.name}:{node.lineno}", node


def missing(call: ast.Call) -> set[str]:
    """Return the fields that a line needs and does not have."""
    has: set[str] = set()
    needs: set[str] = set()
    for keyword in call.keywords:
        names = {one.id for one in ast.walk(keyword.value) if isinstance(one, ast.Name)}
        needs |= {field for name in names for field in NEEDED.get(name, ())}
        has |= {keyword.arg} if keyword.arg is not None else set()
        has |= {field for name in names for field in GIVEN.get(name, ())}
    if "machine" in has:
        needs |= set() if "runner" in has else {"launch_request"}
    return needs - has


def test_every_line_about_a_record_has_its_ids() -> None:
    found = dict(lines())
    assert len(found) > 25
    assert {place: missing(call) for place, call in found.items() if missing(call)} == {}


@pytest.mark.parametrize(
    ("line", "lacks"),
    [
        ('_log.info("e", sku=machine.sku)', {"machine", "launch_request"}),
        ('_log.info("e", machine=machine.id)', {"launch_request"}),
        ('_log.info("e", runner=runner.name)', {"machine"}),
        ('_log.info("e", sku=job.demand)', {"job"}),
        ('_log.info("e", **machine_fields(machine), sku=machine.sku)', set()),
    ],
)
def test_a_line_without_an_id_is_found(line: str, lacks: set[str]) -> None:
    (statement,) = ast.parse(line).body
    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.Call)
    assert missing(statement.value) == lacks


def test_the_fields_of_a_record_name_it_and_what_belongs_to_it() -> None:
    world = builders.World()
    name = world.ready("c")
    world.queue(1)
    world.starts(1, name)
    assert machine_fields(world.machine("c0")) == {
        "machine": "c0",
        "launch_request": "c",
        "sku": "gpu",
        "provider": EAST,
        "provider_id": "i-c0",
    }
    assert job_fields(world.job(1)) == {"job": 1, "repository": "acme/widgets", "runner": name}
    found = runner_name_fields("ci", RunnerName("ci-0badcafe-x-i-9-1"))
    assert found == {"runner": "ci-0badcafe-x-i-9-1", "machine": "x-i-9"}


@on_virtual_time
async def test_the_start_of_a_job_is_logged_with_job_launch_and_machine() -> None:
    controller, (agent,) = await launched(World())
    assigned = await agent.start_runner()
    with capture_logs() as logs:
        await say(controller, 1, JobState.IN_PROGRESS, assigned.runner)
        await controller.turn()
    (line,) = [one for one in logs if one["event"] == "job_started"]
    machine = controller.only_machine()
    assert (line["job"], line["machine"], line["launch_request"]) == (
        1,
        machine.id,
        machine.launch_request,
    )
    assert line["waited_seconds"] > 0.0
