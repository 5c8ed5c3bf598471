"""From a Fleet to a Plan. The same Fleet gives the same Plan, and carrying it out plans nothing more."""

from collections.abc import Mapping

from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import MachineId, SkuName
from autoscaler.model.plan import (
    DeregisterRunner,
    Intent,
    MarkUnverified,
    Plan,
    ReadRunner,
    Terminate,
)
from autoscaler.planner.assignments import assignments, surplus_registrations
from autoscaler.planner.classes import Classes, classes_of
from autoscaler.planner.matching import Matching, Supply, SupplyKind, match, spare_class
from autoscaler.planner.placement import Headroom
from autoscaler.planner.registration import RegistrationBudget, reach
from autoscaler.planner.scale_down import cut_back, idle_machines, minimum_in_force
from autoscaler.planner.scale_up import ScaleUp, scale_up
from autoscaler.planner.supply import FleetSupply, count_supply, withdraw
from autoscaler.planner.upkeep import (
    due_machines,
    expired_ready,
    lost_configurations,
    questions,
    unanswered_calls,
)
from autoscaler.planner.waiting import waiting_reasons


def plan(fleet: Fleet) -> Plan:
    """Everything to do now, in the order to do it: take back, repeat, end, assignment, launch, ask."""
    ends, doubts, runner_reads = _due(fleet)
    # Nobody may hope for these any more: ended, or held to be at work from now on.
    leaving = {end.machine for end in ends} | {doubt.machine for doubt in doubts}
    withdrawals = [
        w for w in lost_configurations(fleet) if fleet.runners[w.runner].machine not in leaving
    ]
    supply = count_supply(fleet, leaving, withdrawals)
    minimum, classes = minimum_in_force(fleet), classes_of(fleet)
    bounds = reach(fleet, supply.by_pool, leaving)
    matching = _match_without_surplus(classes, supply, minimum, bounds, withdrawals, leaving)
    repeats = unanswered_calls(fleet)
    cutbacks, headroom = cut_back(matching, supply), Headroom(fleet, leaving)
    for repeat in repeats:
        headroom.repeat(fleet.launch_requests[repeat.launch_request].provider)
    for cutback in cutbacks:
        headroom.give_back(cutback.launch_request, cutback.drop)
    launched, matching = _scale_up_until_settled(
        classes, headroom, supply, minimum, bounds, matching
    )
    made = assignments(fleet, matching, supply)
    idle = idle_machines(fleet, matching, supply)
    intents: tuple[Intent, ...] = (
        *withdrawals,
        *(intent for cutback in cutbacks for intent in cutback.intents()),
        *repeats,
        *ends,
        *doubts,
        *idle,
        *made,
        *launched.launches(),
        *runner_reads,
        *questions(fleet),
    )
    return Plan(intents, waiting_reasons(fleet, matching, launched), headroom.next_call_at())


def _scale_up_until_settled(
    classes: Classes,
    headroom: Headroom,
    supply: FleetSupply,
    minimum: Mapping[SkuName, int],
    bounds: Mapping[str, int],
    matching: Matching,
) -> tuple[ScaleUp, Matching]:
    """Launch, count that as supply, and look again: a machine for one class may serve another.

    Where launches serve all jobs that nothing served and fill all minimums, looking again finds the
    same, unless the jobs that are served already had to make room for one another.
    """
    fleet, total = classes.fleet, ScaleUp()
    while True:
        warm = {sku: n - matching.matched[spare_class(sku)] for sku, n in minimum.items()}
        step = scale_up(classes, headroom, matching, RegistrationBudget(fleet, bounds), warm)
        total.blocked = step.blocked
        if not step.placed:
            return total, matching
        total.placed.update(step.placed)
        for placement, count in step.placed.items():
            supply.by_pool[Supply(SupplyKind.UNSENT, sku=placement.sku)] += count
        if not matching.moved and not step.blocked:
            wanted = {spare_class(sku): missing for sku, missing in warm.items() if missing > 0}
            wanted.update(step.launched)
            if sum(step.placed.values()) == sum(wanted.values()):
                matching.add_launched(wanted)
                return total, matching
        matching = match(fleet, supply.by_pool, minimum, bounds, classes)


def _due(fleet: Fleet) -> tuple[list[Terminate], list[MarkUnverified], list[ReadRunner]]:
    due = due_machines(fleet)
    ends = {intent.machine: intent for intent in due if isinstance(intent, Terminate)}
    for expired in expired_ready(fleet):
        ends.setdefault(expired.machine, expired)
    doubts = [intent for intent in due if isinstance(intent, MarkUnverified)]
    return list(ends.values()), doubts, [one for one in due if isinstance(one, ReadRunner)]


def _match_without_surplus(
    classes: Classes,
    supply: FleetSupply,
    minimum: Mapping[SkuName, int],
    bounds: Mapping[str, int],
    withdrawals: list[DeregisterRunner],
    leaving: set[MachineId],
) -> Matching:
    """Match; if registrations are left over, count their machines as ready soon and match again."""
    fleet = classes.fleet
    matching = match(fleet, supply.by_pool, minimum, bounds, classes)
    surplus = [
        w
        for w in surplus_registrations(fleet, matching, supply)
        if fleet.runners[w.runner].machine not in leaving
    ]
    if not surplus:
        return matching
    for withdrawal in surplus:
        withdraw(fleet, supply, withdrawal)
    withdrawals.extend(surplus)
    return match(fleet, supply.by_pool, minimum, bounds, classes)
