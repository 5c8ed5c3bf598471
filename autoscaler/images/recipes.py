"""How each container image is built: its Dockerfile, its base image, and its build arguments. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

BILL_OF_MATERIALS = "/usr/share/sbom.cdx.json"
"""Where each Linux image has its software bill of materials (CycloneDX, JSON)."""


class Engine(StrEnum):
    """A program that builds and runs container images."""

    DOCKER = "docker"
    PODMAN = "podman"
    BUILDAH = "buildah"


class ShellEngine(StrEnum):
    """A program that runs containers with a terminal. buildah does not."""

    DOCKER = "docker"
    PODMAN = "podman"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an image is built.

    `dockerfile` is its path in the repository, whose root is the context. `base` is the key of its base image
    in versions.yaml. `version` is the key of the version in its tag, or None for that of this project.
    `platforms` has the keys of further build arguments, by platform and by name of the argument.
    """

    image: str
    dockerfile: str
    base: str
    version: str | None
    platforms: Mapping[str, Mapping[str, str]]

    def platform_for(self, machine: str) -> str:
        """Return the platform of a machine such as `x86_64`, if the image has it, or else its first one."""
        architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine.lower())
        own = f"linux/{architecture}"
        return own if own in self.platforms else next(iter(self.platforms))

    def keys(self, platform: str) -> dict[str, str]:
        """Return the keys in versions.yaml of all build arguments, by name of the argument."""
        return {"BASE": self.base, **self.platforms[platform]}


_RUNNER_FILES = {"linux/amd64": "linux-x64", "linux/arm64": "linux-arm64"}
"""The runner's file for each platform."""


def _runner(kind: str, version: str, platforms: Iterable[str]) -> Recipe:
    """Return the recipe of a runner's image. `kind`: cpu, cuda or rocm."""
    return Recipe(
        image=f"runner-{kind}",
        dockerfile="docker_images/runner/Dockerfile",
        base="container_images.ubuntu" if kind == "cpu" else f"container_images.{kind}",
        version=version,
        platforms={
            one: {
                "RUNNER_VERSION": "runner.version",
                "RUNNER_URL": f"runner.files.{_RUNNER_FILES[one]}.url",
                "RUNNER_SHA256": f"runner.files.{_RUNNER_FILES[one]}.sha256",
            }
            for one in platforms
        },
    )


RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "controller": Recipe(
            image="gpu-runner-autoscaler",
            dockerfile="docker_images/controller/Dockerfile",
            base="container_images.controller",
            version=None,
            platforms={"linux/amd64": {}, "linux/arm64": {}},
        ),
        "runner-cpu": _runner("cpu", "runner.version", _RUNNER_FILES),
        "runner-cuda": _runner("cuda", "programs.cuda.version", _RUNNER_FILES),
        # AMD publishes its image for amd64 only.
        "runner-rocm": _runner("rocm", "programs.rocm.version", ["linux/amd64"]),
        "runner-windows": Recipe(
            image="runner-windows",
            dockerfile="docker_images/runner-windows/Dockerfile",
            base="container_images.windows",
            version="runner.version",
            platforms={
                "windows/amd64": {
                    "RUNNER_URL": "runner.files.windows-x64.url",
                    "RUNNER_SHA256": "runner.files.windows-x64.sha256",
                    "GIT_URL": "programs.mingit.files.windows-x64.url",
                    "GIT_SHA256": "programs.mingit.files.windows-x64.sha256",
                    "PYTHON_URL": "programs.python-windows.files.windows-x64.url",
                    "PYTHON_SHA256": "programs.python-windows.files.windows-x64.sha256",
                }
            },
        ),
    }
)
"""The images of this project, by the name that `autoscaler images build` gets."""
