"""From a Fleet to a Plan. The same Fleet gives the same Plan, and carrying it out plans nothing more."""

from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import MachineId
from autoscaler.model.plan import End, Examine, Intent, Plan, WithdrawRunner
from autoscaler.planner.grants import grants, surplus_registrations
from autoscaler.planner.matching import Matching, match
from autoscaler.planner.registration import take_turns
from autoscaler.planner.scale_down import idle_machines, missing_minimum, unneeded_calls
from autoscaler.planner.scale_up import scale_up
from autoscaler.planner.supply import Stock, take_stock, withdraw
from autoscaler.planner.upkeep import (
    due_machines,
    expired_parked,
    lost_configurations,
    questions,
    unanswered_calls,
)
from autoscaler.planner.waiting import waiting_reasons


def plan(fleet: Fleet) -> Plan:
    """Everything to do now, in the order to do it: take back, repeat, end, grant, launch, ask."""
    ends, examinations = _ends(fleet)
    ended = {end.machine for end in ends}
    withdrawals = [
        w for w in lost_configurations(fleet) if fleet.runners[w.runner].machine not in ended
    ]
    stock = take_stock(fleet, ended, withdrawals)
    matching = _match_without_surplus(fleet, stock, withdrawals, ended)
    made = grants(fleet, matching, stock)
    calls = unneeded_calls(fleet, matching, stock)
    warm = missing_minimum(fleet, matching, stock)
    launched = scale_up(fleet, matching, take_turns(fleet, matching), warm)
    idle = idle_machines(fleet, matching, stock, {grant.machine for grant in made})
    intents: tuple[Intent, ...] = (
        *withdrawals,
        *calls,
        *unanswered_calls(fleet),
        *ends,
        *idle,
        *made,
        *launched.launches(),
        *examinations,
        *questions(fleet),
    )
    return Plan(intents, waiting_reasons(fleet, matching, launched))


def _ends(fleet: Fleet) -> tuple[list[End], list[Examine]]:
    due = due_machines(fleet)
    ends = {intent.machine: intent for intent in due if isinstance(intent, End)}
    for expired in expired_parked(fleet):
        ends.setdefault(expired.machine, expired)
    return list(ends.values()), [intent for intent in due if isinstance(intent, Examine)]


def _match_without_surplus(
    fleet: Fleet, stock: Stock, withdrawals: list[WithdrawRunner], ended: set[MachineId]
) -> Matching:
    """Match; if registrations are left over, count their machines as parked soon and match again."""
    matching = match(fleet, stock.supply)
    surplus = [
        w
        for w in surplus_registrations(fleet, matching, stock)
        if fleet.runners[w.runner].machine not in ended
    ]
    if not surplus:
        return matching
    for withdrawal in surplus:
        withdraw(fleet, stock, withdrawal)
    withdrawals.extend(surplus)
    return match(fleet, stock.supply)
