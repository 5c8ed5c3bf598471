"""What `autoscaler images bake` gives to Packer. No test here needs a process of the command."""

import hashlib
import json
import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoscaler.app.agent_file import build_agent
from autoscaler.cli import commands
from autoscaler.config.settings.sku import AcceleratorVendor
from autoscaler.images.baking import find_recipe, template_values
from autoscaler.images.commands import DRIVER_BUDGET
from autoscaler.images.driver import driver_plan
from autoscaler.images.load import load_versions
from autoscaler.model.catalogue import Architecture, OperatingSystem
from tests.python_programs import first_line, old_packer

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "autoscaler" / "images" / "versions.yaml"
WORDS = ["--region", "us-east-1", "--subnet", "subnet-0a"]

FAKE = """import json, pathlib, sys
words = sys.argv[1:]
values = dict(word.split("=", 1) for one, word in zip(words, words[1:]) if one == "-var")
named = [name for name in ("agent_file", "driver_plan") if name in values]
files = {name: pathlib.Path(values[name]).read_text() for name in named}
pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps([words, values, files]))
sys.exit(3)
"""


def newest(text: str, day: date) -> str:
    """Return a versions.yaml whose runner was known to be the newest one on this day."""
    return re.sub(r"newest_on: \S+", f"newest_on: {day}", text)


INIT = """import pathlib, sys
with pathlib.Path(__file__).with_suffix(".log").open("a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
if sys.argv[1] == "version":
    print("Packer v1.11.2")
if sys.argv[1] == "init":
    print("the plugin could not be downloaded")
sys.exit({"version": 0, "init": INIT}.get(sys.argv[1], 3))
"""


@pytest.mark.parametrize("status", [0, 1])
def test_packers_plugins_are_installed_before_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    packer, plugins = tmp_path / "packer", ROOT / "ami/plugins"
    packer.write_text(first_line() + INIT.replace("INIT", str(status)))
    packer.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    words = ["images", "bake", "linux-cpu", *WORDS, "--root", str(ROOT)]
    result = CliRunner().invoke(commands, words)
    ran = packer.with_suffix(".log").read_text().splitlines()
    assert ran[:2] == ["version", f"init {plugins}"]
    assert [line.split()[0] for line in ran[2:]] == ([] if status else ["build"])
    assert result.exit_code == (2 if status else 1)
    why = "packer init ended with status 1: the plugin could not be downloaded"
    assert (why in result.stderr) is bool(status)


def test_a_runner_that_is_about_to_end_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packer, file = tmp_path / "packer", tmp_path / "versions.yaml"
    packer.write_text(first_line() + old_packer() + "sys.exit(3)\n")
    packer.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    file.write_text(newest(SHIPPED.read_text(), datetime.now(UTC).date() - timedelta(days=17)))
    words = ["images", "bake", "linux-cpu", *WORDS, "--root", str(ROOT), "--file", str(file)]
    warning, ended = CliRunner().invoke(commands, words).stderr.splitlines()
    assert ": warning: runner.newest_on: " in warning
    assert ended == "packer ended with status 3: there is no image"


def test_packer_gets_the_values_of_the_recipe_and_of_the_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packer = tmp_path / "packer"
    packer.write_text(first_line() + old_packer() + FAKE)
    packer.chmod(0o755)
    file = tmp_path / "versions.yaml"
    text = SHIPPED.read_text().replace("runner-linux-x64", "our-linux-x64")
    file.write_text(newest(text, datetime.now(UTC).date()))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    options = ["--root", str(ROOT), "--file", str(file), "--image-set", "mine"]
    result = CliRunner().invoke(
        commands, ["images", "bake", "linux-gpu", *WORDS, *options, "--", "-debug"]
    )
    assert (result.exit_code, result.stderr) == (
        1,
        "packer ended with status 3: there is no image\n",
    )
    stages = [re.sub(r"\d+ s$", "", line) for line in result.stdout.splitlines()]
    assert stages == ["stage values and agent: ", "stage build: "]
    words, values, files = json.loads(packer.with_suffix(".json").read_text())
    assert words[:2] == ["build", "-color=false"]
    assert words[2::2].count("-var") == len(values)
    assert words[-2:] == ["-debug", str(ROOT / "ami/linux")]
    assert re.fullmatch(r"linux-gpu-x64-\d{8}-\d{6}", values.pop("image_name"))
    agent = files["agent_file"].encode()
    recipe = find_recipe("linux-gpu", Architecture.X64, ROOT)
    versions = load_versions(file)
    plan = driver_plan(versions, OperatingSystem.LINUX, Architecture.X64, AcceleratorVendor.NVIDIA)
    assert json.loads(files["driver_plan"]) == {**plan, "budget_s": DRIVER_BUDGET}
    assert agent == build_agent()
    assert [values.pop(name).rsplit("/", 1)[1] for name in files] == ["agent.py", "driver.json"]
    assert values == template_values(versions, OperatingSystem.LINUX, Architecture.X64) | {
        "agent_sha256": hashlib.sha256(agent).hexdigest(),
        "endpoint": "http://127.0.0.1:1",
        "recipe": "linux-gpu",
        "image_set": "mine",
        "region": "us-east-1",
        "subnet_id": "subnet-0a",
        "instance_type": recipe.instance_types[Architecture.X64],
    }
    plain = ["--arch", "arm64", "--instance-type", "t4g.large", "--root", str(ROOT)]
    CliRunner().invoke(commands, ["images", "bake", "linux-cpu", *WORDS, *plain])
    words, values, files = json.loads(packer.with_suffix(".json").read_text())
    assert (values["instance_type"], values["image_set"]) == ("t4g.large", "runner")
    assert values["image_name"].startswith("linux-cpu-arm64-")
    assert list(files) == ["agent_file"]
