"""What there is to serve the queues with, after what this plan takes back."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from autoscaler.model.calls import Call, CallState
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import MachineId, SkuName
from autoscaler.model.machines import BOOTING_STATES, Machine, MachineState
from autoscaler.model.plan import WithdrawRunner
from autoscaler.model.runners import IDLE_STATES, RunnerState
from autoscaler.planner.matching import Supply, SupplyKind
from autoscaler.planner.upkeep import believed_parked


@dataclass(slots=True)
class Stock:
    """Supply by pool, and the machines and calls behind the pools that the plan picks from.

    `parked` are the ones that may be granted now, the longest parked first.
    """

    supply: Counter[Supply] = field(default_factory=Counter)
    parked: dict[SkuName, list[Machine]] = field(default_factory=dict)
    unsent: dict[SkuName, list[Call]] = field(default_factory=dict)


def take_stock(fleet: Fleet, leaving: set[MachineId], withdrawn: Iterable[WithdrawRunner]) -> Stock:
    """Count what can serve a job now or soon. O(SKUs + parked machines + open calls)."""
    stock = Stock()
    for demand, count in fleet.idle_runners.items():
        stock.supply[Supply(SupplyKind.RUNNER, runner_class=demand)] = count
    gone = Counter((fleet.machines[m].sku, fleet.machines[m].state) for m in leaving)
    for sku in fleet.catalogue.skus:
        _take_machines(fleet, sku, leaving, gone, stock)
    for machine in leaving:
        _lose_runner(fleet, fleet.machines[machine], stock)
    for call in fleet.calls.values():
        if call.state is CallState.RECORDED:
            stock.unsent.setdefault(call.sku, []).append(call)
            stock.supply[Supply(SupplyKind.UNSENT, sku=call.sku)] += len(call.slots)
            stock.supply[Supply(SupplyKind.COMING, sku=call.sku)] -= len(call.slots)
        elif call.is_given_up(fleet.now):
            slots = (fleet.machines.get(slot) for slot in call.slots)
            unbound = sum(m is not None and m.state is MachineState.REQUESTED for m in slots)
            stock.supply[Supply(SupplyKind.COMING, sku=call.sku)] -= unbound
    for withdrawal in withdrawn:
        withdraw(fleet, stock, withdrawal)
    return stock


def withdraw(fleet: Fleet, stock: Stock, withdrawal: WithdrawRunner) -> None:
    """A registration goes, and its machine comes back as parked."""
    runner = fleet.runners[withdrawal.runner]
    stock.supply[Supply(SupplyKind.RUNNER, runner_class=runner.demand)] -= 1
    sku = fleet.machines[runner.machine].sku
    stock.supply[Supply(SupplyKind.COMING, sku=sku)] += 1


def _lose_runner(fleet: Fleet, machine: Machine, stock: Stock) -> None:
    runner = fleet.runners.get(machine.runner) if machine.runner is not None else None
    if runner is None:
        return
    if runner.state is RunnerState.WITHDRAWING:
        stock.supply[Supply(SupplyKind.COMING, sku=machine.sku)] -= 1
    elif runner.state in IDLE_STATES and not runner.passed_over:
        stock.supply[Supply(SupplyKind.RUNNER, runner_class=runner.demand)] -= 1


def _take_machines(
    fleet: Fleet,
    sku: SkuName,
    leaving: set[MachineId],
    gone: Mapping[tuple[SkuName, MachineState], int],
    stock: Stock,
) -> None:
    coming = fleet.withdrawing.get(sku, 0)
    for state in BOOTING_STATES:
        coming += fleet.count(sku, state) - gone.get((sku, state), 0)
    parked = []
    for machine in fleet.machines_in(sku, MachineState.PARKED):
        if machine.id in leaving:
            continue
        if machine.confirmed:
            parked.append(machine)
        elif believed_parked(fleet, machine):
            coming += 1
    stock.parked[sku] = parked
    stock.supply[Supply(SupplyKind.PARKED, sku=sku)] = len(parked)
    stock.supply[Supply(SupplyKind.COMING, sku=sku)] = coming
