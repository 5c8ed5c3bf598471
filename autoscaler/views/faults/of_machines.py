"""What is wrong with machines and providers, and what operators hold."""

from collections.abc import Iterator
from dataclasses import replace

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
from autoscaler.model.identifiers import ProviderName, SkuName
from autoscaler.model.machines.due import SILENCE, is_silent
from autoscaler.model.machines.machine import MachineState
from autoscaler.model.operators import TargetKind, held
from autoscaler.model.reasons.faults import Fault
from autoscaler.model.reasons.table import CODES, FaultCode, WaitCode
from autoscaler.model.wording import counted, duration
from autoscaler.views.faults.causes import cause_of_circuit
from autoscaler.views.faults.counts import Counts


def circuits(fleet: Fleet, name: SkuName) -> Iterator[tuple[str, Cooldown]]:
    """Yield the open circuit breakers of the SKU, then those of its launch options after the option's name."""
    for key in (exits_key(name), boots_key(name)):
        if (row := open_circuit(fleet.cooldowns, key)) is not None:
            yield "", row
    for option, row in open_options(fleet.cooldowns, fleet.catalogue.skus[name]):
        yield option.provider, row


def open_circuits(fleet: Fleet) -> Iterator[Fault]:
    """Return a fault for each open circuit breaker."""
    for sku in fleet.catalogue.skus:
        for provider, row in circuits(fleet, sku):
            code, about = cause_of_circuit(row, sku, provider)
            breaker = FaultCode.OPTION_CIRCUIT_OPEN if provider else WaitCode.CIRCUIT_OPEN
            found = Fault.of(breaker, about, sku=sku, provider=provider, words=row.reason)
            effects = (breaker.value,) if code is not breaker else ()
            yield replace(found, code=code.value, effects=effects, error=row.error)


def avoided_nodes(fleet: Fleet) -> Iterator[Fault]:
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


def silent_machines(fleet: Fleet) -> Iterator[Fault]:
    """Return a fault for each SKU with assigned machines whose agents are silent. O(assigned machines)."""
    for sku in fleet.catalogue.skus:
        # The controller reads the runner of each silent machine at GitHub, and of few others.
        read = (
            one
            for one in fleet.machines_in(sku, MachineState.ASSIGNED)
            if one.work.read_at is not None and is_silent(one, fleet.now)
        )
        if silent := [str(one.id) for one in read]:
            more = [f"{len(silent) - _MOST_NAMED} more"] if len(silent) > _MOST_NAMED else []
            yield Fault.of(
                FaultCode.MACHINES_SILENT,
                sku=sku,
                machines=counted(len(silent), "machine"),
                named=", ".join([*silent[:_MOST_NAMED], *more]),
                time=duration(SILENCE),
            )


def _shortened(text: str) -> str:
    """Return the begin of a text."""
    return text if len(text) <= _MOST_WORDS else f"{text[: _MOST_WORDS - 3]}..."


_MOST_NODES = 3
"""Nodes that one message names. `autoscaler_node_avoided` has the others."""

_MOST_NAMED = 3
"""Silent machines that one message names. `autoscaler machines` has the others."""

_MOST_WORDS = 150
"""Characters of a node's failure in a message."""


def holds(fleet: Fleet) -> Iterator[Fault]:
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


def counted_machines(fleet: Fleet, counts: Counts) -> Iterator[Fault]:
    """Return a fault for each provider that was not listed, and for machines that someone has to look at."""
    for provider in counts.providers_not_listed:
        skus = tuple(
            name
            for name, sku in fleet.catalogue.skus.items()
            if any(option.provider == provider for option in sku.launch_options)
        )
        yield replace(Fault.of(FaultCode.PROVIDER_NOT_LISTED, provider), skus=skus)
    for code, count in (
        (FaultCode.MACHINES_NOT_TERMINATING, counts.not_terminating),
        (FaultCode.MACHINES_UNVERIFIED, counts.unverified),
        (FaultCode.MACHINES_FOREIGN, counts.foreign),
    ):
        if count:
            yield Fault.of(code, machines=counted(count, "machine"))
