"""The supply for queued jobs: idle runners, and machines that are ready, booting or requested."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Instant, MachineId, SkuName
from autoscaler.model.jobs.runners import IDLE_STATES, RunnerState
from autoscaler.model.machines.launch_requests import LaunchRequest, LaunchRequestState
from autoscaler.model.machines.machine import (
    BOOTING_STATES,
    Machine,
    MachineState,
    TerminationReason,
)
from autoscaler.model.plan import DeregisterRunner
from autoscaler.planner.matching.maximum import Supply, SupplyKind, pool_of


@dataclass(slots=True)
class FleetSupply:
    """Supply by pool, and the machines and launch requests that the plan picks from.

    `ready` has the machines that may be assigned now, the longest ready first, and since when they are.
    """

    by_pool: Counter[Supply] = field(default_factory=Counter)
    ready: dict[SkuName, Sequence[tuple[Instant, MachineId]]] = field(default_factory=dict)
    unsent: dict[SkuName, list[LaunchRequest]] = field(default_factory=dict)


def count_supply(
    fleet: Fleet, leaving: set[MachineId], deregistrations: Iterable[DeregisterRunner]
) -> FleetSupply:
    """Count what can serve a job now or soon. O(SKUs + open launch requests)."""
    supply = FleetSupply()
    for demand, count in fleet.idle_runners.items():
        supply.by_pool[Supply(SupplyKind.RUNNER, runner_class=demand)] = count
    leaving_by_state = Counter((fleet.machines[m].sku, fleet.machines[m].state) for m in leaving)
    for sku in fleet.catalogue.skus:
        _count_machines(fleet, sku, leaving, leaving_by_state, supply)
    for machine in leaving:
        _remove_runner(fleet, fleet.machines[machine], supply)
    for request in fleet.launch_requests.values():
        if request.state is LaunchRequestState.RECORDED:
            supply.unsent.setdefault(request.sku, []).append(request)
            supply.by_pool[pool_of(SupplyKind.UNSENT, request.sku)] += len(request.slots)
            supply.by_pool[pool_of(SupplyKind.COMING, request.sku)] -= len(request.slots)
        elif request.is_given_up(fleet.now):
            slots = (fleet.machines.get(slot) for slot in request.slots)
            unbound = sum(m is not None and m.state is MachineState.REQUESTED for m in slots)
            supply.by_pool[pool_of(SupplyKind.COMING, request.sku)] -= unbound
    for deregistration in deregistrations:
        count_deregistration(fleet, supply, deregistration)
    return supply


def count_deregistration(
    fleet: Fleet, supply: FleetSupply, deregistration: DeregisterRunner
) -> None:
    """Count the machine as ready soon, instead of its runner as idle."""
    runner = fleet.runners[deregistration.runner]
    supply.by_pool[Supply(SupplyKind.RUNNER, runner_class=runner.demand)] -= 1
    sku = fleet.machines[runner.machine].sku
    supply.by_pool[pool_of(SupplyKind.COMING, sku)] += 1


def _without_a_start(fleet: Fleet, sku: SkuName) -> int:
    """Return how many machines that cannot start still exist: their jobs wait until they are gone.

    O(machines of the SKU that failed or terminate).
    """
    return sum(
        machine.occupies and machine.termination.reason is TerminationReason.CANNOT_START
        for state in (MachineState.FAILED, MachineState.TERMINATING)
        for machine in fleet.machines_in(sku, state)
    )


def _remove_runner(fleet: Fleet, machine: Machine, supply: FleetSupply) -> None:
    runner = fleet.runners.get(machine.work.runner) if machine.work.runner is not None else None
    if runner is None:
        return
    if runner.state is RunnerState.DEREGISTERING:
        supply.by_pool[pool_of(SupplyKind.COMING, machine.sku)] -= 1
    elif runner.state in IDLE_STATES and not runner.passed_over:
        supply.by_pool[Supply(SupplyKind.RUNNER, runner_class=runner.demand)] -= 1


def _count_machines(
    fleet: Fleet,
    sku: SkuName,
    leaving: set[MachineId],
    leaving_by_state: Mapping[tuple[SkuName, MachineState], int],
    supply: FleetSupply,
) -> None:
    coming = fleet.deregistering.get(sku, 0)
    for state in BOOTING_STATES:
        coming += fleet.count(sku, state) - leaving_by_state.get((sku, state), 0)
    coming += _without_a_start(fleet, sku)
    ready, unseen = _ready(fleet, sku, leaving, leaving_by_state)
    if fleet.evidence.may_still_poll(fleet.now):
        coming += unseen  # they were ready before the start
    supply.ready[sku] = ready
    supply.by_pool[pool_of(SupplyKind.READY, sku)] = len(ready)
    supply.by_pool[pool_of(SupplyKind.COMING, sku)] = coming


def _ready(
    fleet: Fleet,
    sku: SkuName,
    leaving: set[MachineId],
    leaving_by_state: Mapping[tuple[SkuName, MachineState], int],
) -> tuple[Sequence[tuple[Instant, MachineId]], int]:
    """Return the machines that may be assigned now, and how many others are ready and not leaving."""
    key = (sku, MachineState.READY)
    machines = fleet.by_state.get(key)
    if machines is None:
        return (), 0
    if not fleet.ready_unseen.get(sku, 0) and not leaving_by_state.get(key, 0):
        return machines.keys(), 0
    staying = [machine for machine in machines.values() if machine.id not in leaving]
    ready = [(machine.since, machine.id) for machine in staying if machine.work.agent_seen]
    return ready, len(staying) - len(ready)
