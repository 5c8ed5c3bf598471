"""Make a Plan from a Fleet.

The same Fleet always gives the same Plan. After a Plan is carried out, the next one is empty.
"""

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
from autoscaler.planner.matching.classes import Classes, classes_of
from autoscaler.planner.matching.maximum import (
    Matching,
    SupplyKind,
    match,
    pool_of,
    ready_minimum_class,
)
from autoscaler.planner.matching.supply import FleetSupply, count_deregistration, count_supply
from autoscaler.planner.out_of_service import out_of_service
from autoscaler.planner.placement import Headroom
from autoscaler.planner.registration import RegistrationBudget, registrable_machines
from autoscaler.planner.scale_down import cut_back, idle_machines, minimum_in_force
from autoscaler.planner.scale_up import ScaleUp, scale_up
from autoscaler.planner.upkeep import (
    due_machines,
    late_boots,
    lost_configurations,
    reads_due,
    requests_to_resend,
    unconfigured_machines,
)
from autoscaler.planner.waiting import waiting_reasons


def plan(fleet: Fleet) -> Plan:
    """Return everything to do now.

    In this order: deregister, cancel, resend, terminate, assign, launch, read from GitHub.
    """
    terminations, unverified, runner_reads = _due(fleet)
    ending = {one.machine for one in terminations} | {one.machine for one in unverified}
    held = out_of_service(fleet)
    terminations += [one for one in held.terminations if one.machine not in ending]
    # These machines are no supply: they terminate, are held, or count as busy from now on.
    leaving = ending | held.machines
    deregistrations = [
        one
        for one in lost_configurations(fleet)
        if fleet.runners[one.runner].machine not in leaving
    ]
    supply = count_supply(fleet, leaving, deregistrations)
    deregistrations += [
        one for one in held.deregistrations if fleet.runners[one.runner].machine not in ending
    ]
    minimum, classes = minimum_in_force(fleet), classes_of(fleet)
    registrable = registrable_machines(fleet, supply.by_pool, leaving)
    matching = _match_without_surplus(
        classes, supply, minimum, registrable, deregistrations, leaving
    )
    resends = requests_to_resend(fleet, leaving)
    headroom = Headroom(fleet, leaving, late_boots(fleet, terminations))
    cutbacks = cut_back(matching, supply)
    for resend in resends:
        headroom.count_resend(fleet.launch_requests[resend.launch_request].provider)
    for cutback in cutbacks:
        headroom.give_back(cutback.launch_request, cutback.drop)
    launched, matching = _scale_up_until_matched(
        classes, headroom, supply, minimum, registrable, matching
    )
    assigned = assignments(fleet, classes, matching, supply)
    idle = idle_machines(fleet, matching, supply)
    intents: tuple[Intent, ...] = (
        *deregistrations,
        *(intent for cutback in cutbacks for intent in cutback.intents()),
        *resends,
        *terminations,
        *unverified,
        *idle,
        *assigned,
        *launched.launches(fleet.catalogue),
        *runner_reads,
        *reads_due(fleet),
    )
    return Plan(intents, waiting_reasons(fleet, matching, launched), headroom.next_request_at())


def _scale_up_until_matched(
    classes: Classes,
    headroom: Headroom,
    supply: FleetSupply,
    minimum: Mapping[SkuName, int],
    registrable: Mapping[str, int],
    matching: Matching,
) -> tuple[ScaleUp, Matching]:
    """Launch, count the launched machines as supply and match again, until nothing more is launched.

    A machine launched for one class may serve another. Matching again gives the same result if each new
    machine serves what it is launched for: then no older job waits, and other supply serves the same jobs.
    """
    fleet, total = classes.fleet, ScaleUp()
    while True:
        minimums = {
            sku: n - matching.matched[ready_minimum_class(sku)] - matching.unregistrable[sku]
            for sku, n in minimum.items()
        }
        if classes.all_served(matching.matched) and all(n <= 0 for n in minimums.values()):
            total.blocked = {}
            return total, matching
        step = scale_up(
            classes, headroom, matching, RegistrationBudget(fleet, registrable), minimums
        )
        total.blocked = step.blocked
        if not step.placed:
            return total, matching
        total.placed.update(step.placed)
        total.for_minimums.update(step.for_minimums)
        for placement, count in step.placed.items():
            supply.by_pool[pool_of(SupplyKind.UNSENT, placement.sku)] += count
        # Fair shares match jobs in another order than that in which machines are launched for them.
        reordered = bool(step.blocked) if fleet.queues_by_repository else step.overtaken
        if not matching.moved and not reordered:
            matching.add_launched(step.launched)
            return total, matching
        matching = match(fleet, supply.by_pool, minimum, registrable, classes)


def _due(fleet: Fleet) -> tuple[list[Terminate], list[MarkUnverified], list[ReadRunner]]:
    due = due_machines(fleet)
    terminations = {intent.machine: intent for intent in due if isinstance(intent, Terminate)}
    for unconfigured in unconfigured_machines(fleet):
        terminations.setdefault(unconfigured.machine, unconfigured)
    unverified = [intent for intent in due if isinstance(intent, MarkUnverified)]
    reads = [intent for intent in due if isinstance(intent, ReadRunner)]
    return list(terminations.values()), unverified, reads


def _match_without_surplus(
    classes: Classes,
    supply: FleetSupply,
    minimum: Mapping[SkuName, int],
    registrable: Mapping[str, int],
    deregistrations: list[DeregisterRunner],
    leaving: set[MachineId],
) -> Matching:
    """Match; if runners are left over, count their machines as ready soon and match again."""
    fleet = classes.fleet
    matching = match(fleet, supply.by_pool, minimum, registrable, classes)
    surplus = [
        one
        for one in surplus_registrations(fleet, matching, supply)
        if fleet.runners[one.runner].machine not in leaving
    ]
    if not surplus:
        return matching
    for deregistration in surplus:
        count_deregistration(fleet, supply, deregistration)
    deregistrations.extend(surplus)
    return match(fleet, supply.by_pool, minimum, registrable, classes)
