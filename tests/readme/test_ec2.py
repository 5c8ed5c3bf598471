"""The README's way to a first job on EC2, from an empty folder: with a stock image, and with a baked one.

The commands come from README.md. In the lab the addresses of GitHub and EC2, the IDs and the ports differ. The
installation is that of the built wheel. `ssh` is a shell in the host's namespaces. `gh` and the browser are
played. The AWS CLI, `sudo`, systemd, Packer and all of `autoscaler` are real.
"""

import json
import re
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from autoscaler.app.agent_file import build_agent
from autoscaler.controller.system import SystemClock
from lab.ec2.moto import MotoProcess
from lab.ec2.seeding import Network
from lab.ec2.service import LabEc2
from lab.machines.process import ProcessHost
from lab.machines.publisher import RunnerPublisher
from lab.ports import free_ports
from lab.terraform.parts import find_python_program
from tests.ami.account import Place, bake_options, place
from tests.lab.conftest import moto as moto
from tests.readme.commands import MOST_STEPS, ROOT, Step, quoted, steps
from tests.readme.debian_host import HOME, PROGRAMS, DebianHost
from tests.readme.newcomer import Newcomer, labels_of, newcomer, until_green
from tests.readme.typist import Shell, Typist, clean

FLEET = f"{HOME}/fleet"
IDENTITY = "identity.pem"
ROLE = "gpu-runner-autoscaler"
Show = Callable[[str, Typist], None]

pytestmark = pytest.mark.wait_limit(
    seconds=1800, reason="boots a Debian, and installs and runs a whole fleet on it"
)


@dataclass(frozen=True, slots=True)
class Account:
    """An account with a network. `versions` is a versions.yaml for the controller, if it needs its own."""

    ec2: LabEc2
    network: Network
    versions: str = ""

    @property
    def variables(self) -> dict[str, str]:
        """Where AWS is, and what the host's role gives."""
        return {
            "AWS_ENDPOINT_URL": self.ec2.endpoint_url,
            "AWS_ACCESS_KEY_ID": "lab",
            "AWS_SECRET_ACCESS_KEY": "lab",  # not a secret: the lab accepts any value
            "AWS_REGION": self.ec2.region,
            "AWS_DEFAULT_REGION": self.ec2.region,
            "no_proxy": "127.0.0.1",
        }


@asynccontextmanager
async def stock_account(folder: Path, moto: MotoProcess) -> AsyncIterator[Account]:
    """An account whose machines are processes. They install the runner that the lab publishes."""
    publisher = RunnerPublisher(folder)
    await publisher.start()
    machines = folder / "machines"
    machines.mkdir()
    trust = {"SSL_CERT_FILE": str(publisher.certificate)}
    host = ProcessHost(machines, build_agent(), environment=trust)
    ec2 = LabEc2(host, SystemClock(), moto=moto)
    try:
        await ec2.start()
        yield Account(ec2, await ec2.seed_network(1), yaml.safe_dump(publisher.versions()))
    finally:
        await ec2.close()
        await host.close()
        await publisher.close()


@asynccontextmanager
async def account_of_disks(folder: Path) -> AsyncIterator[tuple[Account, Place]]:
    """An account whose machines are disks that systemd boots, so that an image is what a build left there."""
    made = folder / "account"
    made.mkdir()
    async with place(made) as at:
        yield Account(at.ec2, await at.ec2.seed_network(1)), at


def laptop(folder: Path, account: Account) -> Shell:
    """Return the shell of an administrator of the account, with the AWS CLI."""
    cli = find_python_program("aws")
    program = folder / "aws"
    program.write_text(
        f'#!/bin/sh\nexec env PYTHONPATH={cli} {sys.executable} {cli}/bin/aws "$@"\n'
    )
    program.chmod(0o755)
    variables = clean(**account.variables)
    variables |= {"PATH": f"{folder}:{variables['PATH']}", "AWS_PAGER": ""}
    return Shell(("bash", "-c"), variables, folder)


def policy(account: Account) -> str:
    """Return the policy of docs/ec2.md, with the values of the account."""
    page = (ROOT / "docs" / "ec2.md").read_text(encoding="utf-8")
    found = re.search(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    values = {"ACCOUNT": account.ec2.account, "REGION": account.ec2.region, "FLEET": "first"}
    return re.sub("|".join(values), lambda name: values[name[0]], found[1])


class FirstFleet:
    """Types the steps of the way on EC2."""

    def __init__(self, account: Account, owner: Newcomer, host: DebianHost, folder: Path) -> None:
        self._account, self._owner, self._host = account, owner, host
        network = account.network
        self._folder = folder
        self._ports = free_ports(2)
        self.typist = Typist(
            laptop(folder, account),
            {
                "vpc-0123456789abcdef0": network.vpc,
                "subnet-0123456789abcdef0": network.subnets[0],
                "sg-0fedcba9876543210": network.security_group,
                "us-east-1": account.ec2.region,
                "8000": str(self._ports[0]),
            },
        )

    async def prepare(self) -> None:
        """Give the account what the README supposes: the host's role."""
        (self._folder / "policy.json").write_text(policy(self._account))
        await self._make_role(ROLE)

    async def _make_role(self, name: str) -> None:
        """Make a role. Moto gives the role for spot instances another name than AWS."""
        trust = json.dumps({"Version": "2012-10-17", "Statement": []})
        await self.typist.type(
            f"aws iam create-role --role-name {name} --assume-role-policy-document '{trust}'"
        )

    async def type(self, step: Step, commands: Sequence[str] | None = None) -> None:
        """Type the commands of a step, and note how long they took."""
        for command in step.commands if commands is None else commands:
            if command.startswith("ssh "):
                self._connect()
            elif command.startswith("gh workflow run "):
                continue
            elif command.startswith("autoscaler doctor "):
                await self._examine(command)
            elif command.startswith("autoscaler init "):
                await self.init(command)
            elif "autoscaler install" in command:
                await self.install(command)
            else:
                output = await self.typist.type(self.typist.filled(command))
                self._remember_group(output)
            if "create-service-linked-role" in command:
                await self._make_role("AWSServiceRoleForEC2Spot")
        self.typist.step(step.title)

    def _remember_group(self, output: str) -> None:
        """Take the ID of the security group that a command made for the README's example."""
        made = re.search(r'"GroupId": "(sg-\w+)"', output)
        if made is not None:
            self.typist.replaced.setdefault("sg-0123456789abcdef0", made[1])

    async def _examine(self, command: str) -> None:
        """Run `doctor` before the controller runs: all but that is fine, as the README says."""
        status, output = await self.typist.attempt(command)
        wrong = re.findall(r"^ +wrong +(\S+):", output, re.MULTILINE)
        assert (status, wrong) == (1, ["controller"]), output

    def _connect(self) -> None:
        """Connect to the host: a shell in its namespaces, in place of SSH."""
        self.typist.shell = self._host.shell(self._account.variables)

    async def init(self, command: str) -> None:
        """Run `init` while the owner looks at what it prints, and write the lab's addresses into fleet.yaml."""
        place = f" --api-url {self._owner.github.api_url} --public-url https://127.0.0.1:{self._ports[1]}"
        output = await self.typist.type(self.typist.filled(command) + place, self._owner.look)
        assert "Left to do, in this order:" in output
        await self._host.write(f"{FLEET}/{IDENTITY}", self._account.ec2.certificate_pem.decode())
        group = "      security_groups:"
        own = f"      identity_certificates: [{IDENTITY}]\n"
        await self._host.change(f"{FLEET}/fleet.yaml", group, own + group)
        if self._account.versions:
            await self._host.write(f"{FLEET}/versions.yaml", self._account.versions)
            key = "store: "
            await self._host.change(
                f"{FLEET}/fleet.yaml", key, f"versions_file: versions.yaml\n{key}"
            )

    async def install(self, command: str) -> None:
        """Install the unit, which has the variables that at AWS the host's role replaces.

        The command waits two minutes until the controller is ready. On a busy host it is typed again.
        """
        variables = "".join(f"{name}={value}\n" for name, value in self._account.variables.items())
        await self._host.write("/etc/autoscaler/environment", variables, "root")
        status, output = 1, "is not ready after"
        for _ in range(5):
            if status == 0 or "is not ready after" not in output:
                break
            status, output = await self.typist.attempt(command)
        assert status == 0, output + await self.log()

    async def bake(self, command: str, installed: Path) -> None:
        """Bake an image in a clone of the repository, and write its name in place of `stock`."""
        variables = clean(**self._account.variables, CHECKPOINT_DISABLE="1")
        variables["PATH"] = f"{installed / PROGRAMS}/bin:{variables['PATH']}"
        there, self.typist.shell = (
            self.typist.shell,
            Shell(("bash", "-c"), variables, ROOT),
        )
        output = await self.typist.type(self.typist.filled(command))
        self.typist.shell = there
        [image] = re.findall(r"^in fleet.yaml: (image: .*)$", output, re.MULTILINE)
        await self._host.change(f"{FLEET}/fleet.yaml", "image: {stock: ubuntu-24.04}", image)
        self.typist.step("An image of your own")

    async def run_job(self, step: Step, instead: str = "") -> None:
        """Start the workflow, which asks for `instead` if it is given, and wait until it is green."""
        labels = [instead if "." in one and instead else one for one in labels_of(step.workflow)]
        job = self._owner.start_workflow(labels)
        await self.type(step)
        await until_green(job, await self.log())
        self.typist.step("the job is green")

    async def log(self) -> str:
        """Return the end of the controller's log."""
        return await self._host.run("journalctl --no-pager -u autoscaler -n 40 -o cat || true")


def test_each_way_has_few_steps() -> None:
    """With the installation of the program, which has no number."""
    for heading in ("### On EC2", "### On Kubernetes"):
        assert 3 < 1 + len(steps(heading)) <= MOST_STEPS
    assert len(quoted("autoscaler images bake").split()) == 8


async def test_a_job_runs_on_a_machine_with_a_stock_image(
    folder: Path, moto: MotoProcess, installed: Path, show: Show
) -> None:
    extra, label = quoted("--instance-type"), quoted(r"linux\.m7i")
    async with (
        stock_account(folder, moto) as account,
        newcomer() as owner,
        DebianHost(folder / "host", installed) as host,
    ):
        first = FirstFleet(account, owner, host, folder)
        await first.prepare()
        *before, init, run, job = steps("### On EC2")
        for step in before:
            await first.type(step)
        await first.type(init, [f"{one} {extra}" for one in init.commands])
        await first.type(run)
        await first.run_job(job, label)
        show("EC2, with a stock image", first.typist)
        assert [one.specification.image.name[:6] for one in account.ec2.instances] == ["ubuntu"]


async def test_a_job_runs_on_a_machine_with_a_baked_image(
    folder: Path, installed: Path, show: Show
) -> None:
    """Without GPUs, so the recipe is linux-cpu. The options after `--` have the lab's addresses."""
    extra, label = quoted("--instance-type"), quoted(r"linux\.m7i")
    bake = quoted("autoscaler images bake").replace("linux-gpu", "linux-cpu")
    async with (
        account_of_disks(folder) as (account, at),
        newcomer() as owner,
        DebianHost(folder / "host", installed) as host,
    ):
        first = FirstFleet(account, owner, host, folder)
        await first.prepare()
        *before, init, run, job = steps("### On EC2")
        for step in before:
            await first.type(step)
        await first.type(init, [f"{one} {extra}" for one in init.commands])
        await first.bake(
            shlex.join([*shlex.split(bake), *bake_options(at, "linux-cpu")]), installed
        )
        await first.type(run)
        await first.run_job(job, label)
        show("EC2, with a baked image", first.typist)
        used = [one.specification.image.name for one in account.ec2.instances]
        assert used[-1].startswith("autoscaler/linux-cpu-x64-")
