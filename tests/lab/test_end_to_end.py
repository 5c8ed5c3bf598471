"""Twenty jobs on three SKUs, and a controller that is killed in the middle: every job runs exactly once.

The controller and the agents are the real programs. `make test-systems` plays the laboratory whole.
"""

from lab.ec2.moto import MotoProcess
from lab.laboratory import LabFleet, Laboratory
from tests.lab.system.harness import (
    at_rest,
    ec2_sku,
    job,
    started,
    until,
    wrong_runners,
    wrong_slots,
)
from tests.lab.system.pace import PATIENCE, yielding

SKUS = {
    "gpu": ec2_sku("g5.xlarge"),
    "cpu": ec2_sku("c7i.2xlarge", idle={"timeout": "60s"}),
    "graviton": ec2_sku("m7g.4xlarge", arch="arm64"),
}
SCALE = 30.0
JOBS = 20


async def test_every_job_runs_once_although_the_controller_is_killed(moto: MotoProcess) -> None:
    fleet = LabFleet("acme", ("widgets",), SKUS, scale=yielding(SCALE), most_machines=40)
    async with Laboratory(fleet, moto) as lab:
        await lab.start_controller()
        skus = list(SKUS)
        jobs = lab.github.push([job(f"job-{n}", skus[n % 3], 45.0) for n in range(JOBS)])
        await until(
            lambda: len(list(lab.ec2.instances)) >= JOBS // 2, PATIENCE, lab.controller.log_end
        )
        await lab.controller.kill()
        assert not all(one.conclusion for one in jobs)
        await lab.start_controller()
        await until(lambda: started(jobs), PATIENCE, lab.controller.log_end)
        await at_rest(lab, PATIENCE)
        assert lab.wrong_jobs() == []
        assert lab.left() == []
        assert wrong_slots(lab) == []
        assert wrong_runners(lab) == []
        assert await lab.controller.terminate() == 0
