"""Applies operators' requests: to terminate a machine, adopt an installation, and reload.

It also lists unverified machines, and returns the reasons against a request. A released machine becomes due,
and the planner terminates it.
"""

from collections.abc import Iterable
from textwrap import shorten

from autoscaler.ledger.failures.circuits import probe_at_once
from autoscaler.ledger.machines.unverified import adopt
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.changes import HistoryRow
from autoscaler.model.events import ConfigurationReloaded, InstallationAdopted
from autoscaler.model.identifiers import InstallationId, Instant, RunnerName, Seconds
from autoscaler.model.jobs.job import JobState
from autoscaler.model.jobs.runners import INSTALLATION_ID, machine_in_any_name, machine_in_name
from autoscaler.model.machines.launch_requests import LaunchRequestState
from autoscaler.model.machines.machine import Machine
from autoscaler.model.machines.unverified import UnverifiedMachine, UnverifiedReason
from autoscaler.model.operators import ALL, TargetKind
from autoscaler.model.wording import counted

SEEN_WITHIN: Seconds = 900.0
"""A machine is alive if its agent sent a request within this time."""

SHOWN = 3
"""Maximum number of names in a refusal."""

MAX_DETAIL = 500
"""Maximum number of characters that the history keeps of the changed keys of a reload."""

_CONFIRM = "it terminates after its job; if no job needs it: autoscaler terminate {}"
_ADOPT = (
    "if the store of that installation was lost and no other controller uses it: "
    "autoscaler adopt {}; if one does, give this fleet another name"
)
_TERMINATE = (
    "its cost goes on, and the controller asks again every 10 minutes; look at it at its provider "
    "(termination protection, permissions, a host that hangs) and terminate it there"
)
_NO_STORES_ID = (
    "its ID does not have the form of an installation's ID, so it cannot be adopted; terminate the machine "
    "at its provider, or give this fleet another name"
)


def on_installation_adopted(state: LedgerState, event: InstallationAdopted) -> None:
    """Use the adopted installation's ID from now on, and mark its machines as unverified.

    Machines of the previous ID still belong to this fleet, by their records or by this former ID.
    """
    state.adopt_installation(event.installation, event.by, event.at)
    for provider, known in state.foreign.items():
        for listed in tuple(known.values()):
            if listed.installation == event.installation:
                del known[listed.provider_id]
                state.count_use(listed.sku, listed.dollars_per_hour, listed.quota_usage, -1)
                if listed.provider_id not in state.by_provider_id:  # two providers may show it
                    adopt(state, provider, listed, event.at, UnverifiedReason.ADOPTED_INSTALLATION)


def on_configuration_reloaded(state: LedgerState, event: ConfigurationReloaded) -> None:
    """Let every SKU try again what failed, and note in the history who changed which keys."""
    for sku in state.catalogue.skus if event.changed else ():
        probe_at_once(state, sku, event.at)
    keys = f"{counted(len(event.changed), 'change')}: {', '.join(event.changed)}"
    detail = f"by {event.by}; {keys if event.changed else 'no key changed'}"
    short = shorten(detail, MAX_DETAIL, placeholder=" ...")
    state.note_row(HistoryRow(event.at, TargetKind.FLEET.value, ALL, "reloaded", short))


def unverified(state: LedgerState) -> list[UnverifiedMachine]:
    """Return unverified machines, then machines that do not terminate, then other installations'.

    Each part is sorted by the provider's ID. O(machines).
    """
    ours = [
        _own(state, one, one.reason, _CONFIRM.format(one.id))
        for one in state.machines.values()
        if one.is_unverified
    ]
    staying = [
        _own(
            state,
            one,
            f"{one.termination.attempts} requests to terminate it ({one.reason}), and it still exists; "
            f"{one.provider} says: {one.provider_words}",
            _TERMINATE,
        )
        for one in state.machines.values()
        if one.does_not_terminate
    ]
    others = [
        UnverifiedMachine(
            None,
            provider,
            listed.provider_id,
            listed.installation,
            listed.sku,
            None,
            listed.launch_time,
            f"made by installation {listed.installation}, and this one is "
            f"{state.catalogue.installations.own}",
            _what_to_do(listed.installation),
        )
        for provider, known in state.foreign.items()
        for listed in known.values()
    ]
    found = (sorted(some, key=lambda one: str(one.provider_id)) for some in (ours, staying, others))
    return [one for some in found for one in some]


def _own(state: LedgerState, machine: Machine, why: str, what_to_do: str) -> UnverifiedMachine:
    """Return what an operator reads about a machine of this installation."""
    return UnverifiedMachine(
        machine.id,
        machine.provider,
        machine.placement.provider_id,
        state.catalogue.installations.own,
        machine.sku,
        machine.since,
        machine.placement.launch_time,
        why,
        what_to_do,
    )


def evidence_of_life(
    state: LedgerState, machine: Machine, at_work: Iterable[RunnerName], now: Instant
) -> str | None:
    """Return the evidence that an unverified machine may be alive, or None.

    `at_work` are the runners that GitHub shows online or busy. A runner whose machine is not in the
    store may be on this machine.
    """
    last_seen = machine.work.last_seen
    if machine.nonce_hash and last_seen is not None and now - last_seen < SEEN_WITHIN:
        return f"its agent sent a request {now - last_seen:.0f} s ago"
    names = {name for name in at_work if _may_be_of(state, name, machine)}
    names |= {
        job.runner_name
        for job in state.jobs.values()
        if job.state is JobState.IN_PROGRESS
        and job.runner_name is not None
        and _may_be_of(state, job.runner_name, machine)
    }
    if not names:
        return None
    shown = ", ".join(sorted(names)[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
    which = counted(len(names), "busy or online runner")
    return f"GitHub shows {which} that may be on it, such as {shown}"


def refusal_of_adoption(
    state: LedgerState, installation: InstallationId, *, force: bool
) -> str | None:
    """Return why an installation cannot be adopted, and what to do; None if it can."""
    own = state.catalogue.installations.own
    if installation == own:
        return f"{own} is the ID of this installation already"
    if installation in state.catalogue.installations.former:
        return f"{installation} is a former ID of this installation: its machines already belong to this fleet"
    if not _is_a_stores_id(installation):
        # It would be in runner names, whose length GitHub limits, and in filters.
        return (
            "an installation's ID has 8 of the characters 0 to 9 and a to f, so this one cannot be adopted. "
            "`autoscaler unverified` lists the machines of other installations with their IDs"
        )
    every = {one.installation for known in state.foreign.values() for one in known.values()}
    shown = {one for one in every if _is_a_stores_id(one)}
    if installation not in shown:
        there = ", ".join(sorted(shown)[:SHOWN]) or "none"
        return f"no provider shows a machine of installation {installation}; shown are: {there}"
    under_way = sum(
        request.state is not LaunchRequestState.SETTLED
        for request in state.open_launch_requests.values()
    )
    if under_way:
        # Their machines would have the previous ID in their tags.
        return f"{counted(under_way, 'launch request')} in flight: repeat the command in a minute"
    live = sum(one.occupies for one in state.machines.values())
    if live and not force:
        return (
            f"this store is not empty: installation {own} has {counted(live, 'machine')} of its own. If "
            f"another controller uses {installation}, give this fleet another name. If its store is lost "
            "and no controller uses it, repeat the command with --force: the machines of this store stay "
            "in this fleet"
        )
    return None


def _is_a_stores_id(installation: str) -> bool:
    """Return True if a store could have created this ID. A tag may have any text."""
    return INSTALLATION_ID.fullmatch(installation) is not None


def _what_to_do(installation: str) -> str:
    return _ADOPT.format(installation) if _is_a_stores_id(installation) else _NO_STORES_ID


def _may_be_of(state: LedgerState, name: RunnerName, machine: Machine) -> bool:
    runner = state.runners.get(name)
    if runner is not None:
        return runner.machine == machine.id
    found = machine_in_any_name(state.catalogue.fleet, name)
    if found in state.machines:
        return found == machine.id
    # The registration of an adopted machine has another machine ID in its name.
    return machine.slot < 0 and machine_in_name(state.catalogue, name) is not None
