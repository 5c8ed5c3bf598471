"""Calls that change something at AWS are sent only while the process leads, also if a process was stopped."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from autoscaler.app.translation import provider_factories
from autoscaler.config import load
from autoscaler.controller.ports.provider import (
    OutcomeUnknownError,
    ProviderContext,
    ProviderError,
)
from autoscaler.controller.ports.replicas import LEADER_CLOCK, Leads
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    ProviderMachineId,
    ProviderName,
)
from autoscaler.providers.ec2.factory import Ec2Factory
from autoscaler.providers.ec2.worker.channel import Timeouts, WorkerChannel
from autoscaler.providers.ec2.worker.operations import OPERATIONS
from autoscaler.providers.registry import provider_kinds
from tests.patience import PATIENCE
from tests.providers.conftest import REGION
from tests.providers.doubles import ManualClock, RememberingTelemetry

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("_credentials"),
]

EXAMPLE = Path(__file__).parents[2] / "examples" / "kubernetes.yaml"
TERMINATE: tuple[str, Mapping[str, Any]] = ("TerminateInstances", {"ids": ["i-1"]})
READ: tuple[str, Mapping[str, Any]] = ("DescribeSubnets", {"ids": ["subnet-1"]})
TAGGED: Mapping[str, Any] = {"tags": {"fleet": ["ci"]}, "page": None}
QUEUE = "https://sqs.us-east-1.amazonaws.com/1/q"

ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "CreateFleet": {
        "LaunchTemplateConfigs": [{"Overrides": []}],
        "TargetCapacitySpecification": {"TotalTargetCapacity": 1},
    },
    "CreateLaunchTemplate": {"name": "abc", "data": {"ImageId": "ami-1"}, "tags": []},
    "DeleteLaunchTemplate": {"id": "lt-1"},
    "DeleteMessageBatch": {"url": QUEUE, "receipts": ["r"]},
    "DeleteVolume": {"id": "vol-1"},
    "DescribeCapacityReservations": {"page": None},
    "DescribeImages": {"name": "gpu", "owner": "self", "page": None},
    "DescribeInstanceTypeOfferings": {"zones": ["us-east-1a"], "page": None},
    "DescribeInstances": {"filter": "tag:none", "values": ["none"], "page": None},
    "DescribeLaunchTemplates": TAGGED,
    "DescribeSpotPriceHistory": {
        "instance_types": ["g5.xlarge"],
        "products": ["Linux/UNIX"],
        "at": 0.0,
        "page": None,
    },
    "DescribeSubnets": READ[1],
    "DescribeVolumes": TAGGED,
    "GetCallerIdentity": {},
    "GetConsoleOutput": {"id": "i-1", "latest": True, "most": 10},
    "GetProducts": {
        "instance_type": "g5.xlarge",
        "region": REGION,
        "os": "linux",
        "page": None,
    },
    "ListServiceQuotas": {"page": None},
    "ReceiveMessage": {"url": QUEUE, "most": 1, "wait": 0},
    "TerminateInstances": TERMINATE[1],
}
READING_WORDS = ("Describe", "Get", "List", "Receive")
MUTATING = sorted(name for name in OPERATIONS if not name.startswith(READING_WORDS))


REFUSAL = (
    "<Response><Errors><Error><Code>Blocked</Code><Message>no</Message></Error></Errors></Response>"
)


class Aws:
    """Refuses every request, and remembers its API. Answers none while `answers` is not set."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        form, target = await request.post(), request.headers.get("X-Amz-Target", "")
        self.asked.append(str(form.get("Action") or target.rpartition(".")[2]))
        await self.answers.wait()
        return web.Response(status=400, text=REFUSAL if "Action" in form else "{}")


@pytest_asyncio.fixture(loop_scope="session")
async def aws() -> AsyncIterator[Aws]:
    found = Aws()
    app = web.Application()
    app.router.add_post("/{path:.*}", found.handle)
    server = TestServer(app, host="127.0.0.1")
    await server.start_server()
    found.url = str(server.make_url("")).rstrip("/")
    yield found
    found.answers.set()
    await server.close()


@asynccontextmanager
async def channel_of(aws: Aws, leads: Leads) -> AsyncIterator[WorkerChannel]:
    patient = Timeouts(connect=PATIENCE, read=PATIENCE, answer=PATIENCE)
    channel = WorkerChannel(REGION, aws.url, patient)
    channel.leads = leads
    try:
        yield channel
    finally:
        aws.answers.set()
        await channel.close()


async def refusal(channel: WorkerChannel, call: tuple[str, Mapping[str, Any]]) -> str:
    """Make a call, which AWS or the channel refuses, and return the error's text."""
    with pytest.raises((ProviderError, OutcomeUnknownError)) as error:
        await channel.call(*call)
    return str(error.value)


def stop(pid: int) -> None:
    """Stop a process, and wait until it has stopped."""
    os.kill(pid, signal.SIGSTOP)
    wait_until_stopped(pid)


def wait_until_stopped(pid: int) -> None:
    """Wait until a process has stopped."""
    while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)


async def test_operations_that_only_read_have_a_reading_name() -> None:
    assert sorted(name for name, one in OPERATIONS.items() if one.changes) == MUTATING
    assert ARGUMENTS.keys() == OPERATIONS.keys()


async def test_a_process_that_does_not_lead_reads_and_changes_nothing(aws: Aws) -> None:
    async with channel_of(aws, lambda: 0.0) as channel:
        for name in MUTATING:
            with pytest.raises(OutcomeUnknownError) as error:
                await channel.call(name, ARGUMENTS[name])
            text = f"NotLeading: {name} was not sent, because this process no longer leads"
            assert str(error.value).startswith(text)
        assert aws.asked == []
        reading = sorted(OPERATIONS.keys() - set(MUTATING))
        for name in reading:
            await refusal(channel, (name, ARGUMENTS[name]))
        assert aws.asked == reading


async def test_a_process_that_leads_changes_something(aws: Aws) -> None:
    async with channel_of(aws, lambda: PATIENCE) as channel:
        for name in MUTATING:
            await refusal(channel, (name, ARGUMENTS[name]))
        assert aws.asked == MUTATING


async def test_no_answer_is_awaited_for_longer_than_the_process_leads(aws: Aws) -> None:
    """The worker and its other calls go on."""
    lengths = [PATIENCE, 0.5]
    async with channel_of(aws, lambda: lengths.pop(0)) as channel:
        await refusal(channel, TERMINATE)
        pid = channel.pid
        aws.answers.clear()
        other = asyncio.create_task(refusal(channel, READ))
        text = await refusal(channel, TERMINATE)
        assert text == "WorkerTimeout: TerminateInstances got no answer in 0.5 s"
        aws.answers.set()
        await other
        assert channel.pid == pid


@pytest.mark.case(
    "the process that calls AWS is stopped, and goes on after another replica leads",
    topic="EC2's API",
    source="signal(7)",
)
@pytest.mark.parametrize("left", [0.5, PATIENCE])
async def test_a_worker_that_was_stopped_sends_only_what_it_may_send_still(
    aws: Aws, left: float
) -> None:
    async with worker_of(aws) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        stop(worker.pid)
        until = time.clock_gettime(LEADER_CLOCK) + left
        call = {"id": 1, "operation": TERMINATE[0], "arguments": TERMINATE[1], "until": until}
        worker.stdin.write(json.dumps(call).encode() + b"\n")
        await asyncio.sleep(0.5)
        assert (time.clock_gettime(LEADER_CLOCK) >= until) == (left == 0.5)
        os.kill(worker.pid, signal.SIGCONT)
        answer = json.loads(await worker.stdout.readline())
    if left == PATIENCE:
        assert (answer["sent"], aws.asked) == (True, ["TerminateInstances"])
    else:
        assert (answer["error"], answer["sent"], aws.asked) == ("NotLeading", False, [])


@asynccontextmanager
async def worker_of(aws: Aws) -> AsyncIterator[asyncio.subprocess.Process]:
    setup = {
        "region": REGION,
        "endpoint_url": aws.url,
        "connect": PATIENCE,
        "read": PATIENCE,
        "threads": 1,
    }
    worker = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "autoscaler.providers.ec2.worker.process",
        json.dumps(setup),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert worker.stdin is not None
    try:
        yield worker
    finally:
        worker.stdin.close()
        await worker.wait()


async def test_the_channel_says_until_when_a_stopped_worker_may_send(aws: Aws) -> None:
    lengths = [PATIENCE, 0.5, PATIENCE]
    async with channel_of(aws, lambda: lengths.pop(0)) as channel:
        await refusal(channel, TERMINATE)
        assert channel.pid is not None
        stop(channel.pid)
        # The channel waits as long as the worker may send.
        assert "no answer in 0.5 s" in await refusal(channel, TERMINATE)
        os.kill(channel.pid, signal.SIGCONT)
        # The worker begins with the earlier call, on the same connection.
        await refusal(channel, TERMINATE)
        assert aws.asked == ["TerminateInstances"] * 2


CONTROLLER = """
import asyncio, os, signal, sys, time
import psutil
from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.providers.ec2.worker.channel import WorkerChannel

async def terminate(channel):
    try:
        await channel.call("TerminateInstances", {"ids": ["i-1"]})
    except (ProviderError, OutcomeUnknownError) as error:
        print(error, flush=True)

async def main():
    channel = WorkerChannel("us-east-1", sys.argv[1])
    await terminate(channel)
    os.kill(channel.pid, signal.SIGSTOP)
    while psutil.Process(channel.pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)
    channel.leads = lambda: float(sys.argv[2])
    call = asyncio.create_task(terminate(channel))
    for _ in range(10):
        await asyncio.sleep(0)
    print(channel.pid, flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    await call
    channel.leads = lambda: 600.0
    await terminate(channel)

asyncio.run(main())
"""


@pytest.mark.case(
    "the process that calls AWS is stopped, and goes on after another replica leads",
    topic="EC2's API",
    source="signal(7)",
)
@pytest.mark.parametrize("left", [0.5, 600.0])
async def test_a_call_in_the_pipe_of_a_stopped_controller_is_sent_only_while_it_leads(
    aws: Aws, left: float
) -> None:
    """The controller and its worker are stopped together, as with their container, and go on later."""
    controller = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CONTROLLER, aws.url, str(left), stdout=subprocess.PIPE
    )
    assert controller.stdout is not None
    await controller.stdout.readline()
    pid = int(await controller.stdout.readline())
    wait_until_stopped(controller.pid)  # it stops itself, once: a second stop would last for ever
    await asyncio.sleep(0.5)  # until the shorter lease has ended
    os.kill(pid, signal.SIGCONT)
    os.kill(controller.pid, signal.SIGCONT)
    said = await controller.stdout.readline()
    await controller.wait()
    assert (b"no answer in 0.5 s" in said or b"NotLeading" in said) == (left == 0.5)
    assert aws.asked == ["TerminateInstances"] * (2 if left == 0.5 else 3)


async def test_a_provider_asks_the_leases_of_its_context(tmp_path: Path) -> None:
    text = EXAMPLE.read_text().replace(", ca_file: ca.pem", "")
    file = tmp_path / "fleet.yaml"
    file.write_text(text)
    kinds = provider_kinds()
    factory = provider_factories(load(file, kinds, files=False), kinds)[ProviderName("us-east-1")]
    assert isinstance(factory, Ec2Factory)
    context = ProviderContext(
        Installations(InstallationId("0badcafe")),
        "0" * 64,
        RememberingTelemetry(),
        ManualClock(),
        lambda: 0.0,
    )
    provider = factory.make(context)
    try:
        with pytest.raises(OutcomeUnknownError, match="NotLeading"):
            await provider.terminate([ProviderMachineId("i-1")])
    finally:
        await provider.close()
        await factory.close()
