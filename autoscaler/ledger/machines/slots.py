"""The slots of a launch request: what an empty one may cost, which are free, and which machine fills one."""

from collections import deque

from autoscaler.ledger.failures.cooldowns import end_holds_of_launch
from autoscaler.ledger.machines.states import move
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.catalogue import Offering, most_units
from autoscaler.model.events import LaunchedMachine
from autoscaler.model.identifiers import Instant, MachineId
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.launch_requests import LaunchRequest
from autoscaler.model.machines.machine import Machine, MachineState, Placement


def most_expensive(offerings: list[Offering]) -> tuple[float, tuple[tuple[str, int], ...]]:
    """Return the most that one slot may cost: dollars an hour, and units of each quota."""
    dollars = max(offering.dollars_per_hour for offering in offerings)
    return dollars, tuple(sorted(most_units(offerings).items()))


def new_slot(
    request: LaunchRequest,
    machine: MachineId,
    slot: int,
    at: Instant,
    dollars: float,
    quota_usage: tuple[tuple[str, int], ...],
) -> Machine:
    """Return an empty slot, which counts against limits at the most that it may cost."""
    return Machine(
        id=machine,
        sku=request.sku,
        provider=request.provider,
        launch_request=request.id,
        slot=slot,
        created_at=at,
        state=MachineState.REQUESTED,
        since=at,
        placement=Placement(dollars, quota_usage),
    )


def bind(
    state: LedgerState,
    request: LaunchRequest,
    launched: LaunchedMachine,
    at: Instant,
    slots: deque[Machine] | None = None,
) -> Machine | None:
    """Bind a machine to the lowest free slot; return None if it has a slot or none is free.

    `slots` are the slots to choose from; None stands for all free slots.
    """
    if launched.provider_id in state.by_provider_id:
        return None
    if slots is None:
        slots = deque(free_slots(state, request) or written_off_slots(state, request))
    if not slots:
        return None
    machine = slots.popleft()
    fill_in(state, machine, request, launched, at)
    move(state, machine, MachineState.LAUNCHED, at, launched.provider_id)
    return machine


def fill_in(
    state: LedgerState,
    machine: Machine,
    request: LaunchRequest,
    launched: LaunchedMachine,
    at: Instant,
) -> None:
    """Store what the provider answered. The machine now counts at its actual offering."""
    offering = _offering(state, request, launched)
    with state.changing(machine):
        machine.placement.provider_id = launched.provider_id
        machine.placement.instance_type = launched.instance_type
        machine.placement.zone = launched.zone
        machine.placement.capacity_type = launched.capacity_type
        machine.placement.image = launched.image or machine.placement.image
        machine.placement.launch_time = launched.launch_time or machine.placement.launch_time
        machine.failure = None
        if offering is not None:
            machine.placement.dollars_per_hour = offering.dollars_per_hour
            machine.placement.quota_usage = ((offering.quota_key, offering.quota_units),)
    if offering is not None:
        end_holds_of_launch(state, request, offering, machine.created_at, at)


def free_slots(state: LedgerState, request: LaunchRequest) -> list[Machine]:
    """Return the request's slots without a machine, lowest first."""
    slots = (state.machines.get(slot) for slot in request.slots)
    return [m for m in slots if m is not None and m.state is MachineState.REQUESTED]


def written_off_slots(state: LedgerState, request: LaunchRequest) -> list[Machine]:
    """Return slots that were written off without an answer. Their machines may still appear."""
    slots = (state.machines.get(slot) for slot in request.slots)
    return [
        m
        for m in slots
        if m is not None
        and m.state is MachineState.FAILED
        and m.placement.provider_id is None
        and m.failure is FailureClass.UNKNOWN
    ]


def _offering(
    state: LedgerState, request: LaunchRequest, launched: LaunchedMachine
) -> Offering | None:
    for key in request.offerings:
        offering = state.offering(request.sku, key)
        if (
            offering is not None
            and offering.instance_type == launched.instance_type
            and offering.zone == launched.zone
            and offering.capacity_type == launched.capacity_type
        ):
            return offering
    return None
