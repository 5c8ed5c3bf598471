"""How soon jobs get runners after the cause of a refusal is corrected, in virtual time.

Each cause lasts 40 minutes. Meanwhile jobs wait, and the controller probes about once a minute.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from autoscaler.controller.ports.github import OperatorError
from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.identifiers import Seconds
from autoscaler.model.jobs.job import JobState
from autoscaler.providers.ec2.errors import meaning, unsent_failure_class
from tests.controller.controllers import World
from tests.controller.living_world import LivingWorld
from tests.controller.virtual_time import on_virtual_time

LASTS: Seconds = 2400.0
JOBS = 5
WITHIN: Seconds = 90.0
MANY = 100_000


@dataclass
class Cause:
    """Begins when it is created. `end` corrects it; `probes` are the requests that it refused."""

    end: Callable[[], None]
    probes: Callable[[], int]


def refused_by_github(world: World, message: str) -> Cause:
    script = world.github.scripts["register"]
    script.extend([OperatorError(message)] * MANY)
    return Cause(script.clear, lambda: world.github.asked.count("register"))


def refused_by_ec2(world: World, code: str) -> Cause:
    found = meaning(code)
    error = ProviderError(found.failure, code, "refused", scope=found.scope)
    world.east.launch_script.extend([error] * MANY)
    return Cause(world.east.launch_script.clear, lambda: len(world.east.sent))


def refused_before_sending(world: World, code: str) -> Cause:
    error = ProviderError(unsent_failure_class(code), code, "refused")
    world.east.prepare_script.extend([error] * MANY)
    return Cause(world.east.prepare_script.clear, lambda: len(world.east.prepared))


CAUSES = {
    "credentials missing": (refused_before_sending, "NoCredentialsError"),
    "credentials wrong": (refused_by_ec2, "AuthFailure"),
    "credentials expired": (refused_by_ec2, "ExpiredToken"),
    "App key": (refused_by_github, "401 A JSON web token could not be decoded"),
    "permission at EC2": (refused_by_ec2, "UnauthorizedOperation"),
    "permission at GitHub": (refused_by_github, "403 Resource not accessible by integration"),
    "image": (refused_by_ec2, "InvalidAMIID.NotFound"),
    "image not found": (refused_before_sending, "InvalidAMIID.NotFound"),
    "subnet": (refused_by_ec2, "InvalidSubnetID.NotFound"),
    "subnet full": (refused_by_ec2, "InsufficientFreeAddressesInSubnet"),
    "security group": (refused_by_ec2, "InvalidGroup.NotFound"),
    "quota of a family": (refused_by_ec2, "VcpuLimitExceeded"),
    "quota of the account": (refused_by_ec2, "MaxFleetCountExceeded"),
    "no spot": (refused_by_ec2, "AuthFailure.ServiceLinkedRoleCreationNotPermitted"),
    "runner group": (refused_by_github, "404 org:acme has no runner group gpu"),
    "repository gone": (refused_by_github, "404 Not Found"),
    "template gone": (refused_by_ec2, "InvalidLaunchTemplateId.NotFound"),
    "clock at EC2": (refused_by_ec2, "RequestExpired"),
    "clock signs": (refused_by_ec2, "SignatureDoesNotMatch"),
    "clock at GitHub": (refused_by_github, "401 'Issued at' claim ('iat') must be in the past"),
}


@pytest.mark.case(
    "a configuration error is corrected after 40 minutes: the next launch follows within 90 seconds",
    topic="EC2's API",
    source="EC2: error codes",
)
@pytest.mark.parametrize("name", list(CAUSES))
@on_virtual_time
async def test_all_jobs_run_soon_after_the_cause_of_a_refusal_is_corrected(name: str) -> None:
    begin, says = CAUSES[name]
    world = World()
    cause, living = begin(world, says), LivingWorld(world)
    for job in range(1, JOBS + 1):
        living.queue(job)
    running = asyncio.create_task(living.run([None], limit=2 * LASTS))
    await asyncio.sleep(LASTS)
    assert not any(job.starts for job in living.jobs.values())
    # The first plan and two more failures are not probes of one machine.
    assert 30 <= cause.probes() <= 80, "about one a minute while jobs wait"
    cause.end()
    at, known = world.clock.now(), (len(world.east.running), len(world.github.registered))
    await asyncio.sleep(WITHIN)
    assert (len(world.east.running), len(world.github.registered)) != known
    await running
    assert living.crashes == []
    assert {job.state for job in living.jobs.values()} == {JobState.COMPLETED}
    ended = max(job.snapshots[-1][0] for job in living.jobs.values())
    assert ended - at <= WITHIN + 120.0, "not only the probe's job: a boot takes 20 s, a job 60 s"
