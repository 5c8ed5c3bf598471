"""The operator's boot script in a machine's user data: what it may contain, and the commands that run it.

The script is in the user data as it is, so any job can read it, and it counts towards EC2's limit.
"""

BOOT_SCRIPT_SECONDS = 600
"""A script that takes longer is killed. Boot deadlines are 15 minutes by default (docs/configuration.md)."""

_END = "RUNNER_AGENT_BOOT_SCRIPT"

# In a file and not a pipe, so that a background process that the script leaves does not hold up the boot.
# Its end also goes to the console. The agent reports the status, so it starts after a failure, too.
_COMMANDS = """\
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


def boot_script_problem(text: str) -> tuple[str, str] | None:
    """Return why a boot script cannot be used, and the fix; None if it can."""
    if "PRIVATE KEY" in text:
        fix = "leave it out: every job on the machine can read user data"
        return "contains a private key", fix
    if not text.startswith("#!"):
        return "does not begin with #! and a program", "write #!/bin/bash in its first line"
    if "\r" in text:
        return "has line ends of Windows", "save it with line ends of Unix (LF)"
    if "\0" in text:
        return "contains a NUL character", "remove it"
    if _END in text.splitlines():
        return f"has a line {_END}, which ends it in the user data", "change that line"
    return None


def boot_script_commands(text: str) -> str:
    """Return the part of the Linux user data that runs a boot script. Raises ValueError."""
    problem = boot_script_problem(text)
    if problem is not None:
        raise ValueError(f"the boot script {problem[0]}; {problem[1]}")
    commands = _COMMANDS.replace("@END@", _END).replace("@SECONDS@", str(BOOT_SCRIPT_SECONDS))
    return commands.replace("@TEXT@", text.removesuffix("\n"))
