"""The operator's boot script in a machine's user data: what it may contain, and the commands that run it.

The script is in the user data, so any job can read it, and it counts towards EC2's limit. On Linux the user
data run it. On Windows they write it to a file, and the agent runs it (`agent/boot/boot_script.py`).
"""

import base64

from autoscaler.model.catalogue import OperatingSystem

BOOT_SCRIPT_SECONDS = 600
"""A script that takes longer is killed. Boot deadlines are 15 minutes by default (docs/configuration.md)."""

_END = "RUNNER_AGENT_BOOT_SCRIPT"

# In a file and not a pipe, so that a background process that the script leaves does not hold up the boot.
# Its end also goes to the console. The agent reports the status, so it starts after a failure, too.
_LINUX = """\
cat > "$etc/boot-script" <<'@END@'
@TEXT@
@END@
chmod 0700 "$etc/boot-script"
log="$root/var/log/runner-agent-boot-script.log"
mkdir -p "$root/var/log"
began=$SECONDS status=0
(umask 022; cd /; exec "${settings[@]}" timeout -k 10 @SECONDS@ "$etc/boot-script") \\
  < /dev/null > "$log" 2>&1 || status=$?
echo "$status $((SECONDS - began))" > "$etc/boot-script.status"
tail -c 2000 "$log"
"""

# In base64, because the script may contain the end of a here-string, and EC2Launch ends its own script at
# `</powershell>`.
_WINDOWS = """\
[IO.File]::WriteAllBytes("$base\\boot-script.ps1", [Convert]::FromBase64String('@BASE64@'))
"""

_BYTE_ORDER_MARK = "\ufeff"
"""Without it, Windows PowerShell reads a script in the machine's own code page and not as UTF-8
(about_Character_Encoding). In UTF-8 it has 3 bytes, so that base64 encodes the script by itself."""


def boot_script_problem(platform: OperatingSystem, text: str) -> tuple[str, str] | None:
    """Return why a boot script cannot be used, and the fix; None if it can."""
    if "PRIVATE KEY" in text:
        fix = "leave it out: every job on the machine can read user data"
        return "contains a private key", fix
    if "\0" in text:
        return "contains a NUL character", "remove it"
    if platform is OperatingSystem.WINDOWS:
        if text.removeprefix(_BYTE_ORDER_MARK).startswith("#!"):
            return "begins with #!, as a script for Linux", "write it in PowerShell, without #!"
        return None
    if not text.startswith("#!"):
        return "does not begin with #! and a program", "write #!/bin/bash in its first line"
    if "\r" in text:
        return "has line ends of Windows", "save it with line ends of Unix (LF)"
    if _END in text.splitlines():
        return f"has a line {_END}, which ends it in the user data", "change that line"
    return None


def boot_script_commands(platform: OperatingSystem, text: str) -> str:
    """Return the part of the user data for a boot script. Raises ValueError."""
    problem = boot_script_problem(platform, text)
    if problem is not None:
        raise ValueError(f"the boot script {problem[0]}; {problem[1]}")
    if platform is OperatingSystem.WINDOWS:
        marked = _BYTE_ORDER_MARK + text.removeprefix(_BYTE_ORDER_MARK)
        return _WINDOWS.replace("@BASE64@", base64.b64encode(marked.encode()).decode())
    commands = _LINUX.replace("@END@", _END).replace("@SECONDS@", str(BOOT_SCRIPT_SECONDS))
    return commands.replace("@TEXT@", text.removesuffix("\n"))


def boot_script_room(platform: OperatingSystem, free: int) -> int:
    """Return the bytes that a boot script may have if the user data without it leave `free` bytes."""
    if platform is OperatingSystem.WINDOWS:
        return (free - len(boot_script_commands(platform, ""))) // 4 * 3
    return free - len(boot_script_commands(platform, "#!")) + len("#!")
