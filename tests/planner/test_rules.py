"""The ten rules as properties of arbitrary histories of a fleet."""

import copy
import dataclasses
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from autoscaler.ledger.ledger import Ledger
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model import events as e
from autoscaler.model.catalogue import (
    CapacityType,
    IdlePolicy,
    LaunchRate,
    Limits,
    Rate,
    RegistrationRate,
    ScheduledMinimum,
    Scope,
)
from autoscaler.model.changes import Record
from autoscaler.model.cooldowns import Cooldown, boots_key, exits_key, launch_option_key
from autoscaler.model.identifiers import JobId, MachineId, ProviderMachineId, RunnerName, SkuName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.jobs.runners import RunnerState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.launch_requests import LaunchRequest, LaunchRequestState
from autoscaler.model.machines.machine import (
    KEPT_IN_QUARANTINE,
    Machine,
    MachineState,
    TerminationReason,
)
from autoscaler.model.operators import (
    WHOLE_FLEET,
    HoldKind,
    HoldTarget,
    drain_of,
    launch_hold,
    machine_target,
    parse_hold_key,
    provider_target,
    quarantine_of,
    sku_target,
)
from autoscaler.model.plan import Assign, CancelLaunchRequest, Launch, Plan, Terminate
from autoscaler.planner.planner import plan
from tests.ledger.builders import ALICE
from tests.planner.fleets import EAST, apply_plan, catalogue, offering, queued, sku

GPU = SkuName("gpu")
GROUPS = (WHOLE_FLEET, sku_target(GPU), sku_target(SkuName("cpu")), provider_target(EAST))
UNASSIGNED_REASONS = frozenset(TerminationReason) - {
    TerminationReason.EXITED,
    TerminationReason.SILENT_AND_FINISHED,
    TerminationReason.LIFETIME,
    TerminationReason.OPERATOR,
}
"""Termination reasons that are valid only for machines that never got a registration."""
SPOT = offering("g6.xlarge", "a", CapacityType.SPOT, 0.4, "G-spot")
CATALOGUE = catalogue(
    dataclasses.replace(
        sku(
            "gpu",
            offerings=(SPOT, offering(zone="a"), offering("g5.2xlarge", "b", dollars=1.5, units=8)),
            labels=("shared",),
            max_machines=4,
            idle=IdlePolicy(minimum=1, timeout=600.0),
        ),
        fair_share=0.5,
    ),
    sku(
        "cpu",
        offerings=(offering("c7i.large", "a", dollars=0.1, quota="Std", units=2),),
        labels=("shared",),
        idle=IdlePolicy(0, 300.0, (ScheduledMinimum("*/30 * * * *", "UTC", 600.0, 1),), 3600.0),
    ),
    limits=Limits(machines=7, dollars_per_hour=5.0, quotas={"east/G": 20}),
)
LABELS = (("gpu",), ("cpu",), ("shared",), ("self-hosted", "GPU", "linux"), ("other",))


class FleetSteps(RuleBasedStateMachine):
    """Random steps of GitHub, a provider, machines, the clock and the planner."""

    catalogue = CATALOGUE

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000.0
        self.ledger = Ledger(self.catalogue)
        self.ledger.apply(e.ControllerStarted(self.now, 0.0))
        self.jobs = 0
        self.machines = 0
        self.planned = 0
        self.truly_busy: dict[RunnerName, MachineId] = {}
        self.backup: tuple[float, list[Record], tuple[Cooldown, ...]] | None = None

    @property
    def state(self) -> LedgerState:
        return self.ledger.state

    # --- GitHub ---------------------------------------------------------------------------------

    @rule(
        labels=st.sampled_from(LABELS),
        copies=st.integers(1, 3),
        repository=st.sampled_from(["acme/widgets", "acme/Gadgets", "other/things"]),
    )
    def job_is_queued(self, labels: tuple[str, ...], copies: int, repository: str) -> None:
        for _ in range(copies):
            self.jobs += 1
            event = queued(self.jobs, self.now, *labels)
            self.ledger.apply(dataclasses.replace(event, repository=repository))

    @precondition(lambda self: self.jobs > 0)
    @rule(data=st.data())
    def job_is_spoken_of(self, data: st.DataObject) -> None:
        job = data.draw(st.integers(1, self.jobs))
        state = data.draw(st.sampled_from(list(JobState)))
        read = data.draw(st.booleans())
        known = self.state.jobs.get(JobId(job))
        if known is None or state is JobState.IN_PROGRESS:
            return
        event = queued(job, known.queued_at, *known.labels, state=state)
        self.ledger.apply(
            e.JobObserved(
                self.now,
                event.id,
                state,
                event.repository,
                event.labels,
                event.queued_at,
                read=read,
            )
        )
        if state is JobState.COMPLETED and known.runner_name is not None:
            self.truly_busy.pop(known.runner_name, None)

    @rule(data=st.data())
    def job_starts(self, data: st.DataObject) -> None:
        idle = [r for r in self.state.runners.values() if r.state is RunnerState.LISTENING]
        waiting = [j for j in self.state.jobs.values() if j.state is JobState.QUEUED]
        if not idle or not waiting:
            return
        runner = data.draw(st.sampled_from(idle))
        job = data.draw(st.sampled_from(waiting))
        self.truly_busy[runner.name] = runner.machine
        if data.draw(st.booleans()):
            self.ledger.apply(
                e.JobObserved(
                    self.now,
                    job.id,
                    JobState.IN_PROGRESS,
                    job.repository,
                    job.labels,
                    job.queued_at,
                    runner_name=runner.name,
                )
            )

    @rule(scope=st.sampled_from(["acme", "other"]))
    def registrations_are_listed(self, scope: str) -> None:
        at_work = tuple(self.truly_busy)
        self.ledger.apply(e.RunnersListed(self.now, f"org:{scope}", self.now, at_work))

    @rule(data=st.data(), ok=st.booleans())
    def runner_is_registered_or_not(self, data: st.DataObject, ok: bool) -> None:
        named = [r for r in self.state.runners.values() if r.state is RunnerState.NAMED]
        if not named:
            return
        runner = data.draw(st.sampled_from(named))
        if runner.name in self.truly_busy:
            self.ledger.apply(e.RunnerClosed(self.now, runner.name, "the name is taken"))
        elif ok:
            self.ledger.apply(e.RunnerRegistered(self.now, runner.name, 7))
        else:
            self.ledger.apply(
                e.RunnerRegistrationFailed(
                    self.now, runner.name, FailureClass.THROTTLED, "slow down", self.now + 30
                )
            )

    @rule(data=st.data())
    def runner_is_deregistered(self, data: st.DataObject) -> None:
        leaving = [r for r in self.state.runners.values() if r.state is RunnerState.DEREGISTERING]
        if leaving:
            runner = data.draw(st.sampled_from(leaving))
            busy = runner.name in self.truly_busy
            reported = e.RunnerClosed if busy else e.RunnerDeregistered
            self.ledger.apply(reported(self.now, runner.name, "busy" if busy else "gone"))

    # --- the provider ---------------------------------------------------------------------------

    def calls(self, *states: LaunchRequestState) -> list[LaunchRequest]:
        return [c for c in self.state.launch_requests.values() if c.state in states]

    @rule(data=st.data())
    def call_is_sent(self, data: st.DataObject) -> None:
        recorded = self.calls(LaunchRequestState.RECORDED)
        if recorded:
            call = data.draw(st.sampled_from(recorded))
            self.ledger.apply(e.LaunchRequestPrepared(self.now, call.id, "{}"))
            self.ledger.apply(e.LaunchRequestSent(self.now, call.id))

    @rule(data=st.data())
    def call_is_answered(self, data: st.DataObject) -> None:
        sent = self.calls(LaunchRequestState.SENT)
        if not sent:
            return
        call = data.draw(st.sampled_from(sent))
        if data.draw(st.integers(0, 3)) == 0:
            self.ledger.apply(e.LaunchOutcomeUnknown(self.now, call.id, "timed out"))
            return
        given = data.draw(st.integers(0, len(call.slots)))
        failures: tuple[e.LaunchFailure, ...] = ()
        if given < len(call.slots):
            failure = data.draw(st.sampled_from(list(FailureClass)[:4]))
            which = data.draw(st.sampled_from([None, *call.offerings]))
            failures = (e.LaunchFailure(failure, "Code", "words", which),)
        self.ledger.apply(
            e.LaunchRequestAnswered(
                self.now, call.id, tuple(self._new(call) for _ in range(given)), failures
            )
        )

    def _new(self, call: LaunchRequest) -> e.LaunchedMachine:
        self.machines += 1
        chosen = self.state.offerings[call.offerings[self.machines % len(call.offerings)]]
        return e.LaunchedMachine(
            ProviderMachineId(f"i-{self.machines}"),
            chosen.instance_type,
            chosen.zone,
            chosen.capacity_type,
            "ami-1",
            f"t{self.machines}",
        )

    @rule(data=st.data(), complete=st.booleans())
    def machines_are_listed(self, data: st.DataObject, complete: bool) -> None:
        listed = []
        for machine in self.bound():
            fate = data.draw(st.sampled_from(["shown", "shown", "terminated", "hidden"]))
            over = machine.state in (
                MachineState.TERMINATING,
                MachineState.EXITED,
                MachineState.TERMINATED,
            )
            if fate == "hidden" or (fate == "terminated" and not over):
                continue
            listed.append(self._listed(machine, fate == "terminated"))
        unknown = [
            call for call in self.calls(LaunchRequestState.UNKNOWN) if data.draw(st.booleans())
        ]
        listed.extend(self._unbound(call) for call in unknown)
        self.ledger.apply(e.MachinesListed(self.now, EAST, self.now - 1.0, complete, tuple(listed)))

    def bound(self) -> list[Machine]:
        return [m for m in self.state.machines.values() if m.placement.provider_id is not None]

    def _listed(self, machine: Machine, terminated: bool) -> e.ListedMachine:
        assert machine.placement.provider_id is not None
        return e.ListedMachine(
            machine.placement.provider_id,
            self.catalogue.installations.own,
            machine.launch_request,
            machine.sku,
            terminated,
            machine.placement.instance_type,
            machine.placement.zone,
            CapacityType.ON_DEMAND,
            machine.placement.dollars_per_hour,
            machine.placement.quota_usage,
            "ami-1",
            "t",
        )

    def _unbound(self, call: LaunchRequest) -> e.ListedMachine:
        new = self._new(call)
        chosen = self.state.offerings[call.offerings[0]]
        return e.ListedMachine(
            new.provider_id,
            self.catalogue.installations.own,
            call.id,
            call.sku,
            False,
            new.instance_type,
            new.zone,
            new.capacity_type,
            chosen.dollars_per_hour,
            ((chosen.quota_key, chosen.quota_units),),
            "ami-1",
            "t",
        )

    # --- machines -------------------------------------------------------------------------------

    def in_state(self, *states: MachineState) -> list[Machine]:
        return [m for m in self.state.machines.values() if m.state in states]

    def is_busy(self, machine: MachineId) -> bool:
        """Return True if the machine really runs a job, whatever the store says."""
        return machine in self.truly_busy.values()

    @rule(data=st.data(), ok=st.integers(0, 5))
    def machine_boots(self, data: st.DataObject, ok: int) -> None:
        states = (MachineState.LAUNCHED, MachineState.BOOTED)
        booting = [m for m in self.in_state(*states) if not self.is_busy(m.id)]
        if not booting:
            return
        machine = data.draw(st.sampled_from(booting))
        self.ledger.apply(e.MachineAttested(self.now, machine.id, "hash"))
        self.ledger.apply(e.HealthChecksReported(self.now, machine.id, ok > 0, "health-checks"))

    @rule(data=st.data())
    def machine_takes_its_assignment(self, data: st.DataObject) -> None:
        registered = [
            r
            for r in self.state.runners.values()
            if r.state is RunnerState.REGISTERED
            and self.state.machines[r.machine].state is MachineState.ASSIGNED
            and not self.is_busy(r.machine)
        ]
        if not registered:
            return
        runner = data.draw(st.sampled_from(registered))
        self.ledger.apply(e.ConfigurationSent(self.now, runner.name))
        if data.draw(st.booleans()):
            self.ledger.apply(e.RunnerListening(self.now, runner.name))

    @rule(data=st.data(), polls=st.booleans())
    def machine_speaks(self, data: st.DataObject, polls: bool) -> None:
        alive = self.in_state(MachineState.READY, MachineState.ASSIGNED)
        if alive:
            machine = data.draw(st.sampled_from(alive))
            waits = machine.state is MachineState.READY and not self.is_busy(machine.id)
            self.ledger.apply(e.MachineSeen(self.now, machine.id, polls and waits))

    @rule(data=st.data())
    def machine_exits(self, data: st.DataObject) -> None:
        leaving = [
            m
            for m in self.in_state(MachineState.ASSIGNED)
            if m.work.may_run_job and not self.is_busy(m.id)
        ]
        if leaving:
            machine = data.draw(st.sampled_from(leaving))
            self.ledger.apply(e.MachineExited(self.now, machine.id, "bye"))

    @rule(data=st.data())
    def machine_is_examined(self, data: st.DataObject) -> None:
        assigned = self.in_state(MachineState.ASSIGNED)
        if assigned:
            machine = data.draw(st.sampled_from(assigned))
            finished = machine.work.may_run_job and not self.is_busy(machine.id)
            self.ledger.apply(e.RunnerRead(self.now, machine.id, finished, "asked"))

    @rule(
        key=st.sampled_from([boots_key(GPU), exits_key(GPU), launch_option_key(GPU, 0)]),
        hold=st.sampled_from([0.0, 60.0]),
    )
    def machines_failed_in_a_row(self, key: str, hold: float) -> None:
        self.state.set_cooldown(Cooldown(key, self.now + hold, 3, "no gpu"))

    @rule(data=st.data())
    def operator_confirms(self, data: st.DataObject) -> None:
        unverified = [m for m in self.state.machines.values() if m.is_unverified]
        if unverified:
            machine = data.draw(st.sampled_from(unverified))
            if not self.is_busy(machine.id):
                self.ledger.apply(e.MachineReleasedByOperator(self.now, machine.id, ALICE))

    @rule(data=st.data())
    def operator_terminates(self, data: st.DataObject) -> None:
        fleet = self.ledger.fleet(self.now)
        unused = [m for m in self.state.machines.values() if fleet.evidence.proves_unused(m)]
        if unused:
            machine = data.draw(st.sampled_from(unused))
            self.ledger.apply(e.MachineReleasedByOperator(self.now, machine.id, ALICE))

    @rule(kind=st.sampled_from([HoldKind.PAUSED, HoldKind.DRAINED]), group=st.sampled_from(GROUPS))
    def operator_holds_a_group(self, kind: HoldKind, group: HoldTarget) -> None:
        self.ledger.apply(e.HeldByOperator(self.now, kind, group, ALICE))

    @rule(data=st.data(), kind=st.sampled_from([HoldKind.DRAINED, HoldKind.QUARANTINED]))
    def operator_holds_a_machine(self, data: st.DataObject, kind: HoldKind) -> None:
        machines = [m for m in self.state.machines.values() if m.state in KEPT_IN_QUARANTINE]
        if machines:
            target = machine_target(data.draw(st.sampled_from(machines)).id)
            self.ledger.apply(e.HeldByOperator(self.now, kind, target, ALICE))

    @precondition(lambda self: self.state.operator_holds)
    @rule(data=st.data())
    def operator_resumes(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.state.operator_holds)))
        self.ledger.apply(e.ResumedByOperator(self.now, parse_hold_key(key)[1], ALICE))

    # --- the controller ------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 5.0, 61.0, 200.0, 901.0, 4000.0, 90000.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.ledger.apply(e.TimePassed(self.now))

    @rule(absence=st.sampled_from([1.0, 300.0, 5000.0]))
    def controller_restarts(self, absence: float) -> None:
        self.now += absence
        self.restart_with(self.records(), tuple(self.state.cooldowns.values()), absence)

    @rule()
    def backup_is_made(self) -> None:
        cooldowns = tuple(self.state.cooldowns.values())
        self.backup = (self.now, copy.deepcopy(self.records()), cooldowns)

    @precondition(lambda self: self.backup is not None)
    @rule()
    def backup_is_restored(self) -> None:
        """Restore a backup: the store lacks the machines launched since, and no listing shows them."""
        assert self.backup is not None
        at, records, cooldowns = self.backup
        self.restart_with(copy.deepcopy(records), cooldowns, self.now - at)

    def restart_with(
        self, records: list[Record], cooldowns: tuple[Cooldown, ...], absence: float
    ) -> None:
        self.ledger = Ledger(self.catalogue)
        self.ledger.restore(records, cooldowns)
        self.ledger.apply(e.ControllerStarted(self.now, absence))

    def records(self) -> list[Record]:
        state = self.state
        return [
            *state.launch_requests.values(),
            *state.machines.values(),
            *state.runners.values(),
            *state.jobs.values(),
        ]

    @rule()
    def plan_is_carried_out(self) -> None:
        self.planned += 1
        made = plan(self.ledger.fleet(self.now))
        self.check_ends(made)
        self.check_calls(made)
        before = self.usage()
        apply_plan(self.ledger, made, self.now, f"p{self.planned}-")
        self.check_caps(before)

    # --- what must hold of a plan ---------------------------------------------------------------

    def usage(self) -> dict[str, float]:
        usage = self.ledger.fleet(self.now).usage
        return {
            "machines": usage.machines,
            "dollars": usage.dollars_per_hour,
            "gpu": usage.by_sku.get(SkuName("gpu"), 0),
            "quota": usage.by_quota.get("east/G", 0),
        }

    def check_caps(self, before: dict[str, float]) -> None:
        """Rule 5. Only machines found for written-off slots may exceed a cap."""
        limits = {"machines": 7, "dollars": 5.0, "gpu": 4, "quota": 20}
        after = self.usage()
        for cap, limit in limits.items():
            assert after[cap] <= max(limit, before[cap]) + 1e-6, (cap, before, after)

    def check_calls(self, made: Plan) -> None:
        """The launch rate is kept, and `again_at` is the time at which a delayed launch is planned."""
        taken = sum(isinstance(i, Launch) for i in made.intents)
        unsent = sum(isinstance(i, CancelLaunchRequest) for i in made.intents)
        for tokens in self.ledger.fleet(self.now).launch_tokens.values():
            assert taken <= max(tokens.calls, 0.0) + unsent
        assert made.again_at is None or made.again_at > self.now

    def check_ends(self, made: Plan) -> None:
        """Rule 4: terminations have valid reasons, and a busy machine is terminated only after its lifetime."""
        for intent in made.intents:
            if not isinstance(intent, Terminate):
                continue
            machine = self.state.machines[intent.machine]
            if machine.state is MachineState.TERMINATING:
                continue
            if intent.reason_code in UNASSIGNED_REASONS:
                assert not machine.work.may_run_job
            if intent.reason_code is TerminationReason.EXITED:
                assert machine.state is MachineState.EXITED
            if intent.reason_code is TerminationReason.OPERATOR:
                assert machine.work.unverified or not machine.work.may_run_job
            self.check_holds(intent, machine)
            if self.is_busy(machine.id) and machine.state is not MachineState.EXITED:
                assert intent.reason_code is TerminationReason.LIFETIME
                assert machine.progress.assigned_at is not None
                assert self.now - machine.progress.assigned_at >= 86400.0

    def check_holds(self, intent: Terminate, machine: Machine) -> None:
        """A quarantined machine is kept until the quarantine is over, an operator or its provider ends it."""
        quarantine = quarantine_of(self.state.operator_holds, machine.id)
        if quarantine is not None and machine.state in KEPT_IN_QUARANTINE:
            released = intent.reason_code is TerminationReason.OPERATOR
            assert released or self.now >= quarantine.until


@pytest.mark.case(
    "a restored store shows nothing that proves its age, and GitHub cannot be read after the "
    "start: silent machines are kept",
    topic="EC2's machines",
    source="GitHub status",
)
@pytest.mark.case(
    "jobs wait for ever without a visible reason",
    topic="Complaints about other fleets",
    source="ARC#3649",
)
@pytest.mark.case(
    "stale counters cause too many launches until a person deletes state",
    topic="Complaints about other fleets",
    source="ARC#4397",
)
@pytest.mark.case(
    "runners at work are killed",
    topic="Complaints about other fleets",
    source="GAR#5085; GAR#4391; GAR#3802; GARM#834; ARC#3450; pytorch#87500; pytorch#140958",
)
class FleetMachine(FleetSteps):
    """These steps, and what must hold after each."""

    @invariant()
    def nothing_is_launched_for_or_assigned_to_what_is_held(self) -> None:
        holds = self.state.operator_holds
        for intent in plan(self.ledger.fleet(self.now)).intents if holds else ():
            if isinstance(intent, Launch) and intent.sku not in self.cut_back():
                targets = (WHOLE_FLEET, sku_target(intent.sku), provider_target(intent.provider))
                assert not any(launch_hold(holds, target) for target in targets)
            if isinstance(intent, Assign):
                machine = self.state.machines[intent.machine]
                assert quarantine_of(holds, machine.id) is None
                assert drain_of(holds, machine.id, machine.sku, machine.provider) is None

    def cut_back(self) -> set[SkuName]:
        """Return the SKUs of recorded requests: a smaller one may replace them."""
        requests = self.state.open_launch_requests.values()
        return {one.sku for one in requests if one.state is LaunchRequestState.RECORDED}

    @invariant()
    def plans_follow_the_rules(self) -> None:
        """Rule 2, first half: the same fleet has the same plan. The other checks use this plan."""
        fleet = self.ledger.fleet(self.now)
        made = plan(fleet)
        assert plan(fleet) == made
        self.check_that_nothing_more_is_planned(made)
        self.check_that_every_waiting_job_has_a_reason(made)

    def check_that_nothing_more_is_planned(self, made: Plan) -> None:
        """Rule 2, second half. An empty plan changes nothing: the next plan is the same."""
        if not made.intents:
            return
        # The catalogue is frozen, so the copy shares it.
        frozen = (self.state.catalogue, *self.state.offerings.values())
        other = copy.deepcopy(self.ledger, {id(value): value for value in frozen})
        first = plan(other.fleet(self.now))
        apply_plan(other, first, self.now, "again-")
        second = plan(other.fleet(self.now))
        assert second.intents == (), (first.intents, second.intents)

    def check_that_every_waiting_job_has_a_reason(self, made: Plan) -> None:
        """Rule 10."""
        queued = [job for job in self.state.jobs.values() if job.state is JobState.QUEUED]
        reported = {demand: sum(run.count for run in runs) for demand, runs in made.waiting.items()}
        assert reported == Counter(job.demand for job in queued if job.demand is not None)
        assert all(run.message for runs in made.waiting.values() for run in runs)

    @invariant()
    def indexes_follow_from_the_records(self) -> None:
        other = LedgerState(self.catalogue)
        for record in copy.deepcopy(self.records()):
            other.add(record, stored=True)
        mine = self.state
        assert {d: list(q) for d, q in other.queues.items()} == {
            d: list(q) for d, q in mine.queues.items()
        }
        assert {k: list(v) for k, v in other.by_state.items() if v} == {
            k: list(v) for k, v in mine.by_state.items() if v
        }
        assert list(other.due) == list(mine.due)
        assert +other.idle_runners == +mine.idle_runners
        assert +other.used_by_sku == +mine.used_by_sku
        assert +other.used_by_quota == +mine.used_by_quota
        assert abs(other.dollars_used - mine.dollars_used) < 1e-6
        assert other.machines_used == mine.machines_used
        assert +other.in_progress == +mine.in_progress
        assert other.disputed == mine.disputed
        assert {k: set(v) for k, v in other.booting.items() if v} == {
            k: set(v) for k, v in mine.booting.items() if v
        }
        assert {k: v for k, v in other.boots.items() if v} == {
            k: v for k, v in mine.boots.items() if v
        }
        assert +other.ready_unseen == +mine.ready_unseen
        assert other.unverified == mine.unverified
        assert other.unverified_existing == mine.unverified_existing
        assert +other.runners_without_job == +mine.runners_without_job
        assert other.running == mine.running
        assert other.queues_by_repository == mine.queues_by_repository
        assert {a: known.runs for a, known in other.activity.accounts.items()} == {
            a: known.runs for a, known in mine.activity.accounts.items()
        }

    @invariant()
    def a_slot_has_one_machine(self) -> None:
        slots = Counter(
            (m.launch_request, m.slot)
            for m in self.state.machines.values()
            if m.placement.provider_id and m.slot >= 0
        )
        assert all(count == 1 for count in slots.values())


class ShortOfTurns(FleetMachine):
    """The same with two organizations and low rates of registrations and launches."""

    catalogue = dataclasses.replace(
        CATALOGUE,
        scopes=(*CATALOGUE.scopes, Scope("other", None)),
        registration=RegistrationRate(burst=2, per_second=0.02),
        launch_rates={EAST: LaunchRate(Rate(2, 0.02), Rate(5, 0.05))},
    )


TestRules = FleetMachine.TestCase
TestRulesShortOfTurns = ShortOfTurns.TestCase
for case in (TestRules, TestRulesShortOfTurns):
    case.settings = settings(
        max_examples=60,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
del case
