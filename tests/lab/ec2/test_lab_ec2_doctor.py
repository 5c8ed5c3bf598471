"""`autoscaler doctor` against the lab's GitHub and EC2: a fleet that is fine, and what is planted in them."""

import asyncio
import json
import stat
import zipfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from typer.testing import Result

from autoscaler.controller.system import SystemClock
from lab.github.server import LabGitHub
from lab.github.settings import JobSpec, LabApp, LabOrganization, LabRunnerGroup
from tests.command_line import edit, run
from tests.config.keys import pem, rsa_key
from tests.lab.ec2.harness import Fixture
from tests.patience import PATIENCE

pytestmark = pytest.mark.systems

APP = 7
SECRET = "very-secret-of-the-pod"

TEXT = """
# {SECRET}
fleet: ci
github:
  api_url: {API}
  apps: [{{id: 7, private_key_file: app.pem}}]
  webhook_secret_file: secret
  scopes: [{{org: acme, runner_group: gpu, repositories: [acme/rocket]}}]
server: {{listen: "127.0.0.1:{PORT}", public_url: "http://127.0.0.1:{PORT}", webhook_listen: "127.0.0.1:1"}}
store: sqlite:///state.db
providers:
  there:
    ec2: {{region: us-west-2, subnets: [{SUBNETS}], security_groups: [{GROUP}]}}
skus:
  gpu:
    on: [{{provider: there, instance_types: [g5.xlarge], capacity: [spot, on-demand]}}]
    image: {{name: "runner-linux-*"}}
    access: {{repositories: [acme/rocket], forks: false}}
"""


@dataclass
class Fleet:
    """One fleet, and what is around it."""

    github: LabGitHub
    ec2: Fixture
    file: Path
    hook: str

    async def doctor(self, *arguments: str | Path) -> Result:
        """Run the command. Its limits are real time, and the lab's host may be busy."""
        words = ("doctor", *arguments, "--within", str(int(PATIENCE)), "-c", self.file)
        return await asyncio.to_thread(run, *words)

    async def wrong(self) -> list[str]:
        """Return the lines of what is wrong, without "wrong"."""
        result = await self.doctor()
        assert result.exit_code in (0, 1), result.output
        return [
            one.strip().removeprefix("wrong").strip()
            for one in result.stdout.splitlines()
            if one.strip().startswith("wrong ")
        ]

    def job(self, *labels: str) -> str:
        """Push a job with these labels, and return the address of its page."""
        (job,) = self.github.push([JobSpec("build", "acme/rocket", labels, 60.0)])
        base = self.github.api_url
        return f"{base}/acme/rocket/actions/runs/{job.run.id}/job/{job.id}"


def write(folder: Path, files: dict[str, str]) -> None:
    """Write files for their owner alone."""
    for name, text in files.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)


@pytest_asyncio.fixture
async def fleet(
    ec2: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Fleet]:
    monkeypatch.setenv("AWS_ENDPOINT_URL", ec2.lab.endpoint_url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "lab")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "lab")
    key = rsa_key()
    group = LabRunnerGroup("gpu", ("rocket",))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    app = LabApp(APP, public, "s3cret", None)
    github = LabGitHub([app], [LabOrganization("acme", ("rocket",), (group,))], SystemClock())
    hooks = web.Application()

    async def accepted(_: web.Request) -> web.Response:
        return web.json_response({})

    hooks.router.add_post("/webhook", accepted)
    hooks.router.add_get("/readyz", accepted)
    server = web.AppRunner(hooks, access_log=None)
    await server.setup()
    await web.TCPSite(server, "127.0.0.1", 0).start()
    port = server.addresses[0][1]
    await github.start()
    try:
        hook = f"http://127.0.0.1:{port}/webhook"
        github.point_webhook(hook)
        await github.delivered()
        values = {
            "API": github.api_url,
            "PORT": port,
            "SUBNETS": ", ".join(ec2.network.subnets),
            "GROUP": ec2.network.security_group,
            "SECRET": SECRET,
        }
        write(
            tmp_path, {"app.pem": pem(key), "secret": "s" * 40, "fleet.yaml": TEXT.format(**values)}
        )
        iam = ec2.sdk_of("iam")
        # moto gives the service-linked role for spot another name.
        await iam("create_role", RoleName="AWSServiceRoleForEC2Spot", AssumeRolePolicyDocument="{}")
        yield Fleet(github, ec2, tmp_path / "fleet.yaml", hook)
    finally:
        await github.close()
        await server.cleanup()


async def test_what_the_lab_cannot_have_is_all_that_is_wrong_with_a_fleet_that_is_fine(
    fleet: Fleet,
) -> None:
    """The lab's webhook is on loopback, without TLS."""
    result = await fleet.doctor("--json")
    assert result.exit_code == 1, result.output
    answer = json.loads(result.stdout)
    wrong = [
        f"{one['name']}: {one['what']}" for one in answer["checks"] if one["outcome"] == "wrong"
    ]
    unknown = [one for one in answer["checks"] if one["outcome"] == "unknown"]
    assert wrong == [f"webhook of App 7: URL: {fleet.hook} is not https"], unknown
    assert not answer["fine"]
    groups = {one["group"] for one in answer["checks"]}
    assert groups == {"GitHub", "Webhook", "Runner", "there (EC2 in us-west-2)", "Host"}
    assert {one["outcome"] for one in answer["checks"]} == {"fine", "wrong", "unknown", "skipped"}


Plant = Callable[[Fleet], Any]


async def close_egress(fleet: Fleet) -> None:
    rule = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    group = fleet.ec2.network.security_group
    await fleet.ec2.sdk("revoke_security_group_egress", GroupId=group, IpPermissions=[rule])


async def queue(fleet: Fleet, *, rule: bool) -> None:
    """Name a queue for interruption notices, to which a disabled rule, or none, sends."""
    sqs = fleet.ec2.sdk_of("sqs")
    made = await sqs("create_queue", QueueName="notices")
    if rule:
        events = fleet.ec2.sdk_of("events")
        pattern = {"source": ["aws.ec2"], "detail-type": ["EC2 Spot Instance Interruption Warning"]}
        await events("put_rule", Name="notices", EventPattern=json.dumps(pattern), State="DISABLED")
        shown = await sqs(
            "get_queue_attributes", QueueUrl=made["QueueUrl"], AttributeNames=["QueueArn"]
        )
        arn = shown["Attributes"]["QueueArn"]
        await events("put_targets", Rule="notices", Targets=[{"Id": "queue", "Arn": arn}])
    edit(
        fleet.file, "security_groups:", f"interruption_queue: {made['QueueUrl']}, security_groups:"
    )


async def disabled_key(fleet: Fleet) -> None:
    kms = fleet.ec2.sdk_of("kms")
    made = (await kms("create_key"))["KeyMetadata"]
    key = made["Arn"]
    await kms("disable_key", KeyId=made["KeyId"])
    edit(fleet.file, "    access:", f"    volume: {{kms_key: {key}}}\n    access:")


PLANTED: dict[str, tuple[Plant, str]] = {
    "suspended": (
        lambda fleet: fleet.github.administration.suspend(APP, "acme"),
        "it is suspended",
    ),
    "not installed": (
        lambda fleet: fleet.github.administration.uninstall(APP, "acme"),
        "the App is not installed there",
    ),
    "not accepted": (
        lambda fleet: fleet.github.administration.accept(APP, "acme", {"metadata": "read"}),
        "its owner has not accepted: actions: read, organization_self_hosted_runners: write",
    ),
    "no event": (
        lambda fleet: setattr(fleet.github.administration.app(APP), "events", ()),
        "it does not ask for: the event workflow_job",
    ),
    "no group": (
        lambda fleet: fleet.github.administration.replace_groups("acme"),
        "the App sees no such runner group",
    ),
    "form": (
        lambda fleet: setattr(fleet.github.administration.app(APP), "hook_content_type", "form"),
        "it is form, not json",
    ),
    "egress": (close_egress, "no security group admits port 443 outbound"),
    "addresses": (
        lambda fleet: fleet.ec2.lab.faults.set_addresses(fleet.ec2.network.subnets[0], 3),
        "it has only 3 free IP addresses",
    ),
    "policy": (
        lambda fleet: fleet.ec2.lab.faults.fail_calls("RunInstances", "UnauthorizedOperation", 99),
        "permission ec2:RunInstances: it is missing",
    ),
    "zone": (
        lambda fleet: fleet.ec2.lab.faults.stop_selling("g5.xlarge", *fleet.ec2.network.zones),
        "type g5.xlarge: not sold in us-west-2a",
    ),
    "no rule": (lambda fleet: queue(fleet, rule=False), "no rule of EventBridge sends"),
    "disabled rule": (lambda fleet: queue(fleet, rule=True), "the rule notices is disabled"),
    "disk key": (disabled_key, "is Disabled; EC2 terminates its machines"),
    "key": (
        lambda fleet: (fleet.file.parent / "app.pem").write_text(pem(rsa_key("another"))),
        "GitHub refuses it: 401",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
async def test_doctor_sees_what_is_planted_in_the_lab(fleet: Fleet, name: str) -> None:
    plant, says = PLANTED[name]
    planted = plant(fleet)
    if asyncio.iscoroutine(planted):
        await planted
    assert any(says in one for one in await fleet.wrong())


async def test_an_export_is_for_its_owner_alone_without_secrets_and_overwrites_nothing(
    fleet: Fleet,
) -> None:
    path = fleet.file.parent / "support.zip"
    result = await fleet.doctor("--export", path)
    assert result.exit_code == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with zipfile.ZipFile(path) as archive:
        assert set(archive.namelist()) == {"checks.json", "controller.log", "fleet.yaml"}
        assert json.loads(archive.read("checks.json"))["checks"]
        whole = b"".join(map(archive.read, archive.namelist())).decode()
    assert "fleet: ci" in whole
    assert SECRET not in whole
    assert "PRIVATE KEY" not in whole + result.output
    again = await fleet.doctor("--export", path)
    assert again.exit_code == 2
    assert "exists already" in again.output


async def test_a_job_is_explained_from_github_if_the_controller_says_nothing(fleet: Fleet) -> None:
    unserved = await fleet.doctor(fleet.job("self-hosted", "gpv"))
    assert unserved.exit_code == 1
    assert "the label gpv is close to gpu" in unserved.stdout
    served = await fleet.doctor(fleet.job("gpu"))
    assert served.exit_code == 1
    assert "fleet.yaml serves it by gpu, and the controller does not answer" in served.stdout
    other = await fleet.doctor("https://github.com/acme/rocket/actions/runs/1/job/2")
    assert other.exit_code == 2
    assert "is not the GitHub of this fleet" in other.output
