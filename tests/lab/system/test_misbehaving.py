"""Machines that misbehave on purpose: how each ends, when, and what is counted meanwhile.

All stories of `misbehaving` run at once, in one laboratory. Times are lab seconds, and lower bounds are the
design's own. Upper bounds count scrapes, because a busy host delays these like everything else.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from autoscaler.model.jobs.runners import RunnerState
from autoscaler.model.machines.due import POWER_OFF_TIME
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import FOUND_REASONS, MachineState, TerminationReason
from lab.ec2.lifecycle import BY_ITSELF, BY_USER
from lab.ec2.moto import MotoProcess
from lab.laboratory import Laboratory
from lab.machines.misbehaving_host import PANIC
from lab.machines.misbehaviour import Misbehaviour
from tests.lab.system.harness import history_of, job, moments_of, read_records
from tests.lab.system.misbehaving import EARLY, STORIES, Outcome, Sample, fleet, live

pytestmark = pytest.mark.asyncio(loop_scope="module")

LATE = 25
"""Maximum number of scrapes between a deadline and its effect: 500 lab seconds on a quiet host."""
SEEN_WITHIN = 150.0
"""The controller updates its counts once a real second, and scrapes are five times as frequent."""


EVERY_STORY = pytest.mark.parametrize("name", sorted(STORIES))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outcome(moto: MotoProcess) -> AsyncIterator[Outcome]:
    """Run every story to its end."""
    async with Laboratory(fleet(), moto) as lab:
        await lab.start_controller()
        jobs = {
            name: lab.github.push([job(f"{name}-{n}", name, s) for n, s in enumerate(story.jobs)])
            for name, story in STORIES.items()
        }
        samples: list[Sample] = []
        await live(lab, jobs, samples)
        assert await lab.controller.terminate() == 0
        records = read_records(lab)
        misdeeds = {name: deeds[0] for name, deeds in lab.misdeeds.items()}
        instances = {deed.instance_id: name for name, deed in misdeeds.items()}
        yield Outcome(
            records,
            jobs,
            tuple(lab.ec2.instances),
            misdeeds,
            samples,
            lab.github.runners,
            {
                instances[one.placement.provider_id]: history_of(lab, one.id, "console")
                for one in records.machines
                if one.placement.provider_id in instances
            },
            {one.id: history_of(lab, one.id, MachineState.FAILED) for one in records.machines},
            moments_of(lab, MachineState.EXITED),
            moments_of(lab, MachineState.TERMINATING),
        )


@pytest.mark.case(
    "the listener acknowledges a job message, and no worker starts",
    topic="Runner and listener",
    source="actions/runner#4668; actions/runner#4703; actions/runner#4191; actions/runner#4076",
    param="no-worker",
)
@pytest.mark.case(
    "a listener hangs under its job: GitHub fails the job after 10 minutes, and the machine does "
    "not stay for hours",
    topic="Runner and listener",
    source="actions/runner#4668; actions/runner#3539",
    param="hangs-at-work",
)
@pytest.mark.case(
    "a listener hangs before any job",
    topic="Runner and listener",
    source="actions/runner#4617",
    param="hangs-idle",
)
@pytest.mark.case(
    "a machine never boots: it counts as supply until its boot deadline, then it is terminated "
    "and replaced",
    topic="EC2's machines",
    source="Karpenter liveness.go; GAR#5007",
    param="never-boots",
)
@pytest.mark.case(
    "user data starts no agent: the scheduled shutdown powers the machine off",
    topic="EC2's machines",
    source="EC2: user data",
    param="no-agent",
)
@pytest.mark.case(
    "a machine fails its health checks: it is terminated at once and replaced",
    topic="EC2's machines",
    source="ARC#3685",
    param="fails-health-checks",
)
@pytest.mark.case(
    "a machine loses its connection to the controller under a job: it may finish",
    topic="EC2's machines",
    source="GAR#4391",
    param="silent-at-work",
)
@pytest.mark.case(
    "a machine has finished and does not power off: it is terminated two minutes after its exit",
    topic="EC2's machines",
    source="ARC#4197",
    param="stays-on",
)
@pytest.mark.case(
    "a machine reports its exit while GitHub shows its runner busy: only that machine is "
    "terminated",
    topic="EC2's machines",
    source="GitHub: secure use",
    param="exits-at-work",
)
@EVERY_STORY
async def test_a_misbehaving_machine_is_terminated_for_the_right_reason_and_in_time(
    outcome: Outcome, name: str
) -> None:
    story, deed, machine = STORIES[name], outcome.misdeeds[name], outcome.machine(name)
    (instance,) = (one for one in outcome.instances if one.id == deed.instance_id)
    assert deed.at is not None
    assert instance.ended_at is not None
    never_booted = story.kind is Misbehaviour.NEVER_BOOTS
    began = instance.launched_at if never_booted else deed.at
    assert instance.ended_at - began >= story.after - story.early
    assert outcome.scrapes(began + story.after, instance.ended_at) <= LATE
    assert machine.state is MachineState.TERMINATED
    assert machine.failure is story.failure
    if story.failure is FailureClass.HEALTH_CHECK:
        return  # it powers off while it is being ended: either may come first
    reason = machine.termination.reason
    if reason is TerminationReason.EXITED:
        assert outcome.terminating[machine.id] - outcome.exited[machine.id] >= POWER_OFF_TIME
        if story.reason_code is TerminationReason.POWERED_OFF:
            return  # on a slow host it did not power itself off in that time
    assert reason is story.reason_code
    assert instance.reason is not None
    by_itself = story.reason_code in {*FOUND_REASONS, TerminationReason.FAILED}
    assert instance.reason[0] == (BY_ITSELF if by_itself else BY_USER)[0]


@pytest.mark.case(
    "a machine with a registration vanishes: it counts until GitHub has shown twice that its work"
    " is over",
    topic="EC2's machines",
    source="GAR#5085",
    param="vanishes-acknowledged",
)
@pytest.mark.case(
    "a machine with a registration vanishes: it counts until GitHub has shown twice that its work"
    " is over",
    topic="EC2's machines",
    source="GAR#5085",
    param="vanishes-handed",
)
@pytest.mark.case(
    "registrations without a machine and failed runners use up capacity",
    topic="Complaints about other fleets",
    source="ARC#3685; ARC#3821; ARC#4168; ARC#4258; ARC#4602; GAR#5007",
)
@EVERY_STORY
async def test_a_misbehaving_machine_is_counted_until_it_is_terminated(
    outcome: Outcome, name: str
) -> None:
    story, deed = STORIES[name], outcome.misdeeds[name]
    first = outcome.instances_of(name)[0]
    assert first.id == deed.instance_id
    assert deed.at is not None
    assert first.ended_at is not None
    since = deed.at + SEEN_WITHIN
    seen = outcome.counted(name, since, first.ended_at)
    for counts in seen:
        assert any(counts[state] for state in (*story.counted, MachineState.TERMINATING)), counts
        assert counts.total() <= story.cap
        if story.replaced is None and not counts[MachineState.TERMINATING]:
            assert counts.total() == 1
    assert len(seen) >= min(3, (first.ended_at - since) // 200)


@pytest.mark.case(
    "a machine never boots: it counts as supply until its boot deadline, then it is terminated "
    "and replaced",
    topic="EC2's machines",
    source="Karpenter liveness.go; GAR#5007",
    param="never-boots",
)
@pytest.mark.case(
    "a ready machine vanishes: it counts as supply for five minutes, then it is terminated and "
    "replaced",
    topic="EC2's machines",
    source="ARC#4258",
    param="vanishes-warm",
)
@pytest.mark.case(
    "a ready machine vanishes: it counts as supply for five minutes, then it is terminated and "
    "replaced",
    topic="EC2's machines",
    source="ARC#4258",
    param="vanishes-ready",
)
@EVERY_STORY
async def test_a_misbehaving_machine_is_supply_only_while_it_may_serve_a_job(
    outcome: Outcome, name: str
) -> None:
    story, deed = STORIES[name], outcome.misdeeds[name]
    first, *others = outcome.instances_of(name)
    if story.alone:
        assert others == []
        return
    # If GitHub still shows the job on the first machine, a second machine may wait without a job.
    second = others[0]
    assert len(others) <= (3 if story.kind is Misbehaviour.NO_WORKER else 1)
    assert deed.at is not None
    assert first.ended_at is not None
    assert first.terminated_at is not None
    if story.replaced is None:
        free = first.terminated_at if story.cap == 1 else first.ended_at - EARLY
        assert free <= second.launched_at + 1.0, "EC2 gives launch times in whole seconds"
        assert outcome.scrapes(first.terminated_at, second.launched_at) <= LATE
    else:
        assert second.launched_at - deed.at >= story.replaced - EARLY
        assert outcome.scrapes(deed.at + story.replaced, second.launched_at) <= LATE
        assert second.launched_at < first.ended_at


@pytest.mark.case(
    "the listener acknowledges a job message, and no worker starts",
    topic="Runner and listener",
    source="actions/runner#4668",
    param="no-worker",
)
@EVERY_STORY
async def test_no_job_is_lost_or_run_twice(outcome: Outcome, name: str) -> None:
    story, jobs = STORIES[name], outcome.jobs[name]
    assert tuple(one.conclusion for one in jobs) == story.ended
    assert [len(one.starts) for one in jobs] == [1] * len(jobs)


@pytest.mark.case(
    "why a machine did not come up: its history has the end of its console output",
    topic="EC2's machines",
    source="EC2: GetConsoleOutput",
)
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("never-boots", PANIC.strip()),
        ("no-agent", "runner-agent: not on this image"),
        ("fails-health-checks", None),
        ("loses-gpu", None),
        ("stays-on", None),
    ],
)
async def test_the_console_text_of_a_failed_boot_is_in_the_history(
    outcome: Outcome, name: str, shown: str | None
) -> None:
    consoles = outcome.consoles[name]
    assert [one.endswith(shown) for one in consoles] == [True] if shown else consoles == []


@pytest.mark.case(
    "a machine boots with one GPU too few: it gets no job, it is replaced, and the operator reads which check "
    "failed",
    topic="Accelerators",
    source="NVIDIA/NVSentinel#155; JosephKJ/OWOD#81",
)
@pytest.mark.parametrize("name", ["loses-gpu", "loses-gpu-of-its-type"])
async def test_a_machine_with_a_gpu_too_few_gets_no_registration(
    outcome: Outcome, name: str
) -> None:
    machine = outcome.machine(name)
    assert outcome.failures[machine.id] == ["gpu_count: 3 found, and 4 wanted"]
    assert not [one for one in outcome.records.runners if one.machine == machine.id]
    assert machine.progress.ready_at is None
    last = outcome.samples[-1][1]
    labels = f'check="gpu_count",image="{machine.placement.image}",sku="{name}"'
    assert last[f"autoscaler_health_checks_failed_total{{{labels}}}"] == 1
    [second] = outcome.instances_of(name)[1:]
    assert second.id != outcome.misdeeds[name].instance_id


@pytest.mark.case(
    "a registration outlives its machine: GitHub gives it no job",
    topic="Runner and listener",
    source="actions/runner#3669",
)
async def test_a_registration_whose_machine_ended_gets_no_job(outcome: Outcome) -> None:
    """The controller removes it, or GitHub after a day offline. See actions/runner#3669."""
    gone = outcome.machine("vanishes-handed")
    (runner,) = (one for one in outcome.records.runners if one.machine == gone.id)
    assert runner.state is RunnerState.DONE
    left = [(one.name, one.online, one.job) for one in outcome.registrations]
    assert [one for one in left if one[0] == runner.name] in ([], [(runner.name, False, None)])
    assert {(online, job) for _, online, job in left} <= {(False, None)}


@pytest.mark.case(
    "a machine reboots before it has a registration: it attests again with a new nonce, and stays"
    " the same machine",
    topic="EC2's machines",
    source="cloud-init: boot stages",
)
async def test_a_reboot_before_the_assignment_is_a_new_attestation(outcome: Outcome) -> None:
    deed = outcome.misdeeds["reboots-ready"]
    assert deed.attestations == 2
    assert deed.exits == 1


@pytest.mark.case(
    "a machine reboots after it received its registration: it is refused, and powers off after 15"
    " minutes",
    topic="EC2's machines",
    source="EC2: reboot",
)
async def test_a_reboot_after_the_assignment_is_refused(
    outcome: Outcome,
) -> None:
    """A job may have read its proof, so attestations are refused until the agent gives up."""
    deed = outcome.misdeeds["reboots-handed"]
    assert deed.attestations > 10
    assert deed.exits == 0
    assert outcome.machine("reboots-handed").work.tries == 1


@pytest.mark.case(
    "a machine reboots under its job: its marker powers it off, and GitHub fails the job when the"
    " lock ends",
    topic="EC2's machines",
    source="EC2: reboot; actions/runner#3539",
)
async def test_after_a_reboot_during_its_job_a_machine_sends_nothing(outcome: Outcome) -> None:
    deed = outcome.misdeeds["reboots-at-work"]
    assert (deed.attestations, deed.exits) == (1, 0)


@pytest.mark.case(
    "a job with root lies: another machine's id, an invented nonce, the document again, the "
    "health checks twice",
    topic="Hostile input",
    source="EC2: instance identity documents; GitHub: secure use",
)
async def test_false_reports_are_refused_or_change_nothing(outcome: Outcome) -> None:
    """Requests that a job with root could send: no other machine is affected."""
    answers = dict(outcome.misdeeds["lies"].answers)
    statuses = {lie: {status for other, status in answers if other == lie} for lie, _ in answers}
    assert statuses == {
        "its own health checks, twice": {204},
        "its own health checks, failed": {204},
        "an assignment again": {409},
        "another's runner": {409},
        "an attestation with another nonce": {409},
        "an unknown machine's poll": {401},
        "health-checks with a made-up nonce": {401},
        "exit with a made-up nonce": {401},
        "another's exit": {401},
        "another's release": {401},
        "another's health-checks": {401},
    }
    assert answers["another's exit", 401] >= 8
