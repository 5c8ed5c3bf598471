"""The slots of a launch request: which are free, and which machine fills one."""

from collections import deque

from autoscaler.ledger.failures.cooldowns import end_holds_of_launch
from autoscaler.ledger.machines.states import move
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.events import LaunchedMachine, ListedMachine
from autoscaler.model.identifiers import Instant
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.launch_requests import LaunchRequest
from autoscaler.model.machines.machine import Machine, MachineState


def bind(
    state: LedgerState,
    request: LaunchRequest,
    launched: LaunchedMachine | ListedMachine,
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
    place = machine.placement
    with state.changing(machine):
        place.provider_id = launched.provider_id
        place.instance_type, place.zone = launched.instance_type, launched.zone
        place.capacity_type = launched.capacity_type
        place.image = launched.image or place.image
        place.launch_time = launched.launch_time or place.launch_time
        machine.failure = None
        key = request.offering(machine.offering)
        offering = state.offering(request.sku, key) if key in request.offerings else None
        if offering is not None:
            # The machine now counts at its actual offering.
            place.dollars_per_hour = offering.dollars_per_hour
            place.quota_usage = ((offering.quota_key, offering.quota_units),)
    if offering is not None:
        end_holds_of_launch(state, request, offering, machine.created_at, at)
    move(state, machine, MachineState.LAUNCHED, at, launched.provider_id)
    return machine


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
