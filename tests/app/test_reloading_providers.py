"""A changed section of a provider: the whole process refuses it by its key."""

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


async def test_a_changed_section_of_a_provider_needs_a_restart_and_is_named(folder: Path) -> None:
    """With a second change that would do without one: nothing is half applied."""
    file = folder / "fleet.yaml"
    async with serving(folder, environment=ENVIRONMENT) as process:
        address, problem = (await logged(process, "serving"))["on"], ""
        for before, after, key in CHANGES:
            assert before in TWO_KINDS
            changed = TWO_KINDS.replace(before, after)
            file.write_text(
                changed.replace('image: {name: "runner-*"}', 'image: {name: "other-*"}')
            )
            process.send_signal(signal.SIGHUP)
            (problem,) = (await logged(process, "configuration_not_reloaded"))["problems"]
            where, _, rest = problem.partition(": ")
            assert where.startswith("fleet.yaml:")
            assert rest == (
                f"{key}: cannot change while the controller runs; "
                "fix: restart the controller to change it, or undo the change"
            )
        status, error = await _reload(folder, address)
        assert (status, error) == (2, f"{problem}\n")
        file.write_text(TWO_KINDS)
        process.send_signal(signal.SIGHUP)
        # No refused file is in use: compared with it, something would have changed.
        assert (await logged(process, "configuration_reloaded"))["changed"] == []


async def _reload(folder: Path, address: str) -> tuple[int | None, str]:
    """Return the exit status of `autoscaler reload`, and what it wrote to stderr."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from autoscaler.cli import main; main()",
        *("reload", "--config", "fleet.yaml", "--url", f"http://{address}"),
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, error = await process.communicate()
    return process.returncode, error.decode()
