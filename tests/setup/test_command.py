"""The command `autoscaler init` as a process, and the options that it refuses."""

import asyncio
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoscaler.app.preflight import load_for_service
from autoscaler.cli import commands
from autoscaler.setup.asking import Asking, Options, choose
from autoscaler.setup.remaining import remaining_steps
from tests.patience import PATIENCE
from tests.setup.conftest import Owner

OF_EC2 = ["--ec2", "us-east-1", "--subnet", "subnet-0a", "--security-group", "sg-0a"]


async def test_the_command_writes_a_fleet_and_prints_what_is_left(owner: Owner) -> None:
    command = ["init", str(owner.folder), "--org", "acme", "--repository", "rocket", *OF_EC2]
    command += ["--api-url", owner.github.api_url, "--no-browser", "--yes"]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-u",
        *("-m", "autoscaler.cli", *command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            async for line in process.stdout:
                if line.startswith(b"Open http://127.0.0.1:"):
                    await owner.create_and_install(line.split()[1].decode())
                    break
            rest = (await process.stdout.read()).decode()
            assert await process.wait() == 0, rest
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    steps = rest.partition("Left to do, in this order:\n")[2].splitlines()
    assert [step.partition(". ")[0] for step in steps] == ["1", "2", "3", "4", "5", "6"]
    file = owner.folder / "fleet.yaml"
    assert [step.partition(": ")[2] for step in steps[2:5]] == [
        f"autoscaler doctor -c {file}",
        f"sudo autoscaler install -c {file}",
        f"autoscaler status -c {file}",
    ]
    assert "PRIVATE KEY" not in rest


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--org", "acme", "--repo", "acme/x"], "either --org or --repo"),
        (["--org", "acme", "--ec2", "r", "--kubernetes", "c"], "either --ec2 or --kubernetes"),
        (["--org", "acme", "--personal"], "--personal goes with --repo"),
        (["--repo", "acme/x", "--runner-group", "g"], "no runner groups"),
        ([], "give --org or --repo"),
        (["--org", "acme"], "give --subnet"),
        (["--org", "acme", *OF_EC2, "--webhook", "https://h.example/x"], "end with /webhook"),
        (["--org", "acme", *OF_EC2, "--public-url", "http://h.example"], "is not https"),
        (["--org", "acme", *OF_EC2, "--app-name", "a" * 35], "GitHub allows 34"),
        (["--org", "acme", *OF_EC2, "--app-id", "0"], "is not the number"),
        (["--org", "../x", *OF_EC2], "cannot be used"),
        (["--org", "acme", *OF_EC2, "--instance-type", "g99.large"], "g99.large is not known"),
    ],
)
def test_options_that_cannot_be_used_are_refused(
    tmp_path: Path, options: list[str], reason: str
) -> None:
    answer = CliRunner().invoke(commands, ["init", str(tmp_path / "fleet"), *options, "--yes"])
    assert answer.exit_code == 2
    assert reason in " ".join(answer.output.split())
    assert not (tmp_path / "fleet" / "fleet.yaml").exists()


@pytest.mark.parametrize(
    ("instance_type", "gpus"),
    [
        ("g5.xlarge", ("nvidia", 1)),
        ("g5.12xlarge", ("nvidia", 4)),
        ("g4ad.xlarge", ("amd", 1)),
        ("m7i.large", None),
        ("g6f.large", None),  # a part of a GPU, whose driver no machine can install
    ],
)
def test_a_first_fleet_on_ec2_needs_no_image_of_its_own(
    tmp_path: Path, instance_type: str, gpus: tuple[str, int] | None
) -> None:
    options = Options(
        org="acme",
        ec2="us-east-1",
        subnets=("subnet-0a",),
        security_groups=("sg-0a",),
        instance_type=instance_type,
        public_url="https://10.0.0.5:8443",
    )
    file = tmp_path / "fleet.yaml"
    file.write_text(choose(options, Asking(accept=True)).text(1))
    (sku,) = load_for_service(file, files=False).settings.skus.values()
    assert sku.stock == "ubuntu-24.04"
    found = sku.accelerator and (sku.accelerator.vendor, sku.accelerator.count)
    assert found == gpus
    assert (sku.driver == "install") == (gpus is not None)
    builds = [step for step in remaining_steps(tmp_path, []) if "images bake" in step]
    assert builds == []


def test_options_about_an_existing_fleet_are_refused(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text("fleet: ci\n")
    for options in (["--org", "acme"], ["--subnet", "subnet-0a"], ["--repository", "x"]):
        answer = CliRunner().invoke(commands, ["init", str(tmp_path), *options])
        assert (answer.exit_code, f"{options[0]} has no effect" in answer.output) == (2, True)


def test_a_key_without_a_fleet_asks_for_its_app(tmp_path: Path) -> None:
    (tmp_path / "github-app.pem").write_text("a key")
    answer = CliRunner().invoke(commands, ["init", str(tmp_path), "--org", "a", *OF_EC2, "--yes"])
    assert answer.exit_code == 2
    assert "give the ID of its App with --app-id" in " ".join(answer.output.split())


def test_a_fleet_of_pods_can_be_served(tmp_path: Path) -> None:
    options = Options(
        org="acme", kubernetes="", namespace="runners", image="registry.example/runner:1"
    )
    chosen = choose(options, Asking(accept=True))
    file = tmp_path / "fleet.yaml"
    file.write_text(chosen.text(1234))
    configuration = load_for_service(file, files=False)
    assert list(configuration.settings.skus) == ["linux.gpu.1"]
