"""Workflows name each action and image by a digest, which always means the same code.

A tag moves: in 2025, the tags of tj-actions/changed-files were moved to a commit that printed secrets
(CVE-2025-30066). GitHub advises full-length commit SHAs (docs.github.com, "Secure use reference").
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.kubernetes.programs import find

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github").glob("**/*.y*ml"))
COMMIT = re.compile(r"[^@\s]+@[0-9a-f]{40}")
DIGEST = re.compile(r"[^@\s]+@sha256:[0-9a-f]{64}")
MATRIX = re.compile(r"\$\{\{ *matrix\.(\w+) *\}\}")

ACTIONS = sorted(ROOT.glob("actions/*/action.yml"))

SHA1 = "0123456789" * 4
SHA256 = "0123456789abcdef" * 4


def unpinned(workflow: Any) -> list[str]:
    """Return every action and image of a workflow or composite action that has no digest."""
    found = []
    jobs = [*workflow.get("jobs", {}).values(), workflow.get("runs", {})]
    for job in jobs:
        named = [*uses(job), *images(job)]
        found += [value for value in expanded(job, named) if not is_pinned(value)]
    return found


def uses(job: Any) -> Iterator[str]:
    for entry in (job, *job.get("steps", [])):
        if "uses" in entry:
            yield entry["uses"]


def images(job: Any) -> Iterator[str]:
    """Yield the images of a job as `docker://IMAGE`, as a step names them."""
    containers = [job["container"]] if "container" in job else []
    for one in [*containers, *job.get("services", {}).values()]:
        yield "docker://" + (one["image"] if isinstance(one, dict) else one)
    if str(job.get("image", "")).startswith("docker://"):
        yield job["image"]


def expanded(job: Any, named: list[str]) -> Iterator[str]:
    """Yield each text with every value of the job's matrix. Other expressions remain, and are not pinned."""
    matrix = job.get("strategy", {}).get("matrix", {})
    for text in named:
        key = MATRIX.search(text)
        values = matrix.get(key[1], []) if key else []
        if key and values:
            yield from expanded(job, [text.replace(key[0], str(value)) for value in values])
        else:
            yield text


def is_pinned(value: str) -> bool:
    if value.startswith("./"):
        return True
    pattern = DIGEST if value.startswith("docker://") else COMMIT
    return pattern.fullmatch(value) is not None


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_pins_each_action_and_image_by_its_digest(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    named = [text for job in workflow["jobs"].values() for text in (*uses(job), *images(job))]
    assert len(named) >= len(workflow["jobs"]), "no action or image was found in some job"
    assert unpinned(workflow) == []


@pytest.mark.parametrize("path", ACTIONS, ids=lambda path: path.parent.name)
def test_an_action_pins_what_it_uses_and_is_documented(path: Path) -> None:
    action = yaml.safe_load(path.read_text())
    assert unpinned(action) == []
    page = (ROOT / "docs" / "actions.md").read_text()
    for name, one in action["inputs"].items():
        assert f"| `{name}` | {one['default']} |" in page


def test_there_is_a_workflow() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "release.yml"]


def actionlint(*files: Path) -> subprocess.CompletedProcess[str]:
    # actionlint runs the ShellCheck that it finds on the PATH.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    command = [str(find("actionlint")), "-no-color", *map(str, files)]
    settings = {**os.environ, "PATH": path}
    return subprocess.run(command, env=settings, capture_output=True, text=True, check=False)


@pytest.mark.systems
def test_actionlint_accepts_the_workflows() -> None:
    found = actionlint(*WORKFLOWS)
    assert (found.returncode, found.stdout) == (0, "")


@pytest.mark.systems
def test_actionlint_reports_planted_mistakes(tmp_path: Path) -> None:
    workflow = tmp_path / "planted.yml"
    job = with_job(steps=[{"run": "echo $HOME/${{ github.nothing }}"}])
    workflow.write_text(yaml.safe_dump({"on": "push", **job}))
    found = actionlint(workflow)
    assert found.returncode == 1
    assert 'property "nothing" is not defined' in found.stdout
    assert "SC2086" in found.stdout


def with_job(**job: Any) -> Any:
    return {"jobs": {"test": {"runs-on": "ubuntu-24.04", **job}}}


MATRIX_OF_TWO = {"matrix": {"python": [f"3.11@sha256:{SHA256}", "3.12"]}}


@pytest.mark.parametrize(
    ("workflow", "reported"),
    [
        (with_job(steps=[{"uses": "actions/checkout@v4"}]), ["actions/checkout@v4"]),
        (with_job(steps=[{"uses": "actions/checkout@" + SHA1[:-1]}]), None),
        (with_job(steps=[{"uses": "actions/checkout@" + SHA1}]), []),
        (with_job(steps=[{"uses": "actions/checkout"}]), ["actions/checkout"]),
        (with_job(steps=[{"uses": "./.github/actions/own"}]), []),
        (with_job(steps=[{"uses": "docker://alpine:3"}]), ["docker://alpine:3"]),
        (with_job(steps=[{"uses": f"docker://alpine@sha256:{SHA256}"}]), []),
        (with_job(uses="acme/w/.github/workflows/x.yml@main"), None),
        (with_job(container="python:3.11"), ["docker://python:3.11"]),
        (with_job(container={"image": "python:3.11"}), ["docker://python:3.11"]),
        (with_job(services={"db": {"image": "postgres:18"}}), ["docker://postgres:18"]),
        (
            with_job(container="python:${{ matrix.python }}", strategy=MATRIX_OF_TWO),
            ["docker://python:3.12"],
        ),
        (with_job(container="python:${{ inputs.python }}@sha256:" + SHA256), None),
        (
            {"runs": {"using": "composite", "steps": [{"uses": "actions/cache@v4"}]}},
            ["actions/cache@v4"],
        ),
        ({"runs": {"using": "docker", "image": "docker://alpine:3"}}, ["docker://alpine:3"]),
        ({"runs": {"using": "docker", "image": "Dockerfile"}}, []),
    ],
)
def test_an_unpinned_action_or_image_is_found(workflow: Any, reported: list[str] | None) -> None:
    found = unpinned(workflow)
    assert len(found) == 1 if reported is None else found == reported
