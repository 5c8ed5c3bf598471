"""Names the programs of the cluster, of its deployments and of workflows, and finds them on this host.

`lab.kubernetes.build` builds them once for all clones on a host.
"""

import hashlib
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

COMMAND = "python -m lab.kubernetes.build"
GO = Path(__file__).parent / "go"
"""One Go module for each project, with `go.mod` (versions) and `go.sum` (checksums)."""

TOOLCHAIN = GO / "toolchain.txt"
"""The Go toolchain from PyPI, with its checksums."""

ASSETS = "KUBEBUILDER_ASSETS"
"""Variable with a folder of programs to use instead of built ones, as in Kubebuilder's tests."""

_KUBERNETES = "k8s.io/kubernetes"
_KUSTOMIZE = "sigs.k8s.io/kustomize/kustomize/v5"


@dataclass(frozen=True)
class Program:
    """One program: its Go package, the project that the package is part of, and the module in `GO`."""

    name: str
    module: str
    project: str
    package: str

    @property
    def version(self) -> str:
        """Return the pinned version, such as `v1.36.3`. Raises ValueError without one."""
        for line in (GO / self.module / "go.mod").read_text().splitlines():
            words = line.removeprefix("require ").split()
            if len(words) >= 2 and words[0] == self.project and words[1].startswith("v"):
                return words[1]
        raise ValueError(f"{self.module}/go.mod pins no version of {self.project}")

    @property
    def linker_flags(self) -> str:
        """Return the flags that leave out debugging symbols and set the version of Kubernetes."""
        if self.project != _KUBERNETES:
            return "-s -w"
        variables = "k8s.io/component-base/version"
        major, minor, _ = self.version.removeprefix("v").split(".")
        values = {"gitVersion": self.version, "gitMajor": major, "gitMinor": minor}
        return " ".join(
            ["-s -w", *(f"-X {variables}.{key}={value}" for key, value in values.items())]
        )


CLUSTER = (
    Program("etcd", "etcd", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3"),
    Program("kwok", "kwok", "sigs.k8s.io/kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    *(
        Program(name, "kubernetes", _KUBERNETES, f"{_KUBERNETES}/cmd/{name}")
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    ),
)
"""A Kubernetes cluster."""

DEPLOYMENT = (
    Program("helm", "helm", "helm.sh/helm/v4", "helm.sh/helm/v4/cmd/helm"),
    Program("kustomize", "kustomize", _KUSTOMIZE, _KUSTOMIZE),
)
"""What operators deploy with."""

_ACTIONLINT = "github.com/rhysd/actionlint"

WORKFLOWS = (Program("actionlint", "actionlint", _ACTIONLINT, f"{_ACTIONLINT}/cmd/actionlint"),)
"""What checks the workflows of this repository."""

SETS = (CLUSTER, DEPLOYMENT, WORKFLOWS)
"""Programs that are built together, each set into a folder of its own: a new Helm needs no new cluster."""

PROGRAMS = tuple(program for one in SETS for program in one)


class ProgramMissingError(Exception):
    """A program is not on this host. The message says how to get it."""


def cache(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder below the user's cache folder that all clones on this host share."""
    root = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "gpu-runner-autoscaler" / "kubernetes"


def built_folder(
    programs: Sequence[Program] = CLUSTER, environment: Mapping[str, str] = os.environ
) -> Path:
    """Return the folder of a set of built programs, named after all that they are built from."""
    digest = hashlib.sha256(f"{platform.system()} {platform.machine()}".encode())
    modules = sorted({program.module for program in programs})
    sources = [GO / module / name for module in modules for name in ("go.mod", "go.sum")]
    for source in [*sources, TOOLCHAIN]:
        digest.update(f"\0{source.name}\0".encode() + source.read_bytes())
    for program in programs:
        digest.update(f"\0{program.package} {program.linker_flags}".encode())
    return cache(environment) / f"programs-{digest.hexdigest()[:12]}"


def find(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of a program, from `KUBEBUILDER_ASSETS` if it is there.

    Raises ProgramMissingError.
    """
    [programs] = [one for one in SETS if name in {program.name for program in one}]
    assets = environment.get(ASSETS)
    folders = [Path(assets)] if assets else []
    for folder in (*folders, built_folder(programs, environment)):
        if os.access(folder / name, os.X_OK):
            return folder / name
    raise ProgramMissingError(f"{name} is missing; build it (minutes, once): {COMMAND}")
