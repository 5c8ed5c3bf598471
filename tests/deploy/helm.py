"""Renders the chart in deploy/helm with Helm, and kustomizations with Kustomize.

Only tests in tests/cluster use these programs: a host may not have them built when the others run.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from lab.kubernetes.programs import find
from tests.deploy.kustomization import Body
from tests.deploy.manifests import KUBERNETES, NAME, ROOT

CHART = ROOT / "deploy" / "helm" / NAME


class HelmError(Exception):
    """Helm failed. The message is what it printed."""


def helm(*arguments: str | Path, values: dict[str, Any] | None = None) -> str:
    """The output of a command of Helm, with these values. Raises HelmError."""
    command = [str(find("helm")), *map(str, arguments)]
    if values is not None:
        command += ["--values", "-"]
    done = subprocess.run(
        command,
        input=yaml.safe_dump(values or {}),
        capture_output=True,
        text=True,
        check=False,
        # No configuration, repositories or plugins of the user.
        env={"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"},
    )
    if done.returncode:
        raise HelmError(done.stderr)
    return done.stdout


def rendered(values: dict[str, Any], release: str = NAME, namespace: str = NAME) -> list[Body]:
    """The objects of the chart with these values."""
    return _objects(helm("template", release, CHART, "--namespace", namespace, values=values))


def kustomized(folder: Path) -> list[Body]:
    """The objects of a folder with a kustomization.yaml. Raises CalledProcessError."""
    command = [str(find("kustomize")), "build", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return _objects(done.stdout)


def write_overlay(
    folder: Path,
    *resources: str,
    components: tuple[str, ...] = (),
    fleet: str = "fleet: first\n",
) -> None:
    """Write a kustomization like an operator's, with these folders of deploy/kubernetes and a fleet.yaml."""
    (folder / "fleet.yaml").write_text(fleet)
    body = {
        # Kustomize refuses absolute paths.
        "resources": [os.path.relpath(KUBERNETES / one, folder) for one in resources],
        "components": [
            os.path.relpath(KUBERNETES / "components" / one, folder) for one in components
        ],
        "configMapGenerator": [{"name": NAME, "namespace": NAME, "files": ["fleet.yaml"]}],
        "images": [{"name": NAME, "newName": f"registry.example.com/{NAME}", "newTag": "0.1.0"}],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(body))


def _objects(text: str) -> list[Body]:
    return [one for one in yaml.safe_load_all(text) if one is not None]
