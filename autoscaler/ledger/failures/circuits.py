"""The circuit breaker of a SKU whose image GitHub refuses, and how a circuit breaker closes.

The planner launches nothing while a breaker is open, and one machine at a time after that.
"""

from dataclasses import replace

from autoscaler.ledger.failures.failure_counts import end_hold
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.backoff import Backoff
from autoscaler.model.changes import HistoryRow
from autoscaler.model.cooldowns import (
    IN_A_ROW,
    Cooldown,
    active_cooldown,
    boots_key,
    exits_key,
    launch_option_key,
    open_circuit,
    open_options,
    refused_image_key,
)
from autoscaler.model.events import CircuitClosed, ImageReplaced
from autoscaler.model.identifiers import Instant, SkuName
from autoscaler.model.machines.machine import Machine

REFUSED = Backoff(300.0, 3600.0)
"""How long no machine of a refused image is launched. Then one probe is launched, because GitHub once refused
its newest runner during an outage (actions/runner#4613)."""


def note_refused_image(state: LedgerState, machine: Machine, at: Instant, said: str) -> None:
    """Open the SKU's circuit breaker if two machines say that GitHub refuses the actions/runner of its image.

    A job with root may say so before GitHub reports that the runner has the job, so one machine proves nothing:
    it counts as one that exited without a job. A job on the image ends the count (`cooldowns.note_job_given`).
    While the breaker is open, further refusals of the same image change nothing.
    """
    key = exits_key(machine.sku)
    known = state.cooldowns.get(key)
    if (
        known is not None
        and known.failures
        and known.until > at
        and known.image == machine.placement.image
    ):
        return
    image, before = machine.placement.image, known.failures if known is not None else 0
    if known is not None and before and image and known.image == image:
        before = max(before, IN_A_ROW - 1)  # a second machine with the image
    failures = before + 1
    reason = (
        f"GitHub refuses actions/runner {machine.progress.runner_version or 'of unknown version'} in image "
        f"{image or 'of unknown id'}: {said}"
    )
    is_open = failures >= IN_A_ROW
    until = at + (REFUSED.delay(failures - IN_A_ROW) if is_open else 0.0)
    state.set_cooldown(Cooldown(key, until, failures, reason[:300], image=image))
    if not is_open:
        return
    remember_refused(state, machine.sku, image, at)
    state.note(machine, at, "circuit_opened", reason)


def on_circuit_closed(state: LedgerState, event: CircuitClosed) -> None:
    """Close the SKU's circuit breaker of runners, as if none had exited.

    The refused image is still remembered: a canary may use it.
    """
    end_hold(state, exits_key(event.sku), event.at)
    state.note_row(HistoryRow(event.at, "sku", event.sku, "circuit_closed", event.detail[:500]))


def on_image_replaced(state: LedgerState, event: ImageReplaced) -> None:
    """Launch the next probe of the SKU at once: its machines may have failed for their image."""
    probe_at_once(state, event.sku, event.at)
    state.note_row(HistoryRow(event.at, "sku", event.sku, "image_replaced", event.detail[:500]))


def probe_at_once(state: LedgerState, sku: SkuName, at: Instant) -> None:
    """End the waits of a SKU's circuit breakers. They stay open, because a probe costs one machine only.

    A breaker of a refused image is none of them: see `on_circuit_closed`.
    """
    known = state.catalogue.skus.get(sku)
    options = range(len(known.launch_options)) if known is not None else ()
    keys = [launch_option_key(sku, one) for one in options]
    exits = state.cooldowns.get(exits_key(sku))
    if exits is not None and not exits.image:
        keys.append(exits.key)
    for key in keys:
        if (row := active_cooldown(state.cooldowns, key, at)) is not None:
            state.set_cooldown(replace(row, until=at))


def refused_image(state: LedgerState, sku: SkuName) -> str:
    """Return the image of a SKU that GitHub refused last, or an empty string."""
    known = state.cooldowns.get(refused_image_key(sku))
    return known.image if known is not None else ""


def open_circuits(state: LedgerState, sku: SkuName) -> list[Cooldown]:
    """Return the open circuit breakers of a SKU: exits without a job, failed boots, its launch options."""
    rows = [open_circuit(state.cooldowns, key) for key in (exits_key(sku), boots_key(sku))]
    known = state.catalogue.skus.get(sku)
    rows += [row for _, row in open_options(state.cooldowns, known)] if known is not None else []
    return [row for row in rows if row is not None]


def remember_refused(state: LedgerState, sku: SkuName, image: str, at: Instant) -> None:
    """Keep the image of a SKU that GitHub refused. Without an image, the SKU may launch any again."""
    if image != refused_image(state, sku):
        state.set_cooldown(Cooldown(refused_image_key(sku), at, 0, "", image=image))
