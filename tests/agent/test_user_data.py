"""The user data of both platforms: small, safe to read by any job, well formed."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from autoscaler.model.catalogue import OperatingSystem
from autoscaler.providers.ec2.user_data import MAX_BYTES, render_user_data
from tests.agent.certificates import make_certificate

SHA = "ab" * 32
URL = "https://fleet.internal.example:8443"
BOTH = pytest.mark.parametrize("system", list(OperatingSystem))


@BOTH
def test_user_data_with_a_certificate_stays_within_ec2s_limit(system: OperatingSystem) -> None:
    ca = make_certificate("127.0.0.1")[0].decode()
    text = render_user_data(system, URL, "us-east-1", SHA, ca * 3)
    assert len(text.encode()) < MAX_BYTES
    line = next(line for line in text.splitlines() if line.startswith('{"controller"'))
    assert json.loads(line) == {"controller": URL, "provider": "us-east-1", "ca": ca * 3}


@BOTH
def test_the_first_command_schedules_a_shutdown(system: OperatingSystem) -> None:
    first, second = render_user_data(system, URL, "us-east-1", SHA).splitlines()[:2]
    assert first in ("#!/bin/bash", "<powershell>")
    assert second.startswith(("shutdown -P +20", "shutdown.exe /s /t 2400"))


@BOTH
def test_user_data_checks_the_hash_of_the_agent(system: OperatingSystem) -> None:
    text = render_user_data(system, URL, "us-east-1", SHA)
    assert SHA in text
    assert "@" not in text.replace("@'", "").replace("'@", "").replace("[@]", "")


@BOTH
def test_user_data_fetches_the_agent_by_its_hash(system: OperatingSystem) -> None:
    """A controller also serves the agents of its earlier versions."""
    text = render_user_data(system, URL, "us-east-1", SHA)
    assert f"'/bootstrap/agent.py?sha256={SHA}'" in text


@pytest.mark.case(
    "memory runs out: the kernel kills the job, not the agent",
    topic="EC2's machines",
    source="systemd.exec",
)
@pytest.mark.case(
    "a job with sudo stops all services",
    topic="EC2's machines",
    source="systemd.unit",
)
def test_the_unit_refuses_a_manual_stop_and_has_oom_protection() -> None:
    """systemd.unit(5) and systemd.exec(5) define the section of each setting."""
    text = render_user_data(OperatingSystem.LINUX, URL, "us-east-1", SHA)
    unit = text[text.index("[Unit]") : text.index("\nUNIT\n")]
    head, _, rest = unit.partition("[Service]")
    service = rest.partition("[Install]")[0]
    assert "\nRefuseManualStop=true\n" in head
    assert "\nFailureAction=poweroff-force\n" in head
    assert "\nOOMScoreAdjust=-900\n" in service
    assert "\nOOMPolicy=continue\n" in service


def test_a_stop_of_the_unit_signals_only_the_agent_and_gives_it_time(agent: ModuleType) -> None:
    """systemd.kill(5): `mixed` signals only the main process, and kills the rest at the timeout."""
    text = render_user_data(OperatingSystem.LINUX, URL, "us-east-1", SHA)
    unit = text[text.index("[Unit]") : text.index("\nUNIT\n")]
    service = unit.partition("[Service]")[2].partition("[Install]")[0]
    assert "\nKillMode=mixed\n" in service
    (timeout,) = re.findall(r"\nTimeoutStopSec=(\d+)\n", service)
    assert agent.STOP == 30 < int(timeout) <= 60
    assert "\nEnvironmentFile=-$etc/environment\n" in service


@pytest.mark.case(
    "Docker would end a job's containers at a shutdown before the agent is stopped",
    topic="Runner and listener",
    source="systemd.unit",
)
def test_the_agent_stops_before_docker_does() -> None:
    """systemd.unit(5), After: a shutdown reverses the order, and missing units are ignored."""
    text = render_user_data(OperatingSystem.LINUX, URL, "us-east-1", SHA)
    head = text[text.index("[Unit]") : text.index("[Service]")]
    assert "\nAfter=network-online.target docker.service containerd.service\n" in head


ENVIRONMENT = """\
# a comment, and words that are no variable
; another
HTTPS_PROXY=http://user:p$ss&w`rd@proxy:3128
NO_PROXY=.internal, 10.0.0.1
QUOTED="one two"
SINGLE='three'
not a name=x
UID=7
root=/elsewhere
LAST=no end of line"""


@pytest.mark.case(
    "the password of a proxy in `environment` has characters that a shell expands",
    topic="Runner and listener",
    source="systemd.exec",
)
def test_the_environment_file_is_read_as_systemd_reads_it(tmp_path: Path) -> None:
    """systemd.exec(5), EnvironmentFile: values are not expanded or run, and lose their quotes."""
    programs, etc = tmp_path / "bin", tmp_path / "etc/runner-agent"
    programs.mkdir()
    etc.mkdir(parents=True)
    (etc / "environment").write_text(ENVIRONMENT)
    for name, text in (
        ("shutdown", "exit 0"),
        ("sha256sum", "exit 0"),
        ("python3", 'env -0 > "$RUNNER_AGENT_ROOT/seen"'),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", render_user_data(OperatingSystem.LINUX, URL, "us-east-1", SHA)],
        check=False,
        capture_output=True,
        env={"PATH": f"{programs}:/usr/bin:/bin", "RUNNER_AGENT_ROOT": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    seen = dict(one.split("=", 1) for one in (tmp_path / "seen").read_text().split("\0") if one)
    assert seen["HTTPS_PROXY"] == "http://user:p$ss&w`rd@proxy:3128"
    assert seen["NO_PROXY"] == ".internal, 10.0.0.1"
    assert (seen["UID"], seen["root"]) == ("7", "/elsewhere"), "not the script's own variables"
    assert (seen["QUOTED"], seen["SINGLE"], seen["LAST"]) == ("one two", "three", "no end of line")


@pytest.mark.case(
    "a CA certificate too long for user data of 16 KiB",
    topic="Operators' files",
    source="EC2: user data",
)
@BOTH
@pytest.mark.parametrize(
    ("url", "provider", "sha"),
    [
        ("ftp://x", "p", SHA),
        ("https://x/'; rm -rf", "p", SHA),
        ("https://x/\nshutdown", "p", SHA),
        ("https://x/$(id)", "p", SHA),
        (URL, "p q", SHA),
        (URL, "p\n", SHA),
        (URL, "p", SHA.upper()),
        (URL, "p", "ab"),
    ],
)
def test_user_data_with_invalid_values_is_refused(
    system: OperatingSystem, url: str, provider: str, sha: str
) -> None:
    with pytest.raises(ValueError, match="not"):
        render_user_data(system, url, provider, sha)


@BOTH
def test_user_data_with_a_private_key_or_invalid_values_is_refused(system: OperatingSystem) -> None:
    certificate, key = make_certificate("127.0.0.1")
    with pytest.raises(ValueError, match="private key"):
        render_user_data(system, URL, "p", SHA, (certificate + key).decode())
    with pytest.raises(ValueError, match="EC2 allows"):
        render_user_data(system, URL, "p", SHA, certificate.decode() * 40)


def test_shellcheck_accepts_the_user_data(tmp_path: Path) -> None:
    script = tmp_path / "user-data.sh"
    script.write_text(render_user_data(OperatingSystem.LINUX, URL, "us-east-1", SHA))
    programs = [
        path
        for path in Path("lab/machines/programs").iterdir()
        if path.read_bytes().startswith(b"#!/bin/")
    ]
    assert len(programs) == 9
    shellcheck = Path(sys.prefix, "bin", "shellcheck")
    done = subprocess.run(
        [shellcheck, script, *programs], check=False, capture_output=True, text=True
    )
    assert done.stdout == ""
    assert done.returncode == 0
