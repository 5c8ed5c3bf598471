"""`autoscaler-lab`: the GitHub and the EC2 of a demo's folder, and what it refuses."""

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoscaler.setup.demo import AWS, write_demo
from lab.demo_world import DemoFiles, DemoWorld, NotPlayedError, command, play


@pytest.fixture
def files(tmp_path: Path) -> DemoFiles:
    write_demo(tmp_path, tmp_path / "fleet.yaml", lambda _: None)
    return DemoFiles.read(tmp_path)


async def test_it_listens_where_the_folder_says_and_queues_a_job(files: DemoFiles) -> None:
    async with DemoWorld(files, 1) as world:
        assert world.github.api_url == f"http://127.0.0.1:{files.github}"
        assert world.ec2.endpoint_url == f"http://127.0.0.1:{files.ec2}"
        assert (files.folder / "identity.pem").read_bytes() == world.ec2.certificate_pem
        [job] = world.github.jobs
        assert job.spec.labels == ("self-hosted", "linux.g5.xlarge")
        with pytest.raises(
            NotPlayedError, match=f"port {files.ec2} of 127.0.0.1: .* another folder"
        ):
            await DemoWorld(files, 1).__aenter__()
    # Everything is closed: it can be started again, and its job has another ID.
    async with DemoWorld(files, 2) as again:
        assert again.github.jobs[0].id != job.id


async def test_it_says_the_steps_and_ends_when_it_is_stopped(files: DemoFiles) -> None:
    said: list[str] = []
    stopped = asyncio.Event()

    def say(line: str) -> None:
        said.append(line)
        if line == "GitHub queues 1 job for linux.g5.xlarge":
            stopped.set()

    await play(files, stopped, say)
    assert len(said) == 2


@pytest.mark.parametrize(
    ("missing", "status", "reason"),
    [
        (AWS, 1, "is not a demo's; run: autoscaler init --demo"),
        ("fleet.yaml", 2, "fleet.yaml"),
        ("github-app.pem", 1, "github-app.pem"),
    ],
)
def test_an_incomplete_folder_is_refused(
    files: DemoFiles, missing: str, status: int, reason: str
) -> None:
    (files.folder / missing).unlink()
    answer = CliRunner().invoke(command, [str(files.folder)])
    assert (answer.exit_code, reason in answer.output) == (status, True)


def test_an_address_elsewhere_is_refused(files: DemoFiles) -> None:
    (files.folder / AWS).write_text("AWS_ENDPOINT_URL=https://ec2.us-east-1.amazonaws.com\n")
    with pytest.raises(NotPlayedError, match=r"not an address with a port of 127\.0\.0\.1"):
        DemoFiles.read(files.folder)
