"""Plays a schedule: jobs, faults and machines around one controller process after another."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace

from autoscaler.controller.composition import Ports, Settings
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import Provider
from autoscaler.controller.ports.store import StoreError
from autoscaler.controller.system import BELIEVED_AFTER
from autoscaler.model.catalogue import Catalogue
from autoscaler.model.identifiers import (
    Instant,
    LaunchRequestId,
    ProviderMachineId,
    ProviderName,
    Seconds,
)
from autoscaler.model.jobs.job import Job, JobState
from autoscaler.model.machines.interruptions import RerunState
from autoscaler.model.machines.machine import REPORTED_FROM_ATTEMPT
from autoscaler.simulator.world.cluster.control_plane import OF_CLUSTERS
from autoscaler.simulator.world.cluster.pods import SimulatedCluster
from autoscaler.simulator.world.controller.clock import BusyClock, HostClock
from autoscaler.simulator.world.controller.ids import SequentialIds
from autoscaler.simulator.world.controller.process import ControllerProcess, settings
from autoscaler.simulator.world.controller.replicas import OF_REPLICAS, Replicas
from autoscaler.simulator.world.controller.shared_store import SharedMemoryStore
from autoscaler.simulator.world.controller.store import MemoryStore
from autoscaler.simulator.world.controller.supervisor import Supervisor
from autoscaler.simulator.world.ec2.machine import Surroundings
from autoscaler.simulator.world.ec2.machines import FORETOLD, Machines
from autoscaler.simulator.world.ec2.notices import SimulatedNotices
from autoscaler.simulator.world.ec2.orphans import orphaned
from autoscaler.simulator.world.ec2.provider import SimulatedProvider
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.github.actions import Actions
from autoscaler.simulator.world.github.lists import PER_SECOND, USED_UP, SimulatedLists
from autoscaler.simulator.world.github.port import SimulatedGitHub
from autoscaler.simulator.world.github.reruns import SimulatedReruns
from autoscaler.simulator.world.github.webhooks import Webhooks, parse
from autoscaler.simulator.world.instances import STRANGER, Instance, MachineHost
from autoscaler.simulator.world.invariants import Invariants
from autoscaler.simulator.world.jobs import Registration
from autoscaler.simulator.world.operator import Operator
from autoscaler.simulator.world.processes import Process
from autoscaler.simulator.world.schedule import Fault, FaultKind, Schedule
from autoscaler.simulator.world.setting import Setting
from autoscaler.simulator.world.virtual_time import EPOCH

CHECK_EVERY: Seconds = 60.0
SLOW_STORE: Seconds = 1.0
OPERATOR_LOOKS_AFTER: Seconds = 3600.0
"""Seconds after the last fault until an operator looks at unverified machines, if none did before."""

SETTLES: Seconds = 3600.0
"""Seconds after the last job within which it gets a machine, runs, and the machine is terminated."""


class SimulatedWorld:
    """One run of one schedule. Created and run inside a virtual loop."""

    def __init__(self, setting: Setting, schedule: Schedule) -> None:
        self._setting = setting
        self._schedule = schedule
        self._began = asyncio.get_running_loop().time()
        self._ids = SequentialIds()
        self.fault_schedule = FaultSchedule(schedule.faults, self._began)
        self.store = self._store()
        self._latency = self.store.latency
        self.invariants = Invariants(setting.catalogue, self.store)
        self.invariants.hidden = self._hidden
        self.invariants.aged_by_clock = self._aged_by_clock
        self._clock_jumped_at: Instant = -math.inf
        self.store.on_commit = self.invariants.recorded
        self._unlisted_since_rewound: set[ProviderName] = set()
        self._rewound_at: Instant = -math.inf
        self.supervisor = self._supervisor()
        self.webhooks = Webhooks(self.fault_schedule, _now, self.supervisor.deliver)
        self.actions = Actions(self.fault_schedule, _now, self.webhooks.send)
        self.github = SimulatedGitHub(
            self.actions, self.webhooks, self.fault_schedule, self.invariants.registering, _now
        )
        pace = PER_SECOND if schedule.lists else USED_UP
        self.lists = SimulatedLists(self.actions, self.fault_schedule, _now, pace)
        self.reruns = SimulatedReruns(self.actions, self.fault_schedule, self.invariants)
        names = _providers(setting.catalogue)
        self.providers = {n: self._provider(n) for n in names if n not in setting.clusters}
        self.clusters = {n: self._cluster(n) for n in names if n in setting.clusters}
        self.notices = {
            name: SimulatedNotices(provider, self.fault_schedule, _now)
            for name, provider in self.providers.items()
        }
        for name, queue in self.notices.items():
            self.providers[name].notices = queue
        surroundings = Surroundings(
            self.supervisor.current, self.actions, self.fault_schedule, self.invariants, _now
        )
        hosts: dict[ProviderName, MachineHost] = {**self.providers, **self.clusters}
        self.machines = Machines(surroundings, hosts, self.notices, setting.boot)
        for cluster in self.clusters.values():
            cluster.on_stop = self.machines.stop_agent
        self.operator = Operator(
            self.supervisor.current,
            lambda: self.fault_schedule.active(FaultKind.WRONG_ANSWERS) is not None,
        )

    async def run(self, patience: Seconds, wanted: Callable[[str], bool] | None = None) -> None:
        """Play the schedule until every job is completed and nothing is under way.

        Ends `patience` seconds after the last fault at the latest, but not before the last job has had
        SETTLES seconds. Ends early, and leaves the rest under way, after a violation that is `wanted`.
        """
        self._schedule_all()
        supervising = asyncio.get_running_loop().create_task(self.supervisor.run())
        calm = self._schedule.calm_from
        end = max(self._schedule.faults_end + patience, calm + SETTLES)
        while self.fault_schedule.time < end and not (
            self.fault_schedule.time >= calm and self.quiet
        ):
            await asyncio.sleep(CHECK_EVERY)
            self._check()
            if supervising.done() or (wanted and any(map(wanted, self.invariants.violations))):
                break
        supervising.cancel()
        await asyncio.wait({supervising})
        self.webhooks.stop()
        self.machines.stop()
        self.operator.stop()
        if not supervising.cancelled():
            supervising.result()

    @property
    def quiet(self) -> bool:
        """Return whether every job is completed and nothing is under way."""
        process = self.supervisor.process
        if process is None or process.controller is None or not self.webhooks.settled:
            return False
        state = process.controller.journal.ledger.state
        return (
            all(job.state is JobState.COMPLETED for job in self.actions.jobs.values())
            and not self.machines.running
            and not state.open_launch_requests
            and not any(machine.occupies for machine in state.machines.values())
            and not any(job.state is not JobState.COMPLETED for job in state.jobs.values())
            and not any(rerun.state is not RerunState.ENDED for rerun in state.reruns.values())
            and not self.orphaned_registrations
        )

    @property
    def orphaned_registrations(self) -> list[Registration]:
        """Return registrations that the controller should have removed, if it reads the lists."""
        if not self._schedule.lists:
            return []
        catalogue = self._setting.catalogue.with_installations(self.store.installations)
        registrations = self.actions.registrations.values()
        return orphaned(registrations, self.machines.activities, catalogue)

    def _schedule_all(self) -> None:
        loop = asyncio.get_running_loop()
        for provider in self.providers.values():
            for number in range(self._setting.strangers):
                provider.add(self._stranger(provider.name, number))
        for cluster in self.clusters.values():
            cluster.add_strangers(self._setting.strangers)
        loop.call_at(
            self._began + self._schedule.faults_end + OPERATOR_LOOKS_AFTER, self.operator.start
        )
        for job in self._schedule.jobs:
            loop.call_at(self._began + job.at, self.actions.queue, job)
        for fault in self._schedule.faults:
            begin = self._hold if fault.kind is FaultKind.OPERATOR_HOLDS else self._begin
            loop.call_at(self._began + fault.at, begin, fault)
            if fault.kind in (FaultKind.STORE_RESTORED, FaultKind.STORE_FAILOVER):
                kept_at = max(0.0, fault.at - fault.target)
                loop.call_at(self._began + kept_at, self.supervisor.back_up, fault)

    def _rewound(self) -> None:
        known = {job.id for job in self.store.of_kind(Job)}
        self.webhooks.rewind(known)
        self.lists.rewind(known)
        self.invariants.rewound()
        self._unlisted_since_rewound = {*self.providers, *self.clusters}
        self._rewound_at = _now()

    def _hidden(self, machine: Instance) -> bool:
        """Return whether the store was rewound after a launch, and no list has shown the machine since."""
        if machine.launched_at > self._rewound_at:
            return False
        process, name = self.supervisor.process, machine.offering.provider
        if process is not None and process.controller is not None:
            self._unlisted_since_rewound -= process.controller.provider_opener.opened
        # A list may show an earlier moment, before the machine was launched.
        provider = self.providers.get(name)
        late = provider is not None and provider.listed_as_of < machine.launched_at
        return late or name in self._unlisted_since_rewound

    def _jump(self, fault: Fault) -> None:
        """Note when a controller's clock may jump: as the fault begins, is believed and ends."""
        self.fault_schedule.hits[FaultKind.CLOCK_JUMP] += 1
        self._clock_jumps()
        for seconds in (BELIEVED_AFTER, fault.lasts):
            asyncio.get_running_loop().call_later(seconds, self._clock_jumps)

    def _clock_jumps(self) -> None:
        self._clock_jumped_at = _now()

    def _aged_by_clock(self, machine: Instance) -> bool:
        """Return whether the controller's clock jumped in the last minute, and after the machine's launch."""
        return machine.launched_at <= self._clock_jumped_at >= _now() - 60.0

    def _store(self) -> MemoryStore:
        if self._schedule.replicas == 1:
            return MemoryStore()
        return SharedMemoryStore(self.fault_schedule, self._note)

    def _note(self, violation: str) -> None:
        self.invariants.note(violation)

    def _supervisor(self) -> Supervisor | Replicas:
        schedule, faults, note = self._schedule, self.fault_schedule, self.invariants.note
        if not isinstance(self.store, SharedMemoryStore):
            return Supervisor(self._make, self.store, faults, note, self._rewound)
        if faults.first(FaultKind.HOSTS_DISAGREE) is not None:
            self.store.took_over = self._clock_jumps
        return Replicas(
            schedule.replicas,
            schedule.seed,
            self.store,
            faults,
            self._make,
            self._host_clock,
            parse,
            note,
            self._rewound,
        )

    def _make(self, process: Process, host: int = 1) -> ControllerProcess:
        clock = self._host_clock(host)
        watched = replace(self.settings, process_tasks=(clock.stop_if_set_back,))
        return ControllerProcess(self.ports(clock, self._ahead(host)), watched, process)

    def _host_clock(self, host: int) -> HostClock:
        return HostClock(self.fault_schedule, self._ahead(host))

    def _ahead(self, host: int) -> Seconds:
        """Return by how many seconds the clock of a host is ahead."""
        differ = self.fault_schedule.first(FaultKind.HOSTS_DISAGREE)
        return float(differ.target) if differ is not None and host % 2 == 0 else 0.0

    @property
    def settings(self) -> Settings:
        """A controller's settings."""
        return settings(self._setting.catalogue, parse, self._setting.pace)

    def ports(self, host: HostClock, ahead: Seconds = 0.0) -> Ports:
        """Return the ports of one process, which has its own clocks, `ahead` by so many seconds."""
        return Ports(
            clock=host,
            pacing=host,
            background=BusyClock(self.fault_schedule, ahead),
            ids=self._ids,
            telemetry=self._setting.telemetry,
            store=self.store,
            github=self.github,
            lists=self.lists,
            reruns=self.reruns,
            providers=self._connected(host),
            shared=self.store if isinstance(self.store, SharedMemoryStore) else None,
        )

    def _connected(self, clock: Clock) -> dict[ProviderName, Provider]:
        connect, connect_cluster = self._setting.connect, self._setting.connect_cluster
        found = {name: connect(provider) for name, provider in self.providers.items()}
        return found | {name: connect_cluster(one, clock) for name, one in self.clusters.items()}

    def _begin(self, fault: Fault) -> None:
        """Begin a fault that acts at one moment. The other parts query the fault schedule themselves."""
        match fault.kind:
            case FaultKind.TAKEN:
                self.machines.take_back(fault)
            case kind if kind in FORETOLD:
                self.machines.give_notice(fault)
            case FaultKind.CUT_OFF:
                self.machines.cut_off(fault)
            case FaultKind.CRASH:
                self.supervisor.crash(fault, max(1, fault.target))
            case FaultKind.STORE_RESTORED | FaultKind.STORE_LOST:
                self.supervisor.restore(fault)
                asyncio.get_running_loop().call_later(fault.lasts, self.operator.start)
            case FaultKind.STORE_FAILS | FaultKind.STORE_SLOW:
                self.fault_schedule.hits[fault.kind] += 1
                if fault.kind is FaultKind.STORE_FAILS:
                    self.store.failure = StoreError("disk full")
                else:
                    self.store.latency = SLOW_STORE
                asyncio.get_running_loop().call_later(fault.lasts, self._repair_store)
            case FaultKind.CLOCK_JUMP:
                self._jump(fault)
            case kind if kind in OF_REPLICAS | OF_CLUSTERS:
                self._begin_elsewhere(fault)

    def _begin_elsewhere(self, fault: Fault) -> None:
        """Begin a fault of the replicas, or of a cluster."""
        if isinstance(self.supervisor, Replicas) and fault.kind in OF_REPLICAS:
            self.supervisor.begin(fault)
        elif self.clusters:
            names = list(self.clusters)
            self.clusters[names[fault.target % len(names)]].begin(fault)

    def _hold(self, fault: Fault) -> None:
        self.operator.hold(fault.target, fault.lasts, self._count_hold)

    def _count_hold(self) -> None:
        self.fault_schedule.hits[FaultKind.OPERATOR_HOLDS] += 1

    def _repair_store(self) -> None:
        self.store.failure = None
        self.store.latency = self._latency

    def _provider(self, name: ProviderName) -> SimulatedProvider:
        catalogue = self._setting.catalogue
        quota = {k: n for k, n in self._setting.quota.items() if k.startswith(f"{name}/")}
        return SimulatedProvider(name, catalogue, quota, self.fault_schedule, self.invariants, _now)

    def _cluster(self, name: ProviderName) -> SimulatedCluster:
        plan = self._setting.clusters[name]
        return SimulatedCluster(name, plan, self.fault_schedule, self.invariants, _now)

    def _stranger(self, name: ProviderName, number: int) -> Instance:
        sku, offering = next(
            (sku.name, option.offerings[-1])
            for sku in self._setting.catalogue.skus.values()
            for option in reversed(sku.launch_options)
            if option.provider == name
        )
        machine = ProviderMachineId(f"i-{name}-other-{number}")
        return Instance(machine, LaunchRequestId("other"), sku, offering, STRANGER, _now())

    def _check(self) -> None:
        self._check_reported()
        calm = self.fault_schedule.calm_for
        if calm is not None:
            self.invariants.check(list(self.actions.queued.values()), _now(), calm)

    def _check_reported(self) -> None:
        """Check that the operator's list has each machine that survived three termination requests."""
        process = self.supervisor.process
        if process is None or process.controller is None or self.supervisor.rewound_at is not None:
            return  # a store that was rewound knows of fewer requests
        listed = {one.provider_id for one in process.controller.operator_actions.unverified()}
        for instance in self.machines.running:
            if instance.termination_requests >= REPORTED_FROM_ATTEMPT and instance.id not in listed:
                self.invariants.note(
                    f"{instance.id} does not terminate, and is not in the operator's list"
                )


def _now() -> Instant:
    return EPOCH + asyncio.get_running_loop().time()


def _providers(catalogue: Catalogue) -> list[ProviderName]:
    return sorted(
        {option.provider for sku in catalogue.skus.values() for option in sku.launch_options}
    )
