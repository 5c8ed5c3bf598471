"""The worker process: it ends with its parent and not earlier, and its death is reported to every caller."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.ec2.worker.channel import Timeouts, WorkerChannel
from tests.patience import PATIENCE
from tests.providers.conftest import ACCOUNT, REGION
from tests.providers.ec2_front import Ec2Front, Reply

pytestmark = pytest.mark.asyncio(loop_scope="session")

PARENT = """
import asyncio, sys
from autoscaler.providers.ec2.worker.channel import WorkerChannel

async def main():
    channel = WorkerChannel("us-east-1", sys.argv[1])
    await channel.call("GetCallerIdentity", {})
    print(channel.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def wait_until_gone(pid: int, patience: float = PATIENCE) -> bool:
    """Wait until the process ended, and return True. A zombie counts as ended."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


async def test_only_the_worker_process_imports_boto3() -> None:
    code = (
        "import sys; import autoscaler.providers.ec2.provider; "
        "sys.exit('boto3' in sys.modules or 'botocore' in sys.modules)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await process.wait() == 0


async def test_one_set_of_credentials_serves_all_services(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each set costs a call to the metadata service or to STS, or a program's run as here."""
    program, config, runs = (tmp_path / name for name in ("program", "config", "runs"))
    keys = '{"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "b"}'
    program.write_text(f"#!/bin/sh\necho run >> '{runs}'\necho '{keys}'\n")
    program.chmod(0o755)
    config.write_text(f"[profile fleet]\ncredential_process = {program}\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_PROFILE", "fleet")
    channel = WorkerChannel(REGION, endpoint)
    assert await channel.call("GetCallerIdentity", {}) == ACCOUNT
    wanted = {"filter": "tag:none", "values": ["none"], "size": 5, "page": None}
    assert await channel.call("DescribeInstances", wanted) == [[], None]
    await channel.close()
    assert runs.read_text() == "run\n"


async def held(front: Ec2Front, channel: WorkerChannel) -> asyncio.Task[str]:
    """A call that has arrived and is not answered until `front.release`."""
    front.release.clear()
    front.held.clear()
    front.script("GetCallerIdentity", Reply(-1))
    call = asyncio.create_task(channel.call("GetCallerIdentity", {}))
    arrived = asyncio.create_task(front.held.wait())
    await asyncio.wait({call, arrived}, return_when=asyncio.FIRST_COMPLETED)
    if not arrived.done():
        await call
    await arrived
    return call


async def test_calls_run_side_by_side(front: Ec2Front, worker: WorkerChannel) -> None:
    slow = await held(front, worker)
    assert await worker.call("GetCallerIdentity", {}) == ACCOUNT
    assert not slow.done()
    front.release.set()
    assert await slow == ACCOUNT


async def test_a_cancelled_caller_does_not_stop_the_worker(
    front: Ec2Front, worker: WorkerChannel
) -> None:
    cancelled = await held(front, worker)
    pid = worker.pid
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert await worker.call("GetCallerIdentity", {}) == ACCOUNT
    front.release.set()  # no caller waits for its late answer
    assert await worker.call("GetCallerIdentity", {}) == ACCOUNT
    assert worker.pid == pid


async def test_a_long_answer_arrives_whole(front: Ec2Front, worker: WorkerChannel) -> None:
    account = "1" * 3_000_000
    body = (
        '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
        f"<GetCallerIdentityResult><Account>{account}</Account></GetCallerIdentityResult>"
        "</GetCallerIdentityResponse>"
    )
    front.script("GetCallerIdentity", Reply(200, body=body))
    assert await worker.call("GetCallerIdentity", {}) == account


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "cut off"])
async def test_an_incomplete_call_is_not_carried_out(whole: bool) -> None:
    """A controller that is killed during a write leaves an incomplete line."""
    setup = {"region": REGION, "endpoint_url": None, "connect": 1, "read": 1, "threads": 1}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "autoscaler.providers.ec2.worker.process",
        json.dumps(setup),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    line = b'{"id": 1, "operation": "NoSuchOperation", "arguments": {}}\n'
    process.stdin.write(line if whole else line[:-10])
    if whole:
        assert json.loads(await process.stdout.readline())["error"] == "KeyError"
    process.stdin.close()
    assert await process.stdout.read() == b""
    assert await process.wait() == 0


@pytest.mark.case(
    "no answer arrives at all",
    topic="EC2's API",
    source="EC2: idempotency",
)
async def test_a_call_without_an_answer_has_an_unknown_outcome(
    front: Ec2Front, endpoint: str
) -> None:
    channel = WorkerChannel(REGION, endpoint, Timeouts(connect=5, read=0.2, answer=30))
    silent = await held(front, channel)
    with pytest.raises(OutcomeUnknownError, match="ReadTimeoutError"):
        await silent
    front.release.set()
    await channel.close()


async def test_signals_to_the_process_group_do_not_end_the_worker_before_its_parent(
    worker: WorkerChannel,
) -> None:
    await worker.call("GetCallerIdentity", {})
    pid = worker.pid
    assert pid is not None
    assert os.getpgid(pid) != os.getpgid(0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)
    assert await worker.call("GetCallerIdentity", {}) == ACCOUNT
    assert worker.pid == pid


async def test_calls_of_a_dead_worker_have_unknown_outcomes_and_it_is_replaced(
    front: Ec2Front, worker: WorkerChannel
) -> None:
    await worker.call("GetCallerIdentity", {})
    pid = worker.pid
    assert pid is not None
    silent = await held(front, worker)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(OutcomeUnknownError, match="WorkerEnded: the worker process ended"):
        await silent
    front.release.set()
    assert await worker.call("GetCallerIdentity", {}) == ACCOUNT
    assert worker.pid != pid


async def test_a_late_answer_to_a_cancelled_call_does_not_disturb_others(
    front: Ec2Front, worker: WorkerChannel
) -> None:
    cancelled = await held(front, worker)
    pid = worker.pid
    cancelled.cancel()
    await asyncio.wait({cancelled})
    front.release.set()
    for _ in range(3):
        assert await worker.call("GetCallerIdentity", {}) == ACCOUNT
    assert worker.pid == pid


async def test_a_call_above_its_time_limit_ends_the_worker(front: Ec2Front, endpoint: str) -> None:
    channel = WorkerChannel(REGION, endpoint)
    await channel.call("GetCallerIdentity", {})  # starting it takes as long as the host is busy
    pid, patient = channel.pid, channel._timeouts
    assert pid is not None
    front.release.clear()
    front.script("GetCallerIdentity", Reply(-1))
    # Whether the call arrives before that does not matter: the front never answers it.
    channel._timeouts = Timeouts(connect=5, read=PATIENCE, answer=0.5)
    with pytest.raises(OutcomeUnknownError, match="WorkerTimeout"):
        await channel.call("GetCallerIdentity", {})
    assert await asyncio.to_thread(wait_until_gone, pid)
    front.release.set()
    channel._timeouts = patient  # the next worker's start counts as part of its first call
    assert await channel.call("GetCallerIdentity", {}) == ACCOUNT
    assert channel.pid != pid
    await channel.close()


async def test_a_closed_channel_ends_its_worker_and_refuses_calls(endpoint: str) -> None:
    others = asyncio.all_tasks()
    channel = WorkerChannel(REGION, endpoint)
    await channel.call("GetCallerIdentity", {})
    pid = channel.pid
    assert pid is not None
    await channel.close()
    await channel.close()
    assert wait_until_gone(pid)
    assert asyncio.all_tasks() <= others
    with pytest.raises(ProviderError, match="Closed: the provider is closed"):
        await channel.call("GetCallerIdentity", {})


async def test_an_unused_channel_can_be_closed(endpoint: str) -> None:
    channel = WorkerChannel(REGION, endpoint)
    await channel.close()
    assert channel.pid is None


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_the_worker_process_ends_with_its_parent(
    endpoint: str, number: signal.Signals
) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, endpoint, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    assert psutil.pid_exists(pid)
    parent.send_signal(number)
    await parent.wait()
    assert await asyncio.to_thread(wait_until_gone, pid)


async def test_a_call_that_cannot_be_sent_is_refused_as_configuration(
    worker: WorkerChannel,
) -> None:
    with pytest.raises(ProviderError, match="ParamValidationError") as refusal:
        await worker.call("TerminateInstances", {"ids": [1]})
    assert refusal.value.failure is FailureClass.CONFIGURATION
