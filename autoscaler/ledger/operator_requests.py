"""What an operator confirms: that a machine is nobody's, or that an older installation is this one.

It says what cannot be told, what speaks against a confirmation, and what one changes. It never
ends a machine: a confirmed one is due, and the planner ends it.
"""

from collections.abc import Iterable

from autoscaler.ledger.lists import adopt_unverified
from autoscaler.ledger.state import LedgerState
from autoscaler.model.events import InstallationTakenOver, MachineReleasedByOperator, MachinesListed
from autoscaler.model.identifiers import InstallationId, Instant, RunnerName, Seconds
from autoscaler.model.jobs import JobState
from autoscaler.model.launch_requests import LaunchRequestState
from autoscaler.model.machines import Machine, TerminationReason
from autoscaler.model.runners import INSTALLATION_ID, machine_in_any_name, machine_in_name
from autoscaler.model.unverified import UnverifiedMachine

HEARD_WITHIN: Seconds = 900.0
"""An agent that spoke within this time is alive: the silence after which GitHub is asked."""

SHOWN = 3
"""How many names a refusal repeats."""

_CONFIRM = "it ends by itself after its job; if it is nobody's: autoscaler terminate {}"
_TAKE_OVER = (
    "if the store of that installation was lost and no other controller uses it: "
    "autoscaler adopt {}; if one does, give this fleet another name"
)
_TERMINATE = (
    "its cost goes on, and the controller asks again every 10 minutes; look at it at its provider "
    "(termination protection, permissions, a host that hangs) and terminate it there"
)
_NO_STORES_ID = (
    "no store makes such an id, so it cannot be taken over: end its machines at their provider, "
    "or give this fleet another name"
)


def on_machine_released_by_operator(state: LedgerState, event: MachineReleasedByOperator) -> None:
    """It is due at once, on a ground of its own. Of one that is clear by now, nothing changes."""
    machine = state.machines.get(event.machine)
    if machine is None or not machine.is_unverified:
        return
    with state.changing(machine):
        machine.reason_code = TerminationReason.OPERATOR
        machine.due = event.at
    state.note(
        machine, event.at, "operator_released", "an operator said that no job needs this machine"
    )


def on_installation_taken_over(state: LedgerState, event: InstallationTakenOver) -> None:
    """The old id is ours from now on, and what it made is possibly at work.

    What was made under the id before stays ours, by its record or by that former id.
    """
    state.take_over(event.installation, event.at)
    for provider, known in state.foreign.items():
        for listed in tuple(known.values()):
            if listed.installation == event.installation:
                del known[listed.provider_id]
                state.count_use(listed.sku, listed.dollars_per_hour, listed.quota_usage, -1)
                seen = MachinesListed(event.at, provider, event.at, False, (listed,))
                if listed.provider_id not in state.by_provider_id:  # two providers may show it
                    adopt_unverified(state, seen, listed, "of an installation that was taken over")


def unverified(state: LedgerState) -> list[UnverifiedMachine]:
    """Everything that cannot be told, then ours that do not terminate, then other installations'.

    Each part is sorted by the provider's id. O(machines).
    """
    ours = [
        UnverifiedMachine(
            one.id,
            one.provider,
            one.provider_id,
            state.catalogue.installations.own,
            one.sku,
            one.since,
            one.launch_time,
            one.reason,
            _CONFIRM.format(one.id),
        )
        for one in state.machines.values()
        if one.is_unverified
    ]
    staying = [
        UnverifiedMachine(
            one.id,
            one.provider,
            one.provider_id,
            state.catalogue.installations.own,
            one.sku,
            one.since,
            one.launch_time,
            f"{one.terminate_attempts} requests to terminate it ({one.reason}), and it still exists; "
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


def life_of(
    state: LedgerState, machine: Machine, at_work: Iterable[RunnerName], now: Instant
) -> str | None:
    """What says that an unverified machine may be alive, or None.

    `at_work` are the registrations that GitHub shows busy or online. Which machine a registration
    is on cannot be told where its machine is not in the store: it may be this one's.
    """
    heard = machine.last_seen
    if machine.nonce_hash and heard is not None and now - heard < HEARD_WITHIN:
        return f"its agent spoke {now - heard:.0f} s ago"
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
    return f"{len(names)} runners at work may be on it, such as {shown}"


def refusal_of_takeover(
    state: LedgerState, installation: InstallationId, *, force: bool
) -> str | None:
    """Why an installation is not taken over, and what to do about that; None where it may be."""
    own = state.catalogue.installations.own
    if installation == own:
        return f"{own} is this installation already"
    if installation in state.catalogue.installations.former:
        return (
            f"{installation} is an id that this installation had before: all of it is ours already"
        )
    if not _is_a_stores_id(installation):
        # It would stand in every runner's name, which GitHub bounds, and in filters.
        return f"an installation's id is 8 of the characters 0 to 9 and a to f: {_NO_STORES_ID}"
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
        # Their machines would carry the id that this installation gives up.
        return f"{under_way} calls to providers are under way: say it again in a minute"
    live = sum(one.occupies for one in state.machines.values())
    if live and not force:
        return (
            f"this store is not empty: installation {own} has {live} machines of its own. Is another "
            f"controller at work for {installation}? Then give this fleet another name. If its store "
            "is lost and no controller uses it, say it again with --force: the machines here stay "
            "this fleet's own"
        )
    return None


def _is_a_stores_id(installation: str) -> bool:
    """Whether a store made it: what a tag says may be anybody's text."""
    return INSTALLATION_ID.fullmatch(installation) is not None


def _what_to_do(installation: str) -> str:
    return _TAKE_OVER.format(installation) if _is_a_stores_id(installation) else _NO_STORES_ID


def _may_be_of(state: LedgerState, name: RunnerName, machine: Machine) -> bool:
    runner = state.runners.get(name)
    if runner is not None:
        return runner.machine == machine.id
    found = machine_in_any_name(state.catalogue.fleet, name)
    if found in state.machines:
        return found == machine.id
    # An adopted machine has a name of its own here, and another one in its registration.
    return machine.slot < 0 and machine_in_name(state.catalogue, name) is not None
