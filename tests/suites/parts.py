"""The parts of the two suites, and the command of each."""

import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

SYSTEMS = (
    "ami",
    "benchmarks",
    "cluster",
    "docker_images",
    "lab/ec2",
    "lab/machines",
    "lab/system",
    "readme",
    "terraform",
    "watchdog",
    "windows",
)
"""The folders of tests/ whose tests all have the marker `systems`. Other tests carry it themselves."""


class Suite(StrEnum):
    """`EVERYONE` needs Python packages only, and any user runs it. `SYSTEMS` needs root and real servers."""

    EVERYONE = "everyone"
    SYSTEMS = "systems"


@dataclass(frozen=True, slots=True)
class Part:
    """One command of a suite: `words`, or pytest with `options` for the tests in `paths`.

    `after` names the part that builds what this part needs, and runs before it.
    `alone`: no other part runs beside it. `nice`: it computes, while the parts beside it mostly wait.
    """

    name: str
    words: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    after: str = ""
    alone: bool = False
    nice: bool = False

    def command(self, logs: Path, *options: str) -> list[str]:
        """Return the command. Pytest gets `options`, and writes the failed tests below `logs`."""
        before = ["nice"] if self.nice else []
        if self.words:
            return [*before, *self.words]
        cache = f"cache_dir={self.file(logs, 'cache')}"
        pytest = [sys.executable, "-m", "pytest", "-q", "-o", cache, *self.options, *options]
        return [*before, *pytest, *self.paths]

    def file(self, logs: Path, kind: str) -> Path:
        """Return the path of a file about this part: `log`, `xml` (results) or `cache`."""
        return logs / f"{self.name}.{kind}"


def _make(target: str, name: str = "", alone: bool = False) -> Part:
    return Part(name or target, ("make", "--no-print-directory", target), alone=alone)


def _build(name: str, module: str) -> Part:
    """Return a part that builds what other tests need, once for all clones on a host."""
    return Part(name, (sys.executable, "-m", module), nice=True)


def _everyone(name: str, *folders: str) -> Part:
    leave = (f"--ignore=tests/{path}" for path in SYSTEMS if path.split("/")[0] in folders)
    return Part(name, paths=_paths(folders), options=("-m", "not systems", *leave))


def _systems(
    name: str, *folders: str, leave: tuple[str, ...] = (), after: str = "", nice: bool = False
) -> Part:
    options = ("-m", "systems and not whole_host", *(f"--ignore=tests/{path}" for path in leave))
    return Part(name, paths=_paths(folders), options=options, after=after, nice=nice)


def _paths(folders: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(
        str(path)
        for name in folders
        for path in (sorted(Path("tests").glob(name)) or [Path("tests", name)])
    )


_CORE = ("model", "ledger", "planner", "views", "config")
_CONTROLLER = ("controller", "github")
_EDGES = (
    "server",
    "store",
    "observability",
    "console",
    "dashboards",
    "deploy",
    "images",
    "benchmarks",
    "operator_commands",
    "setup",
    "host",
    "doctor",
)
_MACHINES = ("agent", "app")
_PROJECT = ("release", "suites", "watchdog", "test_*.py")
_WORLDS = ("chaos", "fuzz")
_PODS = tuple(
    f"cluster/test_{name}.py"
    for name in (
        "demo_kubernetes",
        "jobs_in_pods",
        "restarted_api_server",
        "rolling_upgrade",
        "troubled_api_server",
    )
)
"""They run `autoscaler serve`, or kill the API server: they get a cluster of their own."""

PARTS: dict[Suite, tuple[Part, ...]] = {
    # Short parts first, so that a line appears within seconds. Then the longest ones, so that both cores are
    # used to the end.
    Suite.EVERYONE: (
        _make("contracts"),
        _make("lint"),
        _everyone("providers", "providers"),
        _everyone("machines", *_MACHINES),
        _everyone("laboratory", "lab"),
        _everyone("core", *_CORE),
        _everyone("controller", *_CONTROLLER),
        _everyone("edges", *_EDGES),
        _everyone("worlds", *_WORLDS),
        _everyone("project", *_PROJECT),
        _make("types"),
    ),
    Suite.SYSTEMS: (
        # A thousand machines at once need both cores for themselves.
        Part("crowds", paths=("tests/lab",), options=("-m", "whole_host"), alone=True),
        _build("kubernetes-programs", "lab.kubernetes.build"),
        _build("windows-programs", "lab.windows.build"),
        _build("terraform-programs", "lab.terraform.build"),
        _systems("terraform", "terraform", after="terraform-programs"),
        _systems("laboratory", "lab/system", leave=("lab/system/test_kill_points.py",)),
        _systems("first-fleet", "readme/test_ec2.py", after="terraform-programs"),
        _systems("first-pods", "readme/test_kubernetes.py", after="kubernetes-programs"),
        _systems("windows", "windows", after="windows-programs"),
        _systems("images", "docker_images", "ami"),
        _systems("seeds", *_WORLDS, nice=True),
        _systems("kills", "lab/system/test_kill_points.py"),
        _systems("cluster", "cluster", leave=_PODS, after="kubernetes-programs", nice=True),
        _systems("pods", *_PODS, after="kubernetes-programs"),
        _systems("services", "lab", leave=("lab/system",)),
        _systems(
            "rooms",
            *(*_CORE, *_CONTROLLER, *_EDGES, *_MACHINES, *_PROJECT, "providers"),
            after="kubernetes-programs",
            nice=True,
        ),
        _make("all-types"),
    ),
}
"""Parts start in this order, as soon as the runner has room for one more."""

AT_ONCE: dict[Suite, float] = {Suite.EVERYONE: 1.5, Suite.SYSTEMS: 2}
"""Parts at once for each core. Parts wait for other programs now and then, those of the systems mostly. More of
these would delay the laboratory's machines, whose clocks are faster than real time."""
