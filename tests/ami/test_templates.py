"""Packer reads the templates, and a build whose step fails makes no image."""

import asyncio
import json
import re
import signal
from pathlib import Path

import pytest

from autoscaler.images.baking import TEMPLATE_VALUES
from autoscaler.model.catalogue import OperatingSystem
from tests.ami.account import AMI, packer, place, start_bake
from tests.ami.conftest import make_folder

VALUES = {
    "recipe": "linux-cpu",
    "image_name": "runner-1",
    "image_set": "runner",
    "source_name": "stock-1",
    "source_owner": "self",
    "runner_version": "1",
    "runner_url": "https://runner.example/",
    "runner_sha256": "0",
    "agent_file": __file__,
    "agent_sha256": "0",
    "region": "us-east-1",
    "instance_type": "m7i.large",
    "subnet_id": "subnet-0a",
}


WINDOWS = {
    f"{program}_{key}": "1"
    for program in ("python", "git", "vc_redist")
    for key in ("version", "url", "sha256")
    if (program, key) != ("vc_redist", "version")
}
"""The further values of the template for Windows."""


def validate(folder: Path, template: str, **changes: str | None) -> tuple[int, str]:
    values = {name: value for name, value in (VALUES | changes).items() if value is not None}
    file = folder / "values.json"
    file.write_text(json.dumps(values))
    done = packer("validate", f"-var-file={file}", AMI / template)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(("template", "further"), [("linux", {}), ("windows", WINDOWS)])
def test_packer_accepts_the_template(
    tmp_path: Path, template: str, further: dict[str, str]
) -> None:
    assert validate(tmp_path, template, **further)[0] == 0


@pytest.mark.parametrize("platform", OperatingSystem)
def test_the_command_gives_each_template_values_that_it_has(platform: OperatingSystem) -> None:
    text = next((AMI / platform).glob("*.pkr.hcl")).read_text()
    declared = set(re.findall(r'^variable "(\w+)"', text, re.MULTILINE))
    assert set(TEMPLATE_VALUES[platform]) <= declared


@pytest.mark.parametrize("platform", OperatingSystem)
def test_packer_gives_up_a_machine_that_is_silent(platform: OperatingSystem) -> None:
    """Packer 1.6.6 waits without a limit otherwise: a build whose processes were stopped did not end."""
    text = next((AMI / platform).glob("*.pkr.hcl")).read_text()
    assert re.search(r'^ +ssh_read_write_timeout += "5m"$', text, re.MULTILINE)


def test_packer_names_a_value_that_is_missing(tmp_path: Path) -> None:
    status, output = validate(tmp_path, "linux", runner_sha256=None)
    assert status == 1
    assert "runner_sha256" in output


async def _fail(folder: Path) -> tuple[str, list[str], int]:
    async with place(folder) as at:
        file = folder / "variables.json"
        file.write_text(json.dumps(at.variables | {"runner_sha256": "0" * 64}))
        words = ("build", "-color=false", f"-var-file={file}", AMI / "linux")
        done = await asyncio.to_thread(packer, *words)
        assert done.returncode == 1
        made = [image.name for image in at.ec2.images.named("autoscaler/*")]
        return done.stdout + done.stderr, made, len(at.ec2.machines_left())


async def test_a_step_that_fails_ends_the_build_without_an_image_and_a_machine(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = make_folder(tmp_path_factory, "failing")
    output, made, left = await _fail(folder)
    assert "/runner.tar.gz has the SHA-256 " in output
    assert "image-build: error: step runner failed in 'apply' (status 1)" in output
    assert (made, left) == ([], 0)


async def _interrupt(folder: Path) -> tuple[str, int, int]:
    async with place(folder) as at:
        process = start_bake(at)

        def interrupt() -> str:
            assert process.stdout is not None
            assert any("image-build: step system" in line for line in process.stdout)
            process.send_signal(signal.SIGINT)
            return process.communicate()[0]

        output = await asyncio.to_thread(interrupt)
        return output, process.returncode, len(at.ec2.machines_left())


async def test_an_interrupted_build_leaves_no_machine(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = make_folder(tmp_path_factory, "interrupted")
    output, status, left = await _interrupt(folder)
    assert "Cancelling build after receiving interrupt" in output
    assert "image-build: step seal" not in output
    assert "Terminating the source AWS instance" in output
    assert (status != 0, left) == (True, 0)
