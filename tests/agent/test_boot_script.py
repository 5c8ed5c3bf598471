"""The operator's boot script: what the user data runs, and what the agent reports of it."""

import base64
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from autoscaler.model.catalogue import OperatingSystem
from autoscaler.providers.ec2.user_data import BOOT_SCRIPT_SECONDS, render_user_data
from tests.agent.doubles import VirtualClock
from tests.powershell import mistakes

URL, SHA = "https://fleet.internal.example:8443", "ab" * 32


def render(script: str | None) -> str:
    return render_user_data(OperatingSystem.LINUX, URL, "east", SHA, boot_script=script)


def boot(root: Path, script: str | None, seconds: float = BOOT_SCRIPT_SECONDS) -> str:
    """Run the user data with bash in a folder as its root, with a shorter limit; return what it printed."""
    programs, etc = root / "bin", root / "etc/runner-agent"
    programs.mkdir(exist_ok=True)
    etc.mkdir(parents=True, exist_ok=True)
    (etc / "environment").write_text("HTTPS_PROXY=http://proxy:3128\n")
    agent = 'test -e "$RUNNER_AGENT_ROOT/etc/runner-agent/boot-script.status" && echo reported'
    for name, text in (
        ("shutdown", ""),
        ("sha256sum", ""),
        ("python3", f"{agent} >> $RUNNER_AGENT_ROOT/order; echo agent >> $RUNNER_AGENT_ROOT/order"),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    text = render(script).replace(f"timeout -k 10 {BOOT_SCRIPT_SECONDS}", f"timeout -k 1 {seconds}")
    done = subprocess.run(
        ["bash", "-c", text],
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        env={"PATH": f"{programs}:/usr/bin:/bin", "RUNNER_AGENT_ROOT": str(root)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def checked(agent: ModuleType, root: Path) -> tuple[bool, str]:
    """What the agent reports of the boot script."""
    (check,) = agent.check_boot_script(agent.Host({"root": str(root)}))
    assert check.name == "boot_script"
    return check.ok, check.detail


def test_it_runs_before_the_agent_with_the_machines_proxies(
    agent: ModuleType, tmp_path: Path
) -> None:
    script = (
        "#!/bin/bash\n"
        'cd "$RUNNER_AGENT_ROOT" && echo script >> order && umask > umask\n'
        'echo "$HTTPS_PROXY" > proxy; cat > input; touch made; echo \'@SHA256@ $x\' "$0"\n'
    )
    printed = boot(tmp_path, script)
    assert (tmp_path / "order").read_text().split() == ["script", "reported", "agent"]
    assert (tmp_path / "proxy").read_text() == "http://proxy:3128\n"
    assert (tmp_path / "umask").read_text() == "0022\n"
    assert (tmp_path / "input").read_text() == ""
    assert "@SHA256@ $x" in printed
    assert (tmp_path / "etc/runner-agent/boot-script").read_text() == script
    log = tmp_path / "var/log/runner-agent-boot-script.log"
    assert log.read_text().startswith("@SHA256@ $x")
    assert log.stat().st_mode & 0o077 == 0
    ok, detail = checked(agent, tmp_path)
    assert (ok, detail.startswith("took ")) == (True, True)


@pytest.mark.case(
    "the operator's boot script fails or hangs: the machine gets no job, and the log is reported",
    topic="EC2's machines",
    source="cloud-init: boot stages",
)
def test_a_script_that_fails_is_reported_with_its_log(agent: ModuleType, tmp_path: Path) -> None:
    printed = boot(tmp_path, "#!/bin/sh\necho one\necho 'E: no package' >&2\nexit 3\n")
    assert "E: no package" in printed, "the console shows it, too"
    assert (tmp_path / "order").read_text().split() == ["reported", "agent"]
    ok, detail = checked(agent, tmp_path)
    assert not ok
    assert detail.startswith("exited with 3 after ")
    assert detail.endswith(" s: one E: no package")


def test_a_script_that_hangs_is_ended(agent: ModuleType, tmp_path: Path) -> None:
    boot(tmp_path, "#!/bin/bash\nsleep 3600\n", seconds=0.2)
    ok, detail = checked(agent, tmp_path)
    assert (ok, detail.partition(" after ")[0]) == (False, "timed out")
    assert detail.endswith(": it printed nothing")


def test_a_process_that_the_script_leaves_does_not_hold_up_the_boot(
    agent: ModuleType, tmp_path: Path
) -> None:
    boot(tmp_path, '#!/bin/bash\nsleep 3600 & echo $! > "$RUNNER_AGENT_ROOT/child"\n')
    assert checked(agent, tmp_path)[0]
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


def test_a_script_that_only_sigkill_ended_was_killed(agent: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "etc/runner-agent").mkdir(parents=True)
    (tmp_path / "etc/runner-agent/boot-script.status").write_text("137 610\n")
    assert checked(agent, tmp_path) == (False, "was killed after 610 s: no log")


def test_a_result_that_the_image_has_is_not_that_of_this_machine(
    agent: ModuleType, tmp_path: Path
) -> None:
    boot(tmp_path, "#!/bin/sh\nexit 1\n")
    assert not checked(agent, tmp_path)[0]
    boot(tmp_path, None)
    assert list(agent.check_boot_script(agent.Host({"root": str(tmp_path)}))) == []


@pytest.mark.parametrize("status", ["", "0", "x y z", "\u00e9 1"])
def test_an_unreadable_result_is_none(agent: ModuleType, tmp_path: Path, status: str) -> None:
    (tmp_path / "etc/runner-agent").mkdir(parents=True)
    (tmp_path / "etc/runner-agent/boot-script.status").write_text(status, "utf-8")
    assert list(agent.check_boot_script(agent.Host({"root": str(tmp_path)}))) == []


def test_the_detail_has_the_end_of_a_long_log(agent: ModuleType, tmp_path: Path) -> None:
    boot(tmp_path, "#!/bin/sh\nseq 100000\nprintf '\\033[31mred\\377\\n'\nexit 1\n")
    ok, detail = checked(agent, tmp_path)
    assert not ok
    assert detail.endswith("99999 100000 [31mred\ufffd")
    assert len(detail) <= agent.MOST_BOOT_DETAIL + 40
    assert detail.isprintable()


def test_a_script_without_powershell_to_run_it_is_reported(
    agent: ModuleType, tmp_path: Path
) -> None:
    """tests/windows runs scripts that start. This host has no folder `C:\\`, so that this one does not."""
    for folder in ("etc/runner-agent", "var/log"):
        (tmp_path / folder).mkdir(parents=True)
    script = tmp_path / "boot-script.ps1"
    script.write_text("exit 0\r\n")
    agent.run_once(str(script), agent.Host({"root": str(tmp_path)}), VirtualClock())
    assert checked(agent, tmp_path) == (False, "did not start after 0 s: it printed nothing")


def test_shellcheck_accepts_the_user_data_with_a_script(tmp_path: Path) -> None:
    text = tmp_path / "user-data.sh"
    text.write_text(render("#!/bin/sh\necho 'unquoted heredoc: $('\n"))
    shellcheck = Path(sys.prefix, "bin", "shellcheck")
    done = subprocess.run([shellcheck, text], check=False, capture_output=True, text=True)
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo done\n", "does not begin with #!"),
        ("#!/bin/sh\r\necho\r\n", "line ends of Windows"),
        ("#!/bin/sh\n\0\n", "NUL"),
        ("#!/bin/sh\nRUNNER_AGENT_BOOT_SCRIPT\nshutdown\n", "has a line RUNNER_AGENT_BOOT_SCRIPT"),
        ("#!/bin/sh\n# -----BEGIN PRIVATE KEY-----\n", "contains a private key"),
        ("#!/bin/sh\n" + "#" * 16_384, "EC2 allows 16384"),
    ],
)
def test_a_script_that_cannot_be_user_data_is_refused(script: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        render(script)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("#!/bin/sh\n", "begins with #!"),
        ("\ufeff#!/bin/sh\n", "begins with #!"),
        ("exit 0\0", "NUL"),
        ("# -----BEGIN PRIVATE KEY-----\n", "contains a private key"),
        ("#" * 12_000, "EC2 allows 16384"),
    ],
)
def test_a_script_that_windows_cannot_run_is_refused(script: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        render_user_data(OperatingSystem.WINDOWS, URL, "p", SHA, boot_script=script)


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_script_for_windows_is_one_line_of_the_user_data(mark: str) -> None:
    """Its own here-strings and tags cannot end this one. PowerShell reads UTF-8 after a byte order mark."""
    script = "$text = @'\r\n</powershell> größe\r\n'@\r\n"
    text = render_user_data(OperatingSystem.WINDOWS, URL, "p", SHA, boot_script=mark + script)
    assert mistakes(text.removeprefix("<powershell>\n").removesuffix("</powershell>\n")) == []
    assert text.count("</powershell>") == 1
    [encoded] = re.findall(r"FromBase64String\('(.*)'\)\)\n", text)
    assert base64.b64decode(encoded).decode() == "\ufeff" + script


def test_the_agent_and_the_user_data_give_a_script_the_same_time(agent: ModuleType) -> None:
    assert agent.BOOT_SCRIPT == BOOT_SCRIPT_SECONDS


def test_eleven_kilobytes_fit() -> None:
    assert render("#!/bin/sh\n" + "#" * 11_000)
