"""A changed section of a provider: the controller starts again within its process."""

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest

from tests.app.served_process import logged, serving, write_operators
from tests.app.test_running import ROOT
from tests.config.fleet_file import MINIMAL, Folder

NOWHERE = "http://127.0.0.1:9"

TWO_KINDS = (
    MINIMAL.replace("scopes: [{org: acme}]", f"scopes: [{{org: acme}}]\n  api_url: {NOWHERE}")
    .replace("public_url:", "admin_token_file: admin-token\n  public_url:")
    .replace(
        "providers:\n",
        "providers:\n  pods:\n    kubernetes: {context: one, kubeconfig: kubeconfig, namespace: runners}\n",
    )
)

KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "here", "cluster": {"server": "https://127.0.0.1:9"}}],
    "users": [{"name": "controller", "user": {"token": "secret"}}],
    "contexts": [
        {"name": name, "context": {"cluster": "here", "user": "controller"}}
        for name in ("one", "two")
    ],
    "current-context": "one",
}

CHANGES = (
    ("region: us-east-1", "region: us-west-2", "providers.east.ec2.region"),
    ("[subnet-0a]", "[subnet-0a, subnet-0b]", "providers.east.ec2.subnets"),
    ("[sg-0a]", "[sg-0a], tags: {team: ci}", "providers.east.ec2.tags.team"),
    ("context: one", "context: two", "providers.pods.kubernetes.context"),
    ("namespace: runners", "namespace: others", "providers.pods.kubernetes.namespace"),
    (
        "providers:\n",
        "providers:\n  more:\n    kubernetes: {context: two, kubeconfig: kubeconfig, namespace: more}\n",
        "providers.more",
    ),
)
"""What is written in place of what, and the key that a reload has to name."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a fleet of EC2 and Kubernetes, whose services do not answer."""
    made = Folder(tmp_path).path
    (made / "fleet.yaml").write_text(TWO_KINDS)
    (made / "kubeconfig").write_text(json.dumps(KUBECONFIG))
    (made / "kubeconfig").chmod(0o600)
    write_operators(made)
    return made


ENVIRONMENT = {
    "AWS_ENDPOINT_URL": NOWHERE,
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.mark.systems
async def test_a_changed_section_of_a_provider_is_used_after_a_start_within_the_process(
    folder: Path,
) -> None:
    file = folder / "fleet.yaml"
    async with serving(folder, environment=ENVIRONMENT) as process:
        await logged(process, "serving")
        for before, after, key in CHANGES:
            assert before in TWO_KINDS
            file.write_text(TWO_KINDS.replace(before, after))
            process.send_signal(signal.SIGHUP)
            assert key in (await logged(process, "controller_restarts"))["changed"]
            reloaded = await logged(process, "configuration_reloaded")
            assert (reloaded["by"], key in reloaded["changed"]) == ("SIGHUP", True)
        file.write_text(TWO_KINDS)
        process.send_signal(signal.SIGHUP)
        # Each file was in use: compared with the last one, one provider is removed.
        reloaded = await logged(process, "configuration_reloaded")
        assert reloaded["changed"] == [CHANGES[-1][2]]
        process.terminate()
        assert await process.wait() == 0


@pytest.mark.systems
async def test_autoscaler_reload_says_that_the_controller_starts_again(folder: Path) -> None:
    file = folder / "fleet.yaml"
    async with serving(folder, environment=ENVIRONMENT) as process:
        address = (await logged(process, "serving"))["on"]
        file.write_text(TWO_KINDS.replace("[subnet-0a]", "[subnet-0a, subnet-0b]"))
        assert await _reload(folder, address) == (
            0,
            "changed: providers.east.ec2.subnets\n"
            "the controller starts again within its process to use 1 change\n",
        )
        assert (await logged(process, "configuration_reloaded"))["by"] == "alice"
        file.write_text(TWO_KINDS.replace("region: us-east-1", "region: nowhere"))
        status, problem = await _reload(folder, address)
        assert status == 2
        assert "providers.east.ec2.region: " in problem


async def _reload(folder: Path, address: str) -> tuple[int | None, str]:
    """Return the exit status of `autoscaler reload`, and what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from autoscaler.cli import main; main()",
        *("reload", "--config", "fleet.yaml", "--url", f"http://{address}"),
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    return process.returncode, printed.decode()
