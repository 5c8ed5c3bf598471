"""Machines as operators see them."""

from collections import Counter
from dataclasses import dataclass

from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import (
    Instant,
    MachineId,
    ProviderMachineId,
    ProviderName,
    SkuName,
)
from autoscaler.model.jobs.runners import RunnerState
from autoscaler.model.machines.machine import LIVE_STATES, Machine, MachineState
from autoscaler.model.operators import drain_of, quarantine_of
from autoscaler.views.listed import Listed, Part


@dataclass(frozen=True, slots=True)
class MachineView:
    """One machine. Moments are Unix seconds, prices US dollars an hour.

    `code` is the reason code of `reason`: a TerminationReason, a FailureClass, or empty while neither holds.
    `stage` is the last stage of its boot, `job` the job that GitHub gave its runner. `due` is when the
    controller acts on the machine even if nothing else happens: a deadline, or a question to GitHub.
    `operator_hold` says which operator drained or quarantined it. `image_name` is empty if its provider has not
    read the name of the image since the start, or if the image has no other name than its ID.
    """

    id: str
    provider: str
    provider_id: str | None
    sku: str
    state: str
    since: Instant
    created_at: Instant
    due: Instant | None
    stage: str
    reason: str
    code: str
    failure: str | None
    instance_type: str
    zone: str
    capacity_type: str
    image: str
    runner_version: str
    dollars_per_hour: float
    runner: str | None
    job: int | None
    last_seen: Instant | None
    interruption: str | None
    unverified: str | None
    operator_hold: str | None
    terminations: int
    provider_words: str
    image_name: str = ""


def view_of(fleet: Fleet, machine: Machine) -> MachineView:
    """Return one machine."""
    runner = fleet.runners.get(machine.work.runner) if machine.work.runner is not None else None
    kind, unverified = machine.interruption.kind, machine.work.unverified
    return MachineView(
        id=machine.id,
        provider=machine.provider,
        provider_id=machine.placement.provider_id,
        sku=machine.sku,
        state=machine.state.value,
        since=machine.since,
        created_at=machine.created_at,
        due=machine.due,
        stage=machine.progress.stage,
        reason=machine.reason,
        code=machine.termination.reason or machine.failure or "",
        failure=machine.failure.value if machine.failure is not None else None,
        instance_type=machine.placement.instance_type,
        zone=machine.placement.zone,
        capacity_type=machine.placement.capacity_type,
        image=machine.placement.image,
        runner_version=machine.progress.runner_version,
        dollars_per_hour=machine.placement.dollars_per_hour,
        runner=machine.work.runner,
        job=runner.job if runner is not None and runner.state is RunnerState.BUSY else None,
        last_seen=machine.work.last_seen,
        interruption=kind.value if kind is not None else None,
        unverified=unverified.explanation
        if unverified is not None and machine.is_unverified
        else None,
        operator_hold=_hold(fleet, machine),
        terminations=machine.termination.attempts,
        provider_words=machine.provider_words if machine.does_not_terminate else "",
    )


def _hold(fleet: Fleet, machine: Machine) -> str | None:
    holds = fleet.operator_holds
    row = quarantine_of(holds, machine.id)
    row = row or drain_of(holds, machine.id, machine.sku, machine.provider)
    return row.reason if row is not None else None


@dataclass(frozen=True, slots=True)
class MachineFilter:
    """Which machines a list has. None admits any SKU or provider, and the states of machines that may exist."""

    sku: SkuName | None = None
    state: MachineState | None = None
    provider: ProviderName | None = None


def machines(fleet: Fleet, chosen: MachineFilter, part: Part) -> Listed[MachineView]:
    """Return machines by SKU and state, the longest in a state first, and their number by state.

    O(SKUs x states + rows shown), and O(machines) with a provider.
    """
    counts: Counter[str] = Counter()
    states = {chosen.state} if chosen.state is not None else LIVE_STATES
    found: list[Machine] = []
    skip, total = part.skip, 0
    for name, at in sorted(fleet.by_state, key=_order):
        if chosen.sku is not None and name != chosen.sku:
            continue
        of_state = fleet.machines_in(name, at)
        if chosen.provider is not None:
            of_state = [one for one in of_state if one.provider == chosen.provider]
        if of_state:
            counts[at.value] += len(of_state)
        if at in states:
            total += len(of_state)
            found += of_state[skip : skip + part.limit - len(found)]
            skip = max(0, skip - len(of_state))
    return Listed([view_of(fleet, machine) for machine in found], total, counts)


def knows_sku(fleet: Fleet, sku: SkuName) -> bool:
    """Return whether fleet.yaml has this SKU, or a record of a machine of it is still kept."""
    return sku in fleet.catalogue.skus or any(
        name == sku and bool(kept) for (name, _), kept in fleet.by_state.items()
    )


def knows_provider(fleet: Fleet, provider: ProviderName) -> bool:
    """Return whether a SKU uses this provider, or a record of a machine of it is still kept. O(machines)."""
    return any(
        option.provider == provider
        for sku in fleet.catalogue.skus.values()
        for option in sku.launch_options
    ) or any(machine.provider == provider for machine in fleet.machines.values())


def named(fleet: Fleet, name: str) -> Machine | None:
    """Return the machine with this ID, its provider's ID or the name of its runner. O(machines)."""
    if (found := fleet.machines.get(MachineId(name))) is not None:
        return found
    provider_id = ProviderMachineId(name)
    return next(
        (
            machine
            for machine in fleet.machines.values()
            if machine.placement.provider_id == provider_id or machine.work.runner == name
        ),
        None,
    )


def _order(key: tuple[SkuName, MachineState]) -> tuple[SkuName, int]:
    return key[0], _LIFE.index(key[1])


_LIFE = tuple(MachineState)
