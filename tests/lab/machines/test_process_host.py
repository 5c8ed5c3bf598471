"""Machines of real processes: user data, users, and isolation from the real host."""

import errno
import hashlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.model.catalogue import OperatingSystem
from autoscaler.providers.ec2.user_data import render_user_data
from lab.machines.process import ProcessHost
from lab.machines.process_tree import members
from tests.lab.machines.conftest import AGENT, UserData
from tests.lab.machines.world import World, running, until
from tests.lab.system.pace import yielding

MakeHost = Callable[..., ProcessHost]


@pytest.fixture
async def process_host(open_folder: Path) -> AsyncIterator[MakeHost]:
    made: list[ProcessHost] = []

    def make(scale: float, *, baked: bool = True, keep: bool = True) -> ProcessHost:
        made.append(ProcessHost(open_folder, AGENT, scale, baked=baked, keep=keep))
        return made[-1]

    yield make
    for host in made:
        await host.close()


def owners(pids: set[int]) -> set[int]:
    return {Path(f"/proc/{pid}").stat().st_uid for pid in pids}


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def is_agent(pid: int) -> bool:
    return b"--host-file" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


LOOK = """#!/bin/bash
cd "$RUNNER_AGENT_ROOT"
for name in poweroff reboot halt init telinit systemd-run loginctl dbus-send busctl sudo kexec
do command -v "$name" >> commands; done
python3 -c '
import ctypes, platform
# reboot(2) asks for the privilege first and looks at its magic numbers next: with wrong ones
# it says EPERM where it is refused, EINVAL where it would not be, and never does anything.
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall({"x86_64": 169, "aarch64": 142}[platform.machine()], 0, 0, 0, 0)
print(ctypes.get_errno())' > refused
command -v shutdown systemctl > ours
cat /proc/self/status > privileges
echo done > finished
"""


async def test_no_machine_can_power_off_the_real_host(
    process_host: MakeHost, open_folder: Path
) -> None:
    async with running(World(scale=50)) as world:
        host = process_host(world.scale)
        await host.boot(world.machine("i-1", LOOK))
        root = open_folder / "i-1"
        await until(lambda: (root / "finished").exists())
        assert int((root / "refused").read_text()) == errno.EPERM
        assert (root / "commands").read_text() == ""
        ours = [Path(line).parent for line in (root / "ours").read_text().split()]
        assert ours == [open_folder / "image" / "bin"] * 2
        if os.geteuid() == 0:
            assert "NoNewPrivs:\t1" in (root / "privileges").read_text()


async def test_the_runner_is_not_root_and_leaves_no_process(
    process_host: MakeHost, user_data: UserData, open_folder: Path
) -> None:
    async with running(World(scale=50, jobs=[60])) as world:
        host = process_host(world.scale, keep=False)
        await host.boot(world.machine("i-1", user_data(world)))
        await until(lambda: world.count("started") == 1)
        sessions = host.sessions("i-1")
        everything = members(sessions)
        runner = members(sessions[1:])
        assert len(sessions) == 2
        assert len(runner) >= 3
        assert len(everything) > len(runner)
        assert owners(runner) == {65534 if os.geteuid() == 0 else os.geteuid()}
        await host.kill("i-1")
        assert members(sessions) == set()
        assert not (open_folder / "i-1").exists()
        assert host.sessions("i-1") == ()
        await host.close()
        assert names_in(open_folder) == []


async def test_a_failed_boot_script_ends_the_machine_before_a_registration(
    process_host: MakeHost, open_folder: Path
) -> None:
    async with running(World(scale=50)) as world:
        sha = hashlib.sha256(AGENT).hexdigest()
        script = "#!/bin/sh\necho 'E: no package'\nexit 100\n"
        text = render_user_data(OperatingSystem.LINUX, world.url, "lab", sha, boot_script=script)
        await process_host(world.scale).boot(world.machine("i-1", text))
        await until(lambda: bool(world.off))
        log = (open_folder / "i-1" / "var" / "log" / "agent.log").read_text()
        assert "powering off: the health checks failed: boot_script" in log
        (wrong,) = world.wrong
        assert "'name': 'boot_script', 'ok': False, 'detail': 'exited with 100 after" in wrong
        assert "E: no package" in wrong
        assert [step for _, step in world.reported if step in ("stage", "poll")] == ["stage"] * 2


@pytest.mark.parametrize("version", ["2.320.0", "2.336.0"])
async def test_a_runner_that_is_too_old_is_refused_as_the_real_one_is(
    process_host: MakeHost, user_data: UserData, open_folder: Path, version: str
) -> None:
    """The reason stands on standard error; run.sh shows status 7 since 2.333.0 (actions/runner)."""
    async with running(World(scale=50)) as world:
        world.forever["message"] = 403
        host = process_host(world.scale)
        machine = world.machine("i-1", user_data(world))
        await host.boot(replace(machine, runner_version=version))
        await until(lambda: bool(world.off))
        log = (open_folder / "i-1" / "var" / "log" / "agent.log").read_text()
        assert (
            "powering off: GitHub refuses the runner's version: An error occurred: Runner version "
            f"v{version} is deprecated and cannot receive messages."
        ) in log
        assert world.count("exit") == 1
        folder = open_folder / "i-1" / "opt" / "actions-runner" / "_diag"
        diagnosed = list(folder.glob("Runner_*"))
        assert any("WRITE ERROR: An error occurred" in one.read_text() for one in diagnosed)


async def test_an_agent_that_is_not_in_the_image_is_fetched(
    process_host: MakeHost, user_data: UserData
) -> None:
    async with running(World(scale=20, agent=AGENT, jobs=[0.1])) as world:
        host = process_host(world.scale, baked=False)
        await host.boot(world.machine("i-1", user_data(world)))
        await until(lambda: bool(world.off))
        assert world.count("agent") == 1
        assert world.count("completed") == 1
        assert world.wrong == []


async def test_an_agent_with_a_wrong_hash_is_not_run_and_the_shutdown_follows(
    process_host: MakeHost, user_data: UserData
) -> None:
    async with running(World(scale=yielding(500), agent=AGENT + b"\nraise SystemExit\n")) as world:
        host = process_host(world.scale, baked=False)
        await host.boot(world.machine("i-1", user_data(world)))
        await until(lambda: bool(world.off))
        assert world.count("agent") >= 1
        assert world.count("attest") == 0


async def test_the_machine_powers_off_if_the_agent_is_killed(
    process_host: MakeHost, user_data: UserData
) -> None:
    async with running(World(scale=50, jobs=[60])) as world:
        host = process_host(world.scale)
        await host.boot(world.machine("i-1", user_data(world)))
        await until(lambda: world.count("started") == 1)
        sessions = host.sessions("i-1")
        agents = [pid for pid in members(sessions[:1]) if is_agent(pid)]
        assert len(agents) == 1
        os.kill(agents[0], signal.SIGKILL)
        await until(lambda: bool(world.off))
        assert members(sessions) == set()


@pytest.mark.case(
    "the machine is shut down under a job, as for a spot interruption: the listener has 30 "
    "seconds to cancel the job",
    topic="Runner and listener",
    source="actions/runner Runner.cs",
)
async def test_a_stop_of_the_agent_lets_the_runner_cancel_its_job(
    process_host: MakeHost, user_data: UserData, open_folder: Path
) -> None:
    """As in a spot interruption: the unit signals only the agent (`KillMode=mixed`)."""
    async with running(World(scale=20, jobs=[3600])) as world:
        host = process_host(world.scale)
        await host.boot(world.machine("i-1", user_data(world)))
        await until(lambda: world.count("started") == 1)
        (agent,) = [pid for pid in members(host.sessions("i-1")[:1]) if is_agent(pid)]
        os.kill(agent, signal.SIGTERM)
        await until(lambda: bool(world.off))
        assert world.count("completed") == 1
        assert world.count("exit") == 1
        log = (open_folder / "i-1" / "var" / "log" / "agent.log").read_text()
        assert "stopped: the machine is being shut down" in log


async def test_a_reboot_keeps_the_disk_and_ends_all_processes(
    process_host: MakeHost, user_data: UserData, open_folder: Path
) -> None:
    async with running(World(scale=50, assignment=False, jobs=[60])) as world:
        host = process_host(world.scale)
        await host.boot(world.machine("i-1", user_data(world)))
        await until(lambda: world.count("poll") > 0)
        first = host.sessions("i-1")
        await host.reboot("i-1")
        assert members(first) == set()
        await until(lambda: world.count("attest") == 2)
        assert len(set(world.served_machines["m-i-1"].nonces)) == 2
        world.assignment = True
        await until(lambda: world.count("started") == 1)
        await host.reboot("i-1")
        await host.reboot("i-unknown")
        await until(lambda: bool(world.off))
        assert "a runner was started" in (open_folder / "i-1/var/log/agent.log").read_text()
        assert world.count("attest") == 2


async def test_machines_without_systemd_behave_the_same(
    process_host: MakeHost, user_data: UserData
) -> None:
    async with running(World(scale=50, jobs=[0.1])) as world:
        host = process_host(world.scale)
        bare = '#!/bin/bash\nPATH=/bin:/usr/bin rmdir "$RUNNER_AGENT_ROOT/run/systemd/system"\n'
        await host.boot(world.machine("i-1", bare + user_data(world)))
        await until(lambda: bool(world.off))
        assert world.count("completed") == 1


async def test_no_secret_and_no_message_of_a_job_in_the_logs(
    process_host: MakeHost, user_data: UserData, open_folder: Path
) -> None:
    async with running(World(scale=50, jobs=[0.1])) as world:
        host = process_host(world.scale)
        await host.boot(world.machine("i-1", user_data(world)))
        await until(lambda: bool(world.off))
        logs = "".join(path.read_text() for path in (open_folder / "i-1/var/log").iterdir())
        assert "runner fleet-i-1 started" in logs
        assert world.served_machines["m-i-1"].nonces[0] not in logs
        assert "Running job" not in logs


async def test_a_machine_that_powers_off_is_not_killed_again(
    process_host: MakeHost, user_data: UserData
) -> None:
    async with running(World(scale=50)) as world:
        host = process_host(world.scale)
        await host.boot(world.machine("i-1", "#!/bin/bash\nshutdown -P now\nshutdown -P now\n"))
        await until(lambda: bool(world.off))
        await host.kill("i-1")
        await host.boot(world.machine("i-2", "#!/bin/bash\nshutdown -P +1\n"))
        await until(lambda: len(world.off) == 2)
        assert world.off == ["i-1", "i-2"]


async def test_a_scheduled_shutdown_can_be_cancelled(
    process_host: MakeHost, open_folder: Path
) -> None:
    script = """#!/bin/bash
cd "$RUNNER_AGENT_ROOT"
shutdown -P +40
until [ -e changed_its_mind ]; do sleep 0.02; done
shutdown -c
"""
    async with running(World(scale=1)) as world:
        host = process_host(world.scale)
        await host.boot(world.machine("i-1", script))
        machine = host._running["i-1"]
        await until(lambda: machine.armed is not None)
        armed = machine.armed
        (open_folder / "i-1" / "changed_its_mind").touch()
        await until(lambda: machine.armed is None)
        assert armed is not None
        assert armed.cancelled()
        assert world.off == []


def test_a_folder_closed_to_others_is_refused_for_root(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    if os.geteuid() == 0:
        with pytest.raises(ValueError, match="closed"):
            ProcessHost(closed, AGENT)
    else:
        ProcessHost(closed, AGENT)


@pytest.mark.parametrize(("free_gb", "passes"), [(1_000_001, True), (999_999, False)])
async def test_a_machine_has_the_free_disk_space_that_the_lab_gives_it_on_any_host(
    process_host: MakeHost, user_data: UserData, open_folder: Path, free_gb: float, passes: bool
) -> None:
    """The agent's own check finds it, and so does its job hook, which the runner's user runs."""
    job = {"machine": "m-1", "access": {"repositories": ["*"], "forks": True}}
    world = World(50, jobs=[1], job=job, parameters={"disk_gb": 1_000_000})
    async with running(world):
        machine = world.machine("i-1", user_data(world))
        await process_host(world.scale).boot(replace(machine, free_gb=free_gb))
        await until(lambda: bool(world.off))
        if passes:
            assert world.wrong == []
            hooks = (open_folder / "i-1" / "opt/actions-runner/_diag/hooks.log").read_text()
            assert "Disk: 1000001.0 GiB free after the job" in hooks
        else:
            (wrong,) = world.wrong
            assert "'ok': False, 'detail': '999999.0 GiB free, 1e+06 wanted'" in wrong
