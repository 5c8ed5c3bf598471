"""Runs Terraform in a copy of `terraform/`, with the parts of this host and nothing else of its settings."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lab.terraform.parts import Parts
from lab.terraform.provider import ProviderProcess

SOURCE = Path(__file__).parents[2] / "terraform"
LONGEST = 1800.0
"""Seconds that a command may take. On a busy host, the largest module takes minutes."""

_PASSED_ON = ("PATH", "HOME", "TMPDIR", "LANG")


class TerraformFailedError(Exception):
    """A command failed. The message has its output."""


def copied(folder: Path) -> Path:
    """Copy `terraform/` into a folder, so that no state is written into the working tree. Return the copy."""
    target = folder / "terraform"
    ignored = shutil.ignore_patterns(".terraform*", "*.tfstate*")
    shutil.copytree(SOURCE, target, ignore=ignored)
    return target


class Terraform:
    """Terraform in one folder with a configuration. `settings` are further variables of its environment.

    After `init`, all commands use one process of the provider, which ends with the context.
    """

    def __init__(
        self, parts: Parts, folder: Path, scratch: Path, settings: Mapping[str, str] | None = None
    ) -> None:
        """`scratch` is a folder for the CLI configuration."""
        configuration = scratch / "terraform.rc"
        configuration.write_text(parts.cli_configuration())
        self._program = parts.program
        self._folder = folder
        # Neither the host's credentials for AWS nor its settings of Terraform.
        inherited = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        self._environment = {
            **inherited,
            "TF_CLI_CONFIG_FILE": str(configuration),
            "TF_IN_AUTOMATION": "1",
            "NO_PROXY": "127.0.0.1",
            **(settings or {}),
        }
        self._provider: ProviderProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._provider is not None:
            self._provider.close()
            self._provider = None

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command and return at once. Its output is that of both streams."""
        return subprocess.Popen(  # noqa: S603 - Terraform
            [self._program, *words],
            cwd=self._folder,
            env=self._environment | (self._provider.environment if self._provider else {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str) -> tuple[int, str]:
        """Run a command. Return its exit status and its output. Blocks.

        Raises TerraformFailedError if it does not end in half an hour.
        """
        with self.start(*words) as process:
            try:
                printed, _ = process.communicate(timeout=LONGEST)
            except subprocess.TimeoutExpired:
                process.kill()
                printed, _ = process.communicate()
                command = " ".join(words)
                raise TerraformFailedError(
                    f"terraform {command} did not end in {LONGEST:g} s:\n{printed}"
                ) from None
        return process.returncode, printed

    def succeed(self, *words: str) -> str:
        """Run a command and return its output. Blocks. Raises TerraformFailedError."""
        status, printed = self.run(*words)
        if status != 0:
            raise TerraformFailedError(
                f"terraform {' '.join(words)} ended with {status}:\n{printed}"
            )
        return printed

    def init(self) -> None:
        """Install the modules, install and start the provider. Blocks.

        Call it once, within the context. Raises TerraformFailedError, ProviderFailedError.
        """
        self.succeed("init", "-backend=false", "-input=false", "-no-color")
        self._provider = ProviderProcess(self._folder, self._environment)

    def outputs(self) -> dict[str, Any]:
        """Return the values of the outputs by name. Blocks. Raises TerraformFailedError."""
        found = json.loads(self.succeed("output", "-json"))
        return {name: one["value"] for name, one in found.items()}
