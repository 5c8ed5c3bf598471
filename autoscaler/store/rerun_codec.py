"""Encodes and decodes reruns; see `codec` for the other records."""

from autoscaler.model.identifiers import JobId, MachineId, SkuName
from autoscaler.model.interruptions import Rerun, RerunOutcome, RerunState
from autoscaler.store.codec import record_text
from autoscaler.store.fields import Fields


def encode_rerun(rerun: Rerun) -> str:
    """Return JSON text.

    Raises: ValueError for a number that is not finite.
    """
    return record_text(
        {
            "job": rerun.job,
            "repository": rerun.repository,
            "run_id": rerun.run_id,
            "run_attempt": rerun.run_attempt,
            "died_in": rerun.died_in,
            "sku": rerun.sku,
            "machine": rerun.machine,
            "state": rerun.state,
            "taken_at": rerun.taken_at,
            "created_at": rerun.created_at,
            "due": rerun.due,
            "ended_at": rerun.ended_at,
            "asked": rerun.asked,
            "unanswered": rerun.unanswered,
            "outcome": rerun.outcome,
            "reason": rerun.reason,
        }
    )


def decode_rerun(text: str) -> Rerun:
    """Return the rerun that `encode_rerun` encoded.

    Raises: CorruptRecordError.
    """
    of = Fields.parse(text)
    return Rerun(
        job=JobId(of.whole("job")),
        repository=of.text("repository"),
        run_id=of.whole("run_id"),
        run_attempt=of.whole("run_attempt"),
        died_in=of.whole("died_in"),
        sku=SkuName(of.text("sku")),
        machine=MachineId(of.text("machine")),
        state=of.choice("state", RerunState),
        taken_at=of.number("taken_at"),
        created_at=of.number("created_at"),
        due=of.number_or_none("due"),
        ended_at=of.number_or_none("ended_at"),
        asked=of.whole("asked"),
        unanswered=of.whole("unanswered"),
        outcome=of.choice_or_none("outcome", RerunOutcome),
        reason=of.text("reason"),
    )
