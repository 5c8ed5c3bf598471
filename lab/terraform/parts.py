"""Finds Terraform, its AWS provider, tflint, the AWS CLI and checkov on this host.

    python -m lab.terraform.parts

The command prints `terraform PATH` and `mirror PATH`, each only if it is there. `python -m lab.terraform.build`
brings what is missing. This module needs only the standard library, because `scripts/fresh.sh` runs it before
anything is installed.
"""

import hashlib
import os
import platform
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

COMMAND = "python -m lab.terraform.build"
VERSION = "1.11.4"
ZIP_SHA256 = {
    "linux_amd64": "1ce994251c00281d6845f0f268637ba50c0005657eb3cf096b92f753b42ef4dc",
    "linux_arm64": "a43d1d0da9b9bab214a8305a39db0e40869572594ccf50c416a7756499143633",
}
"""SHA-256 of the maker's zip file, by platform. On other platforms, install Terraform on the PATH."""

HOST = "registry.terraform.io"
PROVIDER = f"{HOST}/hashicorp/aws"
PROVIDER_VERSION = "5.100.0"

PACKAGES = Path(__file__).parent
"""Has a file with the pinned packages of each program from PyPI.

`uv pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --no-header` writes them.
"""

PYTHON_PROGRAMS = {"aws": "awscli", "checkov": "checkov"}
"""The package of each program from PyPI. They need other versions of packages than the project does."""

ROOTS = (Path("/opt"), Path("/usr/share"), Path("/usr/local/share"))
"""Folders in which hosts keep a filesystem mirror. The user's own is in `~/.terraform.d`."""

TFLINT = Path(__file__).parent / "tflint"
"""The Go module that requires tflint, with `go.mod` (versions) and `go.sum` (checksums)."""

GO_TOOLCHAIN = Path(__file__).parents[1] / "kubernetes" / "go" / "toolchain.txt"
"""The Go toolchain from PyPI, with its checksums: the one that also builds Kubernetes."""

Environment = Mapping[str, str]


class TerraformMissingError(Exception):
    """A part is not on this host. The message says how to get it."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The program, and the filesystem mirror: a folder with the folder `registry.terraform.io`."""

    program: Path
    mirror: Path

    def cli_configuration(self) -> str:
        """Return the text of a CLI configuration file (TF_CLI_CONFIG_FILE) that uses the mirror alone.

        https://developer.hashicorp.com/terraform/cli/config/config-file
        """
        return (
            "disable_checkpoint = true\n"
            "provider_installation {\n"
            f'  filesystem_mirror {{\n    path    = "{self.mirror}"\n'
            f'    include = ["{PROVIDER}"]\n  }}\n'
            f'  direct {{\n    exclude = ["{PROVIDER}"]\n  }}\n'
            "}\n"
        )


def platform_name() -> str:
    """Return this host's platform as Terraform names it, such as `linux_amd64`."""
    machine = platform.machine().lower()
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
    return f"{platform.system().lower()}_{architecture}"


def cache(environment: Environment = os.environ) -> Path:
    """Return the folder below the user's cache folder that all clones on this host share."""
    root = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "gpu-runner-autoscaler" / "terraform"


def built_program(environment: Environment = os.environ) -> Path:
    """Return the path of the program that `build` downloads, whether or not it is there."""
    return cache(environment) / VERSION / "terraform"


def built_mirror(environment: Environment = os.environ) -> Path:
    """Return the path of the mirror that `build` makes, whether or not it is there."""
    return cache(environment) / f"plugins-{PROVIDER_VERSION}"


def find_program(environment: Environment = os.environ) -> Path | None:
    """Return the path of Terraform on the PATH or, without one, of the downloaded one."""
    found = shutil.which("terraform", path=environment.get("PATH", os.defpath))
    if found is not None:
        return Path(found)
    built = built_program(environment)
    return built if os.access(built, os.X_OK) else None


def find_mirror(
    environment: Environment = os.environ, roots: tuple[Path, ...] | None = None
) -> Path | None:
    """Return a filesystem mirror that has the pinned provider for this platform.

    Looks one and two levels below `roots` (by default `ROOTS`) and the user's folder of plugins, and then at
    the mirror that `build` makes.
    """
    home = Path(environment.get("HOME") or Path.home())
    candidates = [
        folder.parent
        for root in (*(ROOTS if roots is None else roots), home / ".terraform.d")
        for pattern in (HOST, f"*/{HOST}")
        for folder in sorted(root.glob(pattern))
    ]
    for mirror in (*candidates, built_mirror(environment)):
        # Packed mirrors have a zip file per version; unpacked ones a folder per platform.
        packed = f"terraform-provider-aws_{PROVIDER_VERSION}_{platform_name()}.zip"
        folder = mirror / PROVIDER
        if (folder / PROVIDER_VERSION / platform_name()).is_dir() or (folder / packed).is_file():
            return mirror
    return None


def find(environment: Environment = os.environ) -> Parts:
    """Return the parts. Raises TerraformMissingError with the command that brings them."""
    program, mirror = find_program(environment), find_mirror(environment)
    if program is None:
        raise TerraformMissingError(f"Terraform is missing; run: {COMMAND}")
    if mirror is None:
        raise TerraformMissingError(
            f"the provider {PROVIDER} {PROVIDER_VERSION} is missing; run: {COMMAND}"
        )
    return Parts(program, mirror)


def built_tflint(environment: Environment = os.environ) -> Path:
    """Return the path of the tflint that `build` makes, whether or not it is there."""
    digest = hashlib.sha256(platform_name().encode())
    for source in (TFLINT / "go.mod", TFLINT / "go.sum", GO_TOOLCHAIN):
        digest.update(source.read_bytes())
    return cache(environment) / f"tflint-{digest.hexdigest()[:12]}" / "tflint"


def find_tflint(environment: Environment = os.environ) -> Path:
    """Return the path of tflint on the PATH or, without one, of the built one.

    Raises TerraformMissingError with the command that builds it.
    """
    found = shutil.which("tflint", path=environment.get("PATH", os.defpath))
    if found is not None:
        return Path(found)
    built = built_tflint(environment)
    if not os.access(built, os.X_OK):
        raise TerraformMissingError(f"tflint is missing; run: {COMMAND}")
    return built


def requirements(program: str) -> Path:
    """Return the file with the packages of a program from PyPI, and their checksums."""
    return PACKAGES / f"{PYTHON_PROGRAMS[program]}.txt"


def built_python_program(program: str, environment: Environment = os.environ) -> Path:
    """Return the folder with the packages of a program from PyPI, whether or not `build` has made it."""
    digest = hashlib.sha256(requirements(program).read_bytes() + sys.version.encode())
    return cache(environment) / f"{PYTHON_PROGRAMS[program]}-{digest.hexdigest()[:12]}"


def find_python_program(program: str, environment: Environment = os.environ) -> Path:
    """Return the folder with the packages of a program from PyPI; `bin` in it has the program.

    Raises TerraformMissingError with the command that brings it.
    """
    folder = built_python_program(program, environment)
    if not folder.is_dir():
        raise TerraformMissingError(f"{PYTHON_PROGRAMS[program]} is missing; run: {COMMAND}")
    return folder


def main() -> None:
    """Print the parts that are there, one a line."""
    for name, path in (("terraform", find_program()), ("mirror", find_mirror())):
        if path is not None:
            print(f"{name} {path}")  # noqa: T201


if __name__ == "__main__":
    main()
