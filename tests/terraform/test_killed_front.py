"""The front ends while Terraform waits for it: the command ends, too, and its output is in the failure."""

import asyncio
import socket
from pathlib import Path

import pytest

from lab.terraform.commands import Terraform, TerraformFailedError
from lab.terraform.front import TerraformFront
from lab.terraform.parts import PROVIDER, PROVIDER_VERSION, Parts
from tests.terraform.account import credentials

CONFIGURATION = f"""
terraform {{
  required_providers {{
    aws = {{
      source  = "{PROVIDER.removeprefix("registry.terraform.io/")}"
      version = "{PROVIDER_VERSION}"
    }}
  }}
}}
provider "aws" {{
  region                      = "us-east-1"
  skip_credentials_validation = true
  skip_requesting_account_id  = true
}}
data "aws_vpcs" "all" {{}}
"""


async def test_a_front_that_ends_ends_the_command(parts: Parts, tmp_path: Path) -> None:
    (tmp_path / "main.tf").write_text(CONFIGURATION)
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        moto = f"http://127.0.0.1:{silent.getsockname()[1]}"
        front = TerraformFront(moto, "123456789012", set)
        await front.start()
        with Terraform(parts, tmp_path, tmp_path, credentials(front.url)) as terraform:
            await asyncio.to_thread(terraform.init)
            planning = asyncio.create_task(
                asyncio.to_thread(terraform.succeed, "plan", "-no-color")
            )
            connection, _ = await loop.sock_accept(silent)
            await front.close()
            connection.close()
            with pytest.raises(
                TerraformFailedError, match="exceeded maximum number of attempts"
            ) as failed:
                await planning
    assert "data.aws_vpcs.all: Reading..." in str(failed.value)
