"""A delivery that was stored and not applied is taken in at the next start, whatever GitHub answers."""

import json
from datetime import UTC, datetime

from autoscaler.controller.ports.store import Delivery
from autoscaler.model.identifiers import JobId
from autoscaler.store.sqlite.store import SqliteStore
from lab.ec2.moto import MotoProcess
from lab.github.settings import AnswerFault
from lab.laboratory import LabFleet, Laboratory
from tests.lab.system.harness import ec2_sku, read_records, until
from tests.lab.system.pace import PATIENCE, yielding

SKU = "linux.g5"
JOB = JobId(10**12)


async def test_a_stored_delivery_is_applied_at_the_start_while_all_lists_fail(
    moto: MotoProcess,
) -> None:
    """GitHub's lists would replace a lost delivery within minutes, and so hide its loss."""
    skus = {SKU: ec2_sku("g5.xlarge")}
    fleet = LabFleet("acme", ("widgets",), skus, scale=yielding(60.0))
    async with Laboratory(fleet, moto) as lab:
        store = await SqliteStore.open(lab.folder / "state.db")
        assert await store.accept(delivery(lab.clock.now()))
        await store.close()
        lab.github.inject_faults(AnswerFault("status", None, None))
        await lab.controller.start()
        await until(
            lambda: JOB in {job.id for job in read_records(lab).jobs},
            PATIENCE,
            lab.controller.log_end,
        )
        lab.github.inject_faults()


def delivery(now: float) -> Delivery:
    event = {
        "action": "queued",
        "workflow_job": {
            "id": JOB,
            "run_id": 1,
            "run_attempt": 1,
            "status": "queued",
            "name": "test",
            "labels": [SKU],
            "created_at": datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds"),
        },
        "repository": {"full_name": "acme/widgets"},
    }
    return Delivery("stored", "workflow_job", now, json.dumps(event).encode())
