"""Finds the registrations without a machine that the controller should have removed."""

from collections.abc import Iterable

from autoscaler.model.catalogue import Catalogue
from autoscaler.model.machines import Machine, MachineState
from autoscaler.model.runners import machine_in_name
from autoscaler.simulator.world.instances import MachineActivity
from autoscaler.simulator.world.jobs import Registration
from autoscaler.simulator.world.store import MemoryStore


def orphaned(
    registrations: Iterable[Registration],
    activities: Iterable[MachineActivity],
    store: MemoryStore,
    catalogue: Catalogue,
) -> list[Registration]:
    """Return the registrations that exist, and that no machine uses. `catalogue` has the store's IDs.

    Excludes registrations of an installation ID that the store does not know: GitHub removes them after a day
    offline. Excludes those of lost machines: a lost machine may be listed again within a day, and the
    controller keeps its registration until then.
    """
    used = {activity.registration for activity in activities if activity.listens}
    lost = {one.id for one in store.of_kind(Machine) if one.state is MachineState.LOST}
    return [
        registration
        for registration in registrations
        if registration.deleted_at is None
        and registration not in used
        and machine_in_name(catalogue, registration.name) not in {None, *lost}
    ]
