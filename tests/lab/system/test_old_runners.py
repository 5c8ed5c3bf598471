"""An image whose runner GitHub refuses: wasted machines, log lines, and the recovery."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from autoscaler.model.machines.machine import ExitReason
from lab.ec2.lifecycle import RUNNER_TAG
from lab.ec2.moto import MotoProcess
from lab.laboratory import LabFleet, Laboratory
from lab.machine_host import RUNNER_VERSION
from tests.lab.system.harness import (
    SKU_TAG,
    Operator,
    at_rest,
    ec2_sku,
    job,
    read_records,
    shows,
    until,
)
from tests.lab.system.pace import PATIENCE, yielding

OLD, NEW = "2.320.0", "2.336.0"


@pytest_asyncio.fixture
async def lab(moto: MotoProcess) -> AsyncIterator[Laboratory]:
    skus = {"gpu": ec2_sku("g5.xlarge", max_machines=10)}
    fleet = LabFleet("acme", ("widgets",), skus, scale=yielding(60.0), runner_versions={"gpu": OLD})
    async with Laboratory(fleet, moto) as made:
        await made.start_controller()
        yield made


def logged(lab: Laboratory, event: str) -> list[dict[str, object]]:
    """The controller's log lines of one event."""
    lines = (lab.folder / "controller.log").read_text().splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [one for one in found if one.get("event") == event]


@pytest.mark.case(
    "GitHub refuses the version of a runner: the SKU's circuit breaker opens with the second, with image "
    "and version, until the image is replaced or an operator closes it",
    topic="Runner and listener",
    source="actions/runner#1991",
)
async def test_an_image_with_a_refused_runner_wastes_at_most_a_machine_for_each_job(
    lab: Laboratory,
) -> None:
    jobs = lab.github.push([job(f"build-{number}", "gpu", 30.0) for number in range(4)])
    await until(lambda: bool(logged(lab, "circuit_opened")), PATIENCE, lab.controller.log_end)
    (opened, *_) = logged(lab, "circuit_opened")
    (image,) = lab.ec2.images.named("gpu-*")
    assert f"GitHub refuses actions/runner {OLD} in image {image.id}" in str(opened["reason"])
    exited = "runner_exited_without_job"
    await until(lambda: bool(logged(lab, exited)), PATIENCE, lab.controller.log_end)
    assert logged(lab, exited)[0]["runner_version"] == OLD
    lab.ec2.images.publish(image, "gpu-2", {RUNNER_TAG: NEW})
    await at_rest(lab, PATIENCE)
    assert [one.conclusion for one in jobs] == ["success"] * 4
    assert [len(one.starts) for one in jobs] == [1] * 4
    machines = read_records(lab).machines
    refused = [m for m in machines if m.work.exit_reason is ExitReason.VERSION_DEPRECATED]
    assert {machine.progress.runner_version for machine in refused} == {OLD}
    # One for each job, and a probe where the host is so slow that five minutes pass.
    assert 1 <= len(refused) <= 5
    assert len([one for one in lab.ec2.instances if one.tags[SKU_TAG] == "gpu"]) <= 9
    # A machine of the old image may still be refused after that, and opens the circuit breaker again.
    closings, openings = (len(logged(lab, f"circuit_{word}")) for word in ("closed", "opened"))
    assert 1 <= closings <= openings <= len(refused)
    # The health checks of all these machines have taken nothing of the address's 60 an hour.
    assert lab.github.anonymous_calls == 0


@pytest.mark.case(
    "GitHub sets the end of a version of actions/runner: it is known for each SKU's machines weeks "
    "before GitHub refuses them",
    topic="Runner and listener",
    source="GitHub: ends of runner versions",
)
async def test_the_day_on_which_github_refuses_the_runner_is_shown(
    moto: MotoProcess,
) -> None:
    skus = {"gpu": ec2_sku("g5.xlarge"), "cpu": ec2_sku("m5.xlarge")}
    async with Laboratory(LabFleet("acme", ("widgets",), skus, scale=yielding(60.0)), moto) as lab:
        end = int(lab.clock.now() + 5 * 86_400.0)
        lab.github.end_runner_version(RUNNER_VERSION, end)
        await lab.start_controller()
        lab.github.push([job("build", "gpu", 30.0)])
        name = "autoscaler_runner_version_deadline_timestamp_seconds"
        # No machine of the other SKU has reported a version.
        expected = {f'{name}{{sku="gpu"}}': end, f'{name}{{sku="cpu"}}': None}
        await shows(lab, expected, PATIENCE)
        _, printed = await Operator(lab).says("status")
        words = " ".join(printed.split())
        expected_words = f"no more jobs to actions/runner {RUNNER_VERSION} of its image in"
        assert expected_words in words
        await at_rest(lab, PATIENCE)
