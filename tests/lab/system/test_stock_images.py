"""Machines with stock images: the agent installs the runner, which then runs a job."""

from lab.ec2.images import AMAZON, CANONICAL
from lab.ec2.moto import MotoProcess
from lab.laboratory import LabFleet, Laboratory
from tests.lab.system.harness import at_rest, ec2_sku, job, started, until
from tests.lab.system.pace import PATIENCE, yielding

UBUNTU = ec2_sku("c7i.2xlarge", image={"stock": "ubuntu-24.04"})
AMAZON_LINUX = ec2_sku("m7g.4xlarge", image={"stock": "amazon-linux-2023"}, arch="arm64")


async def test_a_machine_from_a_stock_image_runs_a_job(moto: MotoProcess) -> None:
    """Of two images the newest, and never the minimal one. The lab has APT on both."""
    skus = {"ubuntu": UBUNTU, "amazon": AMAZON_LINUX}
    fleet = LabFleet("acme", ("widgets",), skus, scale=yielding(20.0))
    async with Laboratory(fleet, moto) as lab:
        await lab.start_controller()
        jobs = lab.github.push([job("one", "ubuntu", 5.0), job("two", "amazon", 5.0)])
        await until(lambda: started(jobs), PATIENCE, lab.controller.log_end)
        await at_rest(lab, PATIENCE)
        assert (lab.wrong_jobs(), lab.left()) == ([], [])
        used = {one.specification.image.name: one.specification for one in lab.ec2.instances}
        assert {one.image.owner for one in used.values()} == {CANONICAL, AMAZON}
        assert set(used) == {
            "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20260923",
            "al2023-ami-2023.12.20260930.0-kernel-6.1-arm64",
        }
        assert {one.disk.gb for one in used.values()} == {40}
        assert lab.publisher is not None
        assert lab.publisher.downloads == len(list(lab.ec2.instances)) == 2


async def test_a_runner_with_another_checksum_never_runs(moto: MotoProcess) -> None:
    fleet = LabFleet("acme", ("widgets",), {"ubuntu": UBUNTU}, scale=yielding(60.0))
    async with Laboratory(fleet, moto) as lab:
        file = lab.folder / "versions.yaml"
        assert lab.publisher is not None
        sha256 = lab.publisher.versions()["runner"]["files"]["linux-x64"]["sha256"]
        file.write_text(file.read_text().replace(sha256, "0" * 64))
        await lab.start_controller()
        lab.github.push([job("one", "ubuntu", 5.0)])

        def failed() -> bool:
            log = (lab.folder / "controller.log").read_text()
            return "runner_download" in log

        await until(failed, PATIENCE, lab.controller.log_end)
        assert list(lab.github.runners) == []
