"""Finds the registrations without a machine that the controller should have removed."""

from collections.abc import Iterable

from autoscaler.model.catalogue import Catalogue
from autoscaler.model.jobs.runners import machine_in_name
from autoscaler.simulator.world.instances import MachineActivity
from autoscaler.simulator.world.jobs import Registration


def orphaned(
    registrations: Iterable[Registration],
    activities: Iterable[MachineActivity],
    catalogue: Catalogue,
) -> list[Registration]:
    """Return the registrations that exist, and that no machine uses. `catalogue` has the store's IDs.

    Excludes registrations of an installation ID that the catalogue does not have: GitHub removes them after a
    day offline.
    """
    used = {activity.registration for activity in activities if activity.listens}
    return [
        registration
        for registration in registrations
        if registration.deleted_at is None
        and registration not in used
        and machine_in_name(catalogue, registration.name) is not None
    ]
