"""The circuit breaker of a SKU whose image GitHub refuses, and how a circuit breaker closes.

The planner launches nothing while a breaker is open, and one machine at a time after that.
"""

from autoscaler.ledger.failure_counts import end_hold
from autoscaler.ledger.state import LedgerState
from autoscaler.model.backoff import Backoff
from autoscaler.model.changes import HistoryRow
from autoscaler.model.cooldowns import (
    IN_A_ROW,
    Cooldown,
    boots_key,
    exits_key,
    launch_option_key,
    open_circuit,
    open_options,
    refused_image_key,
)
from autoscaler.model.events import CircuitClosed
from autoscaler.model.identifiers import Instant, SkuName
from autoscaler.model.machines import Machine

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
    _remember_refused(state, machine.sku, image, at)
    state.note(machine, at, "circuit_opened", reason)


def on_circuit_closed(state: LedgerState, event: CircuitClosed) -> None:
    """Close the SKU's circuit breaker, as if no machine had failed."""
    key = exits_key(event.sku)
    if event.by is not None:
        sku = state.catalogue.skus.get(event.sku)
        options = range(len(sku.launch_options)) if sku is not None else ()
        for lifted in (
            key,
            boots_key(event.sku),
            *(launch_option_key(event.sku, one) for one in options),
        ):
            end_hold(state, lifted, event.at)
        _remember_refused(state, event.sku, "", event.at)
    else:
        # Keep the refused image: a canary may still use it.
        end_hold(state, key, event.at)
    state.note_row(HistoryRow(event.at, "sku", event.sku, "circuit_closed", event.detail[:500]))


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


def _remember_refused(state: LedgerState, sku: SkuName, image: str, at: Instant) -> None:
    if image != refused_image(state, sku):
        state.set_cooldown(Cooldown(refused_image_key(sku), at, 0, "", image=image))
