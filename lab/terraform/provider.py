"""Runs Terraform's AWS provider in a process of its own, for several commands of Terraform.

Terraform usually starts the provider for each walk over its graph. Each start costs seconds of CPU time: the
provider reads the schemas of all of AWS. In debug mode, it stays and Terraform attaches to it:
https://developer.hashicorp.com/terraform/plugin/debugging#debugger-based-debugging
"""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from lab.terraform.parts import PROVIDER, PROVIDER_VERSION, platform_name

VARIABLE = "TF_REATTACH_PROVIDERS"
_LINE = re.compile(rf"\s*{VARIABLE}='(.*)'\s*")


class ProviderFailedError(Exception):
    """The provider ended before it listened."""


class ProviderProcess:
    """The provider that `terraform init` installed in a folder.

    It keeps the configuration of the last command, so only one command at a time may use it, and only one
    `provider` block. Its environment decides which account it uses, not that of Terraform.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        """Start the provider. Blocks until it listens (0.2 s). Raises ProviderFailedError."""
        installed = folder / ".terraform" / "providers" / PROVIDER / PROVIDER_VERSION
        (program,) = (installed / platform_name()).glob("terraform-provider-aws*")
        self._process = subprocess.Popen(  # noqa: S603 - the pinned provider
            # The kernel ends it if this process is killed.
            ["setpriv", "--pdeathsig", "KILL", program, "-debug"],  # noqa: S607
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if (found := _LINE.fullmatch(line)) is not None:
                self.environment = {VARIABLE: found[1]}
                """The variable with which Terraform attaches to this process."""
                return
        self.close()
        raise ProviderFailedError(f"{program} -debug ended with {self._process.returncode}")

    def close(self) -> None:
        """End the provider. Blocks. Idempotent."""
        self._process.kill()
        self._process.communicate()
