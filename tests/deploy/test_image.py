"""The controller's image is built from what uv.lock pins, and fits the manifests."""

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.deploy.manifests import ROOT, container, pod

FOLDER = ROOT / "docker_images" / "controller"
TEXT = (FOLDER / "Dockerfile").read_text()
HADOLINT = Path(sys.executable).parent / "hadolint"


def instructions(name: str) -> list[str]:
    joined = TEXT.replace("\\\n", " ")
    return re.findall(rf"^{name} (.+)$", joined, re.MULTILINE)


def lint(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HADOLINT, "-"], input=text, capture_output=True, text=True, check=False)


def test_hadolint_accepts_the_dockerfile() -> None:
    found = lint(TEXT)
    assert (found.returncode, found.stdout) == (0, "")


def test_hadolint_reports_a_planted_mistake() -> None:
    found = lint("FROM python:latest\nRUN pip install uv\n")
    assert found.returncode == 1
    assert {"DL3007", "DL3013"} <= set(re.findall(r"DL\d+", found.stdout))


def test_both_stages_use_one_image() -> None:
    """The programs of /opt/autoscaler contain the path of the Python in the image that installed them."""
    assert instructions("FROM") == ["${BASE} AS build", "${BASE}"]


def test_the_image_has_the_uv_of_the_other_commands() -> None:
    bootstrap = (ROOT / "scripts" / "bootstrap.sh").read_text()
    found = re.search(r"^UV_VERSION=(\S+)$", bootstrap, re.MULTILINE)
    assert found is not None
    wanted = (ROOT / "scripts" / "uv.txt").read_text()
    assert re.findall(r"^[a-z].*", wanted, re.MULTILINE) == [f"uv=={found[1]} \\"]
    for text in (bootstrap, TEXT):
        (installing,) = [line for line in text.splitlines() if "pip install" in line]
        assert re.search(r"--require-hashes -r \S*/uv\.txt$", installing)


def test_only_the_packages_of_the_lock_file_are_installed() -> None:
    syncs = [one.partition(" uv ")[2] for one in instructions("RUN") if " uv " in one]
    assert len(syncs) == 2
    for sync in syncs:
        assert sync.startswith("sync --frozen --no-dev --no-")


def test_the_context_has_what_the_build_copies() -> None:
    admitted = {
        line.removeprefix("!")
        for line in (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = {
        name for line in instructions("COPY") if "--from" not in line for name in line.split()[:-1]
    }
    assert copied == admitted
    assert all((ROOT / name).exists() for name in copied)


def test_the_image_runs_what_the_pod_runs_and_as_its_user() -> None:
    [entry], [command], [user] = map(instructions, ("ENTRYPOINT", "CMD", "USER"))
    assert json.loads(entry) == ["autoscaler"]
    assert json.loads(command) == container()["args"]
    assert "command" not in container()
    security = pod()["securityContext"]
    assert user == f"{security['runAsUser']}:{security['runAsGroup']}"
