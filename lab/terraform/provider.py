"""Runs Terraform's AWS provider in a process of its own, for several commands of Terraform.

Terraform usually starts the provider for each walk over its graph. Each start costs seconds of CPU time: the
provider reads the schemas of all of AWS. In debug mode, it stays and Terraform attaches to it:
https://developer.hashicorp.com/terraform/plugin/debugging#debugger-based-debugging
"""

import re
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from lab.terraform.parts import PROVIDER, PROVIDER_VERSION, platform_name

VARIABLE = "TF_REATTACH_PROVIDERS"
PATIENCE = 60.0
"""Seconds until a provider that does not listen is killed."""

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
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - closed with it
        self._process = subprocess.Popen(  # noqa: S603 - the pinned provider
            # The kernel ends it if this process is killed.
            ["setpriv", "--pdeathsig", "KILL", program, "-debug"],  # noqa: S607
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.environment = {VARIABLE: self._address()}
        """The variable with which Terraform attaches to this process."""

    def _address(self) -> str:
        assert self._process.stdout is not None
        timer = threading.Timer(PATIENCE, self._process.kill)
        timer.start()
        for line in self._process.stdout:
            if (found := _LINE.fullmatch(line)) is not None:
                timer.cancel()
                return found[1]
        status = self._process.wait()
        timer.cancel()
        self._errors.seek(0)
        said = self._errors.read()[-2000:]
        self.close()
        raise ProviderFailedError(f"the provider ended with {status} before it listened:\n{said}")

    def close(self) -> None:
        """End the provider. Blocks. Idempotent."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()
