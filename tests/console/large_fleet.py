"""The first page's data of a large fleet on a bad night: 66 SKUs, 3,500 machines, 5,000 waiting jobs."""

from autoscaler.model.identifiers import Instant, JobId
from autoscaler.model.reasons.faults import Fault
from autoscaler.model.reasons.table import FaultCode, WaitCode
from autoscaler.model.reasons.waiting import WaitReason
from autoscaler.model.wait_objectives import DEFAULT_OBJECTIVES, Starts
from autoscaler.views.jobs.job import JobView
from autoscaler.views.jobs.waits import NextEvent, Wait
from autoscaler.views.overview import OldestJob, Overview, Sample
from autoscaler.views.status import SkuView, StatusView

NOW: Instant = 1_800_021_600.0
SKUS = tuple(f"linux.g{n % 6 + 3}.{n // 6 + 2}xlarge.nvidia.gpu" for n in range(66))
SINCE: Instant = NOW - 2_400.0
MACHINES, WAITING = 3_500, 5_000

_REFUSED = (
    "InsufficientInstanceCapacity: We currently do not have sufficient capacity in the Availability Zone "
    "you requested"
)


def bad_night() -> Overview:
    """Return such a fleet with seven faults at once, of which the first two concern most SKUs."""
    oldest = {sku: _oldest(number, sku) for number, sku in enumerate(SKUS)}
    hour = {sku: Starts(started=70, late=7, overdue=3) for sku in SKUS}
    return Overview(
        status=StatusView(
            fleet="ci",
            at=NOW,
            waiting=WAITING,
            blocked=3_120,
            overdue=1_234,
            unmatched={"labels": 12, "fork_not_allowed": 3},
            running=3_140,
            machines=MACHINES,
            machines_limit=4_000,
            dollars_per_hour=5_482.11,
            dollars_limit=9_000.0,
            skus=tuple(_sku(number, sku, oldest[sku]) for number, sku in enumerate(SKUS)),
            faults=_faults(),
            last_hour=hour,
        ),
        oldest=oldest,
        hour=hour,
        day={sku: Starts(started=1_900, late=21, overdue=3) for sku in SKUS},
        samples=tuple(
            Sample(NOW - 60.0 * ago, 40 * (ago % 97), 3 * (ago % 61), ago % 17, 3_100, ago % 23)
            for ago in range(360, -1, -1)
        ),
        since=NOW - 90_000.0,
        objectives=DEFAULT_OBJECTIVES,
    )


def _oldest(number: int, sku: str) -> OldestJob:
    """Return the oldest job of a SKU: every third waits for capacity, the others for a machine that boots."""
    waited, place = 300.0 + 60.0 * number, 1
    if number % 3 == 0:
        about = tuple(f"east/g5.4xlarge/us-east-1{zone}/on-demand" for zone in "abc")
        reasons = (WaitReason(WaitCode.CAPACITY, about, _REFUSED, NOW + 240.0, where="east"),)
        follows = NextEvent("the controller tries to launch a machine again", NOW + 240.0)
    else:
        reasons = (WaitReason(WaitCode.MACHINE_BOOTING),)
        follows = NextEvent("a machine becomes ready", NOW + 90.0, True, f"m-{number:016x}")
    job = JobView(
        id=JobId(51_000_000_000 + number),
        repository="acme/widgets",
        workflow="trunk",
        name="linux-jammy-cuda12.8-py3.10-gcc11 / test (default, 1, 5)",
        run_id=17_000_000_000,
        run_attempt=1,
        labels=(sku,),
        state="queued",
        sku=sku,
        queued_at=NOW - waited,
        started_at=None,
        completed_at=None,
        conclusion=None,
        runner=None,
        machine=None,
        wait=Wait(place, 75, place, reasons, blocked=number % 3 == 0),
    )
    return OldestJob(job, follows)


def _sku(number: int, sku: str, oldest: OldestJob) -> SkuView:
    wait = oldest.job.wait
    return SkuView(
        sku=sku,
        waiting=WAITING // 66,
        blocked=47,
        overdue=18,
        oldest=NOW - oldest.job.queued_at,
        reasons=wait.reasons if wait is not None else (),
        running=47,
        booting=4,
        ready=2,
        machines=MACHINES // 66,
        max_machines=120,
        circuit="3 consecutive machines failed" if number == 0 else None,
    )


def _faults() -> tuple[Fault, ...]:
    often = tuple(f"east/g{n}.4xlarge/us-east-1a/on-demand" for n in (4, 5, 6))
    on_hold = f"{' and '.join(often)} are on hold: {_REFUSED}"
    return (
        Fault(
            WaitCode.CAPACITY,
            "east InsufficientInstanceCapacity",
            f"2,411 jobs wait: {on_hold}",
            SKUS[:40],
            2_411,
            "add instance types, zones or regions to the SKUs, which are tried in their order",
            since=SINCE,
        ),
        Fault(
            WaitCode.QUOTA,
            "east/L-DB2E81BA",
            "612 jobs wait: quota east/L-DB2E81BA allows no more machines: 7,680 of 7,680 vCPUs are used; "
            "580 of the 612 open jobs are of acme/widgets",
            SKUS[40:52],
            612,
            "ask AWS for a higher quota L-DB2E81BA (Running On-Demand G and VT instances)",
            since=SINCE,
        ),
        *(
            Fault(
                FaultCode.HEALTH_CHECKS_FAIL,
                sku,
                "3 machines failed their health checks in the last 30 minutes: gpu_count: 3 GPUs of 4",
                (sku,),
                97,
                "look at the image that these machines have, and at its last change",
                since=SINCE,
            )
            for sku in SKUS[52:57]
        ),
    )
