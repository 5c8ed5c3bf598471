"""All machines of a world: started when a provider launches them, and stopped when they end."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from autoscaler.model.identifiers import ProviderName, Seconds
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.simulator.world.ec2.machine import (
    BootPlan,
    SimulatedMachine,
    Surroundings,
    TakenError,
)
from autoscaler.simulator.world.ec2.notices import SimulatedNotices
from autoscaler.simulator.world.instances import (
    POWERED_OFF,
    RETIRED_FOR,
    STRANGER,
    TAKEN_FOR,
    Instance,
    MachineActivity,
    MachineHost,
)
from autoscaler.simulator.world.schedule import Fault, FaultKind
from autoscaler.simulator.world.virtual_time import unowned

SLOW_BOOT: Seconds = 600.0
HUNG = "[   12.345678] systemd[1]: Timed out waiting for device /dev/nvme1n1."
"""Console output of a machine whose boot hangs."""

DIES_AFTER: Seconds = 4.0

SHUTS_DOWN_FOR: Seconds = 6.0
"""Between the two state changes of a machine that EC2 takes back, `shutting-down` and `terminated` (EC2 User
Guide, "Amazon EC2 instance state changes"). Its operating system stops its services meanwhile."""

FORETOLD: Mapping[FaultKind, tuple[NoticeKind, Seconds]] = {
    FaultKind.INTERRUPTED: (NoticeKind.SPOT_INTERRUPTION, 120.0),
    FaultKind.RETIRED: (NoticeKind.SCHEDULED_CHANGE, 600.0),
    FaultKind.REBALANCED: (NoticeKind.REBALANCE_RECOMMENDATION, 0.0),
}
"""By kind of fault: the notice, and how many seconds before the end EC2 sends it."""


class Machines:
    """`boot` is the boot time by SKU. Machines of other installations do nothing.

    `notices` has a queue for each EC2 provider. Only its machines get notices, and are taken back here.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        providers: Mapping[ProviderName, MachineHost],
        notices: Mapping[ProviderName, SimulatedNotices],
        boot: Mapping[str, Seconds],
    ) -> None:
        self._surroundings = surroundings
        self._providers = providers
        self._notices = notices
        self._boot = boot
        self._lives: dict[Instance, asyncio.Task[None]] = {}
        self._machines: dict[Instance, SimulatedMachine] = {}
        self._activities: dict[Instance, MachineActivity] = {}
        for provider in providers.values():
            provider.on_launch, provider.on_end = self._switch_on, self._switch_off

    @property
    def running(self) -> list[Instance]:
        """Return the running machines of this fleet, under any of its installation IDs."""
        return [
            instance
            for provider in self._providers.values()
            for instance in provider.running.values()
            if instance.installation != STRANGER
        ]

    @property
    def activities(self) -> list[MachineActivity]:
        """Return all machines of this fleet that ever ran."""
        return list(self._activities.values())

    def take_back(self, fault: Fault) -> None:
        """Take one machine back without notice."""
        instance = self._some(fault, self._on_ec2)
        if instance is not None:
            self._shut_down(instance, TAKEN_FOR, FailureClass.CAPACITY)

    def give_notice(self, fault: Fault) -> None:
        """Send a notice for one machine, and later end it. A rebalance recommendation ends nothing."""
        instance = self._some(fault, self._on_ec2)
        if instance is None:
            return
        kind, notice = FORETOLD[fault.kind]
        means_at = self._surroundings.now() + notice
        self._notices[instance.offering.provider].send_event(kind, instance.id, means_at)
        if kind is NoticeKind.REBALANCE_RECOMMENDATION:
            return
        spot = kind is NoticeKind.SPOT_INTERRUPTION
        reason, failure = (TAKEN_FOR, FailureClass.CAPACITY) if spot else (RETIRED_FOR, None)
        shut_down = partial(self._shut_down, instance, reason, failure)
        asyncio.get_running_loop().call_later(notice, shut_down)

    def cut_off(self, fault: Fault) -> None:
        """Cut one machine off from the controller for a while."""
        instance = self._some(fault, self.running)
        if instance is not None:
            self._activities[instance].cut_off_until = self._surroundings.now() + fault.lasts

    def stop_agent(self, instance: Instance) -> None:
        """Stop the agent of a pod that is being deleted. It reports this once."""
        machine = self._machines.get(instance)
        if machine is not None:
            unowned(machine.stop())

    def stop(self) -> None:
        """Stop all machines at the end of the world."""
        for life in self._lives.values():
            life.cancel()

    def _shut_down(self, instance: Instance, reason: str, failure: FailureClass | None) -> None:
        """Shut a machine down. Until it has ended, its agent may report that it is being stopped."""
        if instance.ended_at is not None or instance.stopping_at is not None:
            return
        instance.stopping_at = self._surroundings.now()
        instance.reason, instance.failure = reason, failure
        self._send_state_change(instance)
        take = partial(self._take, instance, reason, failure)
        asyncio.get_running_loop().call_later(SHUTS_DOWN_FOR, take)
        self.stop_agent(instance)

    def _send_state_change(self, instance: Instance) -> None:
        queue = self._notices.get(instance.offering.provider)
        if queue is not None:
            queue.send_event(NoticeKind.STATE_CHANGE, instance.id, self._surroundings.now())

    def _take(self, instance: Instance, reason: str, failure: FailureClass | None) -> None:
        self._providers[instance.offering.provider].shut_down(instance, reason, failure)

    @property
    def _on_ec2(self) -> list[Instance]:
        return [one for one in self.running if one.offering.provider in self._notices]

    def _some(self, fault: Fault, running: Sequence[Instance]) -> Instance | None:
        if not running:
            return None
        self._surroundings.fault_schedule.hits[fault.kind] += 1
        return running[fault.target % len(running)]

    def _switch_on(self, instance: Instance) -> None:
        self._surroundings.invariants.began(instance)
        if instance.installation == STRANGER:
            return
        activity = self._activities[instance] = MachineActivity(instance)
        self._surroundings.invariants.activities.append(activity)
        machine = SimulatedMachine(self._surroundings, activity, self._boot_plan(instance))
        self._machines[instance] = machine
        self._lives[instance] = unowned(self._live(machine, instance))

    def _boot_plan(self, instance: Instance) -> BootPlan:
        hit = self._surroundings.fault_schedule.hit
        boot: Seconds | None = self._boot[instance.sku]
        if boot is not None and hit(FaultKind.SLOW_BOOT):
            boot += SLOW_BOOT
        if hit(FaultKind.HUNG_BOOT):
            boot = None
            instance.console = HUNG
        if hit(FaultKind.DIES_EARLY):
            boot = None
            asyncio.get_running_loop().call_later(DIES_AFTER, self._die_early, instance)
        return BootPlan(instance.offering.provider, boot, not hit(FaultKind.FAILED_HEALTH_CHECKS))

    def _die_early(self, instance: Instance) -> None:
        reason = "Server.InsufficientInstanceCapacity: none"
        self._take(instance, reason, FailureClass.CAPACITY)

    async def _live(self, machine: SimulatedMachine, instance: Instance) -> None:
        try:
            await machine.live()
        except TakenError:
            self._take(instance, TAKEN_FOR, FailureClass.CAPACITY)
        else:
            # A machine that ignores its termination stays listed, although nothing runs on it.
            await asyncio.sleep(max(0.0, instance.ignores_until - self._surroundings.now()))
            self._take(instance, POWERED_OFF, None)

    def _switch_off(self, instance: Instance) -> None:
        self._surroundings.invariants.ended(instance)
        self._send_state_change(instance)
        activity = self._activities.get(instance)
        if activity is None:
            return
        if activity.registration is not None:
            self._surroundings.actions.take_machine(activity.registration, instance.reason)
        activity.ready_since, activity.listens = None, False
        life = self._lives.pop(instance)
        if life is not asyncio.current_task():
            life.cancel()
