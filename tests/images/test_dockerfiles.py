"""Every Dockerfile takes what `autoscaler images build` gives it, and keeps the rules of hadolint."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoscaler.cli import commands
from autoscaler.images.load import load_versions
from autoscaler.images.recipes import RECIPES
from autoscaler.images.values import read_values

ROOT = Path(__file__).parents[2]
HADOLINT = Path(sys.executable).parent / "hadolint"
DOCUMENT = (ROOT / "docs" / "images.md").read_text()
BUILDS = [(name, platform) for name, recipe in RECIPES.items() for platform in recipe.platforms]
FILES = sorted({recipe.dockerfile for recipe in RECIPES.values()})


def text(name: str) -> str:
    return (ROOT / RECIPES[name].dockerfile).read_text()


def test_every_dockerfile_has_a_recipe_and_hadolint_accepts_it() -> None:
    found = sorted(
        str(one.relative_to(ROOT)) for one in (ROOT / "docker_images").rglob("Dockerfile")
    )
    assert found == FILES
    done = subprocess.run([HADOLINT, *FILES], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(("name", "platform"), BUILDS)
def test_its_arguments_without_a_default_are_given_and_none_else(name: str, platform: str) -> None:
    declared = set(re.findall(r"^ARG (\w+)$", text(name), re.MULTILINE))
    assert declared == set(RECIPES[name].keys(platform))


@pytest.mark.parametrize(("name", "platform"), BUILDS)
def test_versions_yaml_has_a_value_for_each_argument(name: str, platform: str) -> None:
    words = ["images", "build", name, "--platform", platform, "--root", str(ROOT), "--print"]
    result = CliRunner().invoke(commands, words)
    assert (result.exit_code, result.stderr) == (0, "")
    given = shlex.split(result.stdout)
    expected = read_values(load_versions(), RECIPES[name].keys(platform))
    assert {f"{key}={value}" for key, value in expected.items()} <= set(given)
    assert re.fullmatch(r"\S+:\S+@sha256:[0-9a-f]{64}", expected["BASE"])


@pytest.mark.parametrize("name", RECIPES)
def test_every_stage_begins_with_the_base_image_and_the_last_user_is_not_root(name: str) -> None:
    """By numbers, which kubelet compares; Windows has no numbers, and ContainerUser is no administrator."""
    stages = re.findall(r"^FROM (.+)$", text(name), re.MULTILINE)
    assert len(stages) == 2
    assert {one.partition(" AS ")[0] for one in stages} == {"${BASE}"}
    *_, last = re.findall(r"^USER (.+)$", text(name), re.MULTILINE)
    if name == "runner-windows":
        assert last == "ContainerUser"
        return
    user, group = map(int, last.split(":"))
    assert min(user, group) > 0


def test_every_download_of_the_windows_image_is_compared_with_its_checksum() -> None:
    """It is not built in the tests, so these only read it."""
    keys = RECIPES["runner-windows"].keys("windows/amd64")
    urls = {name.removesuffix("_URL") for name in keys if name.endswith("_URL")}
    runs = re.split(r"^RUN ", text("runner-windows"), flags=re.MULTILINE)
    fetches = [one for one in runs if "Invoke-WebRequest" in one]
    assert len(fetches) == len(urls)
    for name in urls:
        [fetch] = [one for one in fetches if f"-Uri $env:{name}_URL" in one]
        compared = re.search(
            r"-OutFile (\S+);.*Get-FileHash (\S+) .*-ne \$env:(\w+)\)", fetch, re.DOTALL
        )
        assert compared is not None
        assert (compared[1], compared[3]) == (compared[2], f"{name}_SHA256")


def test_the_document_lists_each_image_with_its_base_and_its_platforms() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| `([\w.]+)` \| (.+?) \| .* \|$", DOCUMENT, re.MULTILINE)
    expected = [
        (name, recipe.base, ", ".join(f"`{one}`" for one in recipe.platforms))
        for name, recipe in RECIPES.items()
    ]
    assert rows == expected
