"""Brings Terraform, its AWS provider, tflint, the AWS CLI and checkov for the tests.

    python -m lab.terraform.build

Once for all clones on a host: does nothing if all are there. Uses what `lab.terraform.parts` finds. Otherwise
downloads Terraform from its maker and checks the SHA-256, and lets Terraform download the provider from its
registry and check the signature: 250 MB together, 800 MB on disk. Builds tflint from Go modules, in three
minutes. The AWS CLI and checkov come from PyPI.
"""

import fcntl
import hashlib
import io
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Mapping
from pathlib import Path

from lab.go_builds import UV, GoBuilds, Note
from lab.terraform.parts import (
    GO_TOOLCHAIN,
    PROVIDER,
    PROVIDER_VERSION,
    PYTHON_PROGRAMS,
    TFLINT,
    VERSION,
    ZIP_SHA256,
    Parts,
    TerraformMissingError,
    built_mirror,
    built_program,
    built_python_program,
    built_tflint,
    cache,
    find_mirror,
    find_program,
    find_tflint,
    platform_name,
    requirements,
)

RELEASES = "https://releases.hashicorp.com"
TIMEOUT = 30.0
"""Seconds without a byte."""


def bring(environment: Mapping[str, str], note: Note, releases: str = RELEASES) -> Parts:
    """Bring what is missing, and return the parts.

    Raises OSError, ValueError for a file that is not the pinned one or a platform without a pinned one, and
    CalledProcessError if Terraform cannot download the provider.
    """
    root = cache(environment)
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        # Another clone may be downloading.
        fcntl.flock(lock, fcntl.LOCK_EX)
        program = find_program(environment) or _download(environment, note, releases)
        mirror = find_mirror(environment) or _mirror(program, environment, note)
    return Parts(program, mirror)


def _download(environment: Mapping[str, str], note: Note, releases: str) -> Path:
    target, where = built_program(environment), platform_name()
    if where not in ZIP_SHA256:
        raise ValueError(f"no Terraform is pinned for {where}; install Terraform {VERSION}")
    url = f"{releases}/terraform/{VERSION}/terraform_{VERSION}_{where}.zip"
    note(f"Downloading {url}")
    context = ssl.create_default_context()
    with urllib.request.urlopen(url, timeout=TIMEOUT, context=context) as answer:  # noqa: S310
        content = answer.read()
    if hashlib.sha256(content).hexdigest() != ZIP_SHA256[where]:
        raise ValueError(f"{url} is not the file that is pinned")
    target.parent.mkdir(exist_ok=True)
    part = target.with_suffix(".part")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        part.write_bytes(archive.read("terraform"))
    part.chmod(0o755)
    part.rename(target)
    return target


def _mirror(program: Path, environment: Mapping[str, str], note: Note) -> Path:
    """Let Terraform install the provider into a plugin cache, which has the layout of an unpacked mirror."""
    target = built_mirror(environment)
    note(f"Downloading the provider {PROVIDER} {PROVIDER_VERSION}")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".part-") as scratch:
        folder, plugins, settings = (Path(scratch, name) for name in ("use", "plugins", "cli"))
        folder.mkdir()
        plugins.mkdir()
        settings.write_text(f'disable_checkpoint = true\nplugin_cache_dir = "{plugins}"\n')
        folder.joinpath("versions.tf").write_text(
            "terraform {\n  required_providers {\n"
            f'    aws = {{ source = "{PROVIDER}", version = "{PROVIDER_VERSION}" }}\n  }}\n}}\n'
        )
        subprocess.run(  # noqa: S603 - Terraform
            [program, "init", "-backend=false", "-input=false", "-no-color"],
            cwd=folder,
            env={**environment, "TF_CLI_CONFIG_FILE": str(settings)},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        shutil.rmtree(target, ignore_errors=True)
        plugins.rename(target)
    return target


def bring_tflint(environment: Mapping[str, str], note: Note) -> Path:
    """Build tflint if it is missing. Return its path. Raises OSError and CalledProcessError."""
    root = cache(environment)
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return find_tflint(environment)
        except TerraformMissingError:
            note("Building tflint, once: it takes about three minutes")
        target, work = built_tflint(environment), root / "build"
        work.mkdir(exist_ok=True)
        builds = GoBuilds(GO_TOOLCHAIN, environment, work, note)
        part = work / target.parent.name
        part.mkdir(exist_ok=True)
        package = "github.com/terraform-linters/tflint"
        builds.build(TFLINT, package, "-s -w", part / target.name)
        part.rename(target.parent)
        shutil.rmtree(work)
    return target


def bring_python_program(program: str, environment: Mapping[str, str], note: Note) -> Path:
    """Install a program from PyPI if it is missing. Return its folder.

    Raises OSError and CalledProcessError.
    """
    target = built_python_program(program, environment)
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            note(f"Installing {PYTHON_PROGRAMS[program]}")
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".part-") as scratch:
                part = Path(scratch) / program
                command = [str(UV), "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
                command += ["--python", sys.executable, "--target", str(part)]
                command += ["--requirements", str(requirements(program))]
                subprocess.run(command, check=True)  # noqa: S603
                part.rename(target)
    return target


def main() -> int:
    """Bring what is missing. Return 1, after one line that says why, if that is not possible."""

    def note(line: str) -> None:
        print(f"==> {line}", flush=True)  # noqa: T201

    try:
        bring(os.environ, note)
        bring_tflint(os.environ, note)
        for program in PYTHON_PROGRAMS:
            bring_python_program(program, os.environ, note)
    except (OSError, ValueError, zipfile.BadZipFile, subprocess.CalledProcessError) as error:
        hint = f"install Terraform {VERSION} on the PATH, and the provider in a filesystem mirror"
        print(f"error: could not bring Terraform ({error}); or {hint}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
