"""The state of the whole fleet in one look: each SKU, and what is wrong, worst first."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from autoscaler.model.cooldowns import (
    AvoidedHost,
    Cooldown,
    avoided_hosts,
    boots_key,
    exits_key,
    open_circuit,
    open_options,
)
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Instant, ProviderName, Seconds, SkuName
from autoscaler.model.machines.machine import BOOTING_STATES, MachineState
from autoscaler.model.operators import HoldKind, TargetKind, held
from autoscaler.model.reasons.faults import Fault
from autoscaler.model.reasons.table import CODES, FaultCode, WaitCode
from autoscaler.model.reasons.waiting import Waiting, WaitReason, in_short
from autoscaler.model.wait_objectives import Starts, WaitObjective, objective_of
from autoscaler.model.wording import counted, duration, in_words
from autoscaler.views.waits import Reasons


@dataclass(frozen=True, slots=True)
class SkuView:
    """One SKU. `waiting` jobs include `blocked` ones, for which no machine is on its way.

    `oldest` is the age of the oldest waiting job in seconds, None if none waits. `reasons` explain the blocked
    jobs, else the waiting ones; empty if none waits. `circuit` is why the circuit breaker of the SKU or of one
    of its launch options is open, or None.
    """

    sku: str
    waiting: int
    blocked: int
    oldest: Seconds | None
    reasons: tuple[WaitReason, ...]
    running: int
    booting: int
    ready: int
    machines: int
    max_machines: int | None
    circuit: str | None


@dataclass(frozen=True, slots=True)
class StatusView:
    """The fleet at one moment (Unix seconds). Limits are None where fleet.yaml sets none.

    `unmatched` is the number of queued jobs that no SKU serves, by reason. `waiting` does not include them.
    """

    fleet: str
    at: Instant
    waiting: int
    blocked: int
    unmatched: Mapping[str, int]
    running: int
    machines: int
    machines_limit: int | None
    dollars_per_hour: float
    dollars_limit: float | None
    skus: tuple[SkuView, ...]
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts that the fleet's value does not have."""

    running: Mapping[SkuName, int]
    oldest: Mapping[SkuName, Seconds]
    dollars_per_hour: float
    unverified: int = 0
    not_terminating: int = 0
    foreign: int = 0
    providers_not_listed: tuple[str, ...] = ()
    observed: tuple[Fault, ...] = ()
    """Faults that only the metrics show."""
    last_hour: Mapping[str, Starts] = field(default_factory=dict)
    """The starts of the last hour by SKU."""
    objectives: tuple[WaitObjective, ...] = ()


def status(fleet: Fleet, reasons: Reasons, counts: Counts) -> StatusView:
    """Return the state of the fleet. O(classes + SKUs x states)."""
    runs: dict[SkuName, list[Waiting]] = {}
    for demand, of_class in reasons.items():
        runs.setdefault(demand.skus[0], []).extend(of_class)
    skus = tuple(_sku(fleet, runs.get(name, []), counts, name) for name in fleet.catalogue.skus)
    limits = fleet.catalogue.limits
    return StatusView(
        fleet=fleet.catalogue.fleet,
        at=fleet.now,
        waiting=sum(sku.waiting for sku in skus),
        blocked=sum(sku.blocked for sku in skus),
        unmatched={code.value: len(jobs) for code, jobs in fleet.unmatched.items() if len(jobs)},
        running=sum(counts.running.values()),
        machines=fleet.usage.machines,
        machines_limit=limits.machines,
        dollars_per_hour=counts.dollars_per_hour,
        dollars_limit=limits.dollars_per_hour,
        skus=skus,
        faults=_faults(fleet, skus, counts),
    )


def _faults(fleet: Fleet, skus: tuple[SkuView, ...], counts: Counts) -> tuple[Fault, ...]:
    """Return what is wrong, pages first; long waits and late starts only of SKUs without another fault.

    What an operator decided comes last: it hides nothing else. The circuit breaker of one launch option hides
    neither, because the SKU has other options. Nor does a node that is avoided: there are others.
    """
    found = [*_blocked_skus(fleet, skus), *counts.observed, *_others(counts)]
    options, holds = list(_option_circuits(fleet, skus)), list(_held(fleet))
    for more in (_long_waits(skus), _late_starts(counts)):
        named = {fault.about for fault in (*found, *holds)}
        found += [fault for fault in more if fault.about not in named]
    pages = [fault for fault in found if fault.is_page]
    tickets = [fault for fault in found if not fault.is_page]
    tickets = [*options, *_avoided_nodes(fleet), *tickets, *holds]
    # A job may wait because of a hold, so the first ones have such codes, too.
    return (*pages, *sorted(tickets, key=lambda one: one.code in _HOLDS))


_HOLDS = frozenset(HoldKind)


def _sku(fleet: Fleet, runs: list[Waiting], counts: Counts, name: SkuName) -> SkuView:
    blocked = [run for run in runs if run.blocked and run.code not in _DECIDED_BY_ACCESS]
    most = max(blocked or runs, key=lambda run: run.count, default=None)
    waiting = sum(run.count for run in runs)
    return SkuView(
        sku=name,
        waiting=waiting,
        blocked=sum(run.count for run in blocked),
        # The jobs that waited in the last plan may all have started since, and others may wait now.
        oldest=counts.oldest.get(name, 0.0) if waiting else None,
        reasons=most.reasons if most is not None else (),
        running=counts.running.get(name, 0),
        booting=sum(fleet.count(name, state) for state in BOOTING_STATES),
        ready=fleet.count(name, MachineState.READY),
        machines=fleet.usage.by_sku.get(name, 0),
        max_machines=fleet.catalogue.skus[name].max_machines,
        circuit=next((f"{of}{row.reason}" for of, row in _circuits(fleet, name)), None),
    )


_DECIDED_BY_ACCESS = frozenset(
    {
        WaitCode.FORK_NOT_ALLOWED,
        WaitCode.PUBLIC_REPOSITORY_NOT_ALLOWED,
        WaitCode.BRANCH_NOT_ALLOWED,
    }
)
"""No operator has to act on these jobs: fleet.yaml refuses them."""


def _circuits(fleet: Fleet, name: SkuName) -> Iterator[tuple[str, Cooldown]]:
    """Yield the open circuit breakers of the SKU, then those of its launch options after the option's name."""
    for key in (exits_key(name), boots_key(name)):
        if (row := open_circuit(fleet.cooldowns, key)) is not None:
            yield "", row
    for option, row in open_options(fleet.cooldowns, fleet.catalogue.skus[name]):
        yield f"launch option {option.provider}: ", row


def _is_known(sku: SkuView, of: str, circuit: Cooldown) -> bool:
    """Return whether the reasons of the SKU's jobs already say why a circuit breaker is open."""
    return any(
        reason.code is WaitCode.CIRCUIT_OPEN or (of and circuit.reason == reason.words)
        for reason in sku.reasons
    )


def _blocked_skus(fleet: Fleet, skus: tuple[SkuView, ...]) -> Iterator[Fault]:
    """Return a fault for each SKU with blocked jobs or its own open breaker, the most jobs first."""
    for sku in sorted(skus, key=lambda one: (-one.blocked, one.sku)):
        if sku.blocked:
            jobs = "1 job waits" if sku.blocked == 1 else f"{sku.blocked} jobs wait"
            message = f"{jobs}: {in_short(sku.reasons)}"
            yield Fault(sku.reasons[0].code.value, sku.sku, message, sku.sku)
        opened = next(_circuits(fleet, SkuName(sku.sku)), None)
        if opened is not None and not opened[0] and not _is_known(sku, *opened):
            yield _circuit_open(sku)


def _option_circuits(fleet: Fleet, skus: tuple[SkuView, ...]) -> Iterator[Fault]:
    """Return a fault for each SKU with an open circuit breaker of a launch option only."""
    for sku in sorted(skus, key=lambda one: (-one.blocked, one.sku)):
        opened = next(_circuits(fleet, SkuName(sku.sku)), None)
        if opened is not None and opened[0] and not _is_known(sku, *opened):
            yield _circuit_open(sku)


def _avoided_nodes(fleet: Fleet) -> Iterator[Fault]:
    """Return a fault for each SKU that avoids nodes of a provider, with the nodes that failed first."""
    found: dict[tuple[SkuName, ProviderName], list[AvoidedHost]] = {}
    for one in avoided_hosts(fleet.cooldowns, fleet.now):
        found.setdefault((one.sku, one.provider), []).append(one)
    for (sku, provider), nodes in sorted(found.items()):
        named = [f"{one.host} ({_shortened(one.row.reason)})" for one in nodes[:_MOST_NODES]]
        more = [f"{len(nodes) - _MOST_NODES} more"] if len(nodes) > _MOST_NODES else []
        yield Fault.of(
            FaultCode.NODE_AVOIDED,
            sku=sku,
            nodes=counted(len(nodes), "node"),
            provider=provider,
            named=", ".join([*named, *more]),
        )


def _shortened(text: str) -> str:
    """Return the begin of a text."""
    return text if len(text) <= _MOST_WORDS else f"{text[: _MOST_WORDS - 3]}..."


_MOST_NODES = 3
"""Nodes that one message names. `autoscaler_node_avoided` has the others."""

_MOST_WORDS = 150
"""Characters of a node's failure in a message."""


def _circuit_open(sku: SkuView) -> Fault:
    return Fault.of(WaitCode.CIRCUIT_OPEN, sku=sku.sku, words=sku.circuit)


def _long_waits(skus: tuple[SkuView, ...]) -> Iterator[Fault]:
    """Return a fault for each SKU whose oldest job has waited for hours, even with a machine on its way."""
    code = FaultCode.JOB_WAITS_FOR_HOURS
    for sku in skus:
        if sku.waiting and (sku.oldest or 0.0) > code.entry.threshold.above:
            time, reasons = duration(sku.oldest), in_short(sku.reasons)
            yield Fault.of(code, sku=sku.sku, time=time, reasons=reasons)


def _late_starts(counts: Counts) -> Iterator[Fault]:
    """Return a fault for each SKU that missed its objective in the last hour."""
    for sku, starts in sorted(counts.last_hour.items()):
        objective = objective_of(counts.objectives, sku)
        if objective is not None and not starts.meets_target:
            yield Fault.of(
                FaultCode.JOBS_START_LATE,
                sku=sku,
                late=counted(starts.late, "job"),
                started=starts.started,
                limit=in_words(objective.seconds),
            )


def _held(fleet: Fleet) -> Iterator[Fault]:
    """Return a fault for each hold of an operator, as a reminder to resume it."""
    for kind, target, row in sorted(held(fleet.operator_holds), key=lambda one: one[:2]):
        yield Fault.of(
            CODES[kind],
            target.name,
            sku=target.name if target.kind is TargetKind.SKU else "",
            variant="reminder",
            words=row.reason,
            where=target,
        )


def _others(counts: Counts) -> Iterator[Fault]:
    for provider in counts.providers_not_listed:
        yield Fault.of(FaultCode.PROVIDER_NOT_LISTED, provider)
    for code, count in (
        (FaultCode.MACHINES_NOT_TERMINATING, counts.not_terminating),
        (FaultCode.MACHINES_UNVERIFIED, counts.unverified),
        (FaultCode.MACHINES_FOREIGN, counts.foreign),
    ):
        if count:
            yield Fault.of(code, machines=counted(count, "machine"))
