"""A driver that the node mounts into the container: on GKE below /usr/local/nvidia, on no search path."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.agent.doubles import VirtualClock
from tests.agent.test_agent_edges import close_pipes, see

# Like the real one, it cannot start without the library that the node mounts beside it.
NVIDIA_SMI = """\
#!/bin/sh
case ":$LD_LIBRARY_PATH:" in *:{lib}:*) ;; *) echo "libnvidia-ml.so: not found"; exit 12;; esac
cat '{sample}'
"""

VARIABLES = """\
import json, os, sys
from autoscaler.agent.pod import live_in_pod
live_in_pod(sys.argv[1])
print(json.dumps({name: os.environ.get(name) for name in ('PATH', 'LD_LIBRARY_PATH')}))
"""


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """The folder that the node mounts, below another root."""
    folder = tmp_path / "usr" / "local" / "nvidia"
    for name in ("bin", "lib64"):
        (folder / name).mkdir(parents=True)
    return folder


def test_the_folders_are_those_of_gke(agent: ModuleType) -> None:
    assert agent.NODE_DRIVER == "/usr/local/nvidia"


@pytest.mark.parametrize(
    ("before", "path", "library_path"),
    [
        ({}, [*os.defpath.split(":"), "bin"], ["lib64"]),
        ({"PATH": "/a:/b"}, ["/a", "/b", "bin"], ["lib64"]),
        ({"PATH": "/a", "LD_LIBRARY_PATH": ""}, ["/a", "bin"], ["lib64"]),
        ({"PATH": "/a", "LD_LIBRARY_PATH": "/compat:"}, ["/a", "bin"], ["/compat", "lib64"]),
    ],
)
def test_the_driver_comes_after_what_the_image_has(
    agent: ModuleType,
    driver: Path,
    before: dict[str, str],
    path: list[str],
    library_path: list[str],
) -> None:
    root = str(driver.parents[2])
    found = agent.with_node_driver(before, root)
    for variable, names in (("PATH", path), ("LD_LIBRARY_PATH", library_path)):
        assert found[variable].split(":") == [
            str(driver / one) if one in ("bin", "lib64") else one for one in names
        ]
    assert agent.with_node_driver(found, root) == found


def test_nothing_changes_without_such_a_driver(agent: ModuleType, tmp_path: Path) -> None:
    before = {"PATH": "/a::/b", "LD_LIBRARY_PATH": ":"}
    assert agent.with_node_driver(before, str(tmp_path)) == before


@pytest.mark.case(
    "a node of GKE mounts nvidia-smi and its libraries in a folder of its own: checks and jobs find them",
    topic="Kubernetes",
    source="GKE: device plugin",
)
def test_the_agent_in_a_pod_searches_there(driver: Path) -> None:
    root = driver.parents[2]
    (root / "host.json").write_text(json.dumps({"root": str(root)}))
    done = subprocess.run(
        [sys.executable, "-c", VARIABLES, str(root / "host.json")],
        check=True,
        capture_output=True,
        text=True,
        env={"PATH": "/image/bin", "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "PATH": f"/image/bin:{driver / 'bin'}",
        "LD_LIBRARY_PATH": str(driver / "lib64"),
    }


def test_the_health_checks_find_it(
    agent: ModuleType, driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = next((Path(__file__).parent / "samples").rglob("*.xml"))
    program = driver / "bin" / "nvidia-smi"
    program.write_text(NVIDIA_SMI.format(lib=driver / "lib64", sample=sample))
    program.chmod(0o755)
    root = str(driver.parents[2])
    found = agent.with_node_driver({"PATH": "/usr/bin:/bin"}, root)
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    host = agent.Host({"root": root})
    wanted: dict[str, Any] = {"accelerator": {"vendor": "nvidia", "count": 1}}
    checks = agent.check_accelerators(wanted, host, VirtualClock())
    assert checks[0] == agent.Check("gpu_query", True, "nvidia-smi answered")


def test_a_job_has_it_on_its_paths(agent: ModuleType, driver: Path, open_folder: Path) -> None:
    """Also if the image replaces PATH with its `.path`."""
    program = open_folder / "run.sh"
    program.write_text(
        f'#!/bin/bash\n[[ "$PATH" == /image/bin:/usr/bin:/bin:{driver}/bin '
        f'&& ":$LD_LIBRARY_PATH" == *:{driver}/lib64 ]] && exit 4\n'
    )
    program.chmod(0o755)
    (open_folder / ".path").write_text("/image/bin:/usr/bin:/bin\n")
    keys = {"runner_directory": str(open_folder), "runner_user": "nobody"}
    runner = agent.LinuxRunner(agent.Host({**keys, "root": str(driver.parents[2])}))
    runner.start("the-jit-config", {})
    assert see(runner, lambda signs: signs.exited is not None).exited == 4
    close_pipes(runner)
