"""Renders the user data of a machine: a script that starts the agent at the first boot.

An operator's boot script is part of it, so any job can read the script, and it counts towards EC2's limit. On
Linux the user data run it. On Windows they write it to a file, and the agent runs it.

The script contains no secret, because any job can read it through the metadata service. Its first line
schedules a shutdown, which the agent cancels: a machine whose agent never starts powers off.

The lab runs the Linux script unchanged, with `RUNNER_AGENT_ROOT` as the prefix of its paths, and with
replacements for `shutdown` and `systemctl`. tests/ami runs it as it is, under cloud-init and systemd. Tests
parse the Windows script, and run the command of its task under Wine. They do not run its PowerShell.
"""

import base64
import json
import re

from autoscaler.model.catalogue import OperatingSystem

BOOT_SCRIPT_SECONDS = 600
"""A script that takes longer is killed. Boot deadlines are 15 minutes by default (docs/configuration.md)."""

_END = "RUNNER_AGENT_BOOT_SCRIPT"

# In a file and not a pipe, so that a background process that the script leaves does not hold up the boot.
# Its end also goes to the console. The agent reports the status, so it starts after a failure, too.
_LINUX_SCRIPT = """\
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
_WINDOWS_SCRIPT = """\
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
        return _WINDOWS_SCRIPT.replace("@BASE64@", base64.b64encode(marked.encode()).decode())
    commands = _LINUX_SCRIPT.replace("@END@", _END).replace("@SECONDS@", str(BOOT_SCRIPT_SECONDS))
    return commands.replace("@TEXT@", text.removesuffix("\n"))


def boot_script_room(platform: OperatingSystem, free: int) -> int:
    """Return the bytes that a boot script may have if the user data without it leave `free` bytes."""
    if platform is OperatingSystem.WINDOWS:
        return (free - len(boot_script_commands(platform, ""))) // 4 * 3
    return free - len(boot_script_commands(platform, "#!")) + len("#!")


MAX_BYTES = 16 * 1024
"""EC2's limit for user data before base64 (EC2 User Guide, "Run commands when you launch")."""

_URL = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+(/[A-Za-z0-9._~/\-]*)?\Z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")

# In Python, because every image has it for the agent, and not every image has curl. The downloaded file
# runs only if its hash is right.
_FETCH = """\
import json, ssl, sys, urllib.request
with open(sys.argv[1]) as file:
    controller = json.load(file)
url = controller['controller'] + '/bootstrap/agent.py?sha256=@SHA256@'
context = ssl.create_default_context(cadata=controller['ca'])
with urllib.request.urlopen(url, timeout=30, context=context) as answer:
    text = answer.read(1 << 20)
with open(sys.argv[2], 'wb') as file:
    file.write(text)"""

# KillMode=mixed: a shutdown, such as spot's, signals only the agent, which stops the runner within 30 s.
# The unit's default would end the steps of a job at once.
# After: a shutdown stops the agent first. Otherwise Docker would end the job's containers.
# EnvironmentFile: proxies. The loop in the script reads the file as systemd does, without expansion.
# SuccessAction, FailureAction: the machine powers off when the service ends or fails to start.
# OOMPolicy, OOMScoreAdjust: when memory is short, the kernel ends processes of the job, whose score the
# agent raises, and that does not end the service.
# RefuseManualStop: a job that stops all services with sudo must not power off its machine. A shutdown
# still stops the unit.
# Without systemd (sd_booted(3)) there is no boot service, so the script runs the agent in the background.
_LINUX = """\
#!/bin/bash
shutdown -P +20  # the agent cancels it
set -eu
umask 077
root="${RUNNER_AGENT_ROOT:-}"
etc="$root/etc/runner-agent"
agent="$root/opt/runner-agent/agent.py"
mkdir -p "$etc" "$root/opt/runner-agent"
settings=(env)
if [ -r "$etc/environment" ]; then
  while IFS= read -r line || [ -n "$line" ]; do
    name="${line%%=*}" value="${line#*=}"
    case "$value" in \\"*\\" | \\'*\\') value="${value:1:-1}" ;; esac
    if [[ "$line" =~ ^[A-Za-z_][A-Za-z0-9_]*= ]]; then
      settings+=("$name=$value")
    fi
  done < "$etc/environment"
fi
cat > "$etc/controller.json" <<'JSON'
@CONTROLLER@
JSON
cat > "$etc/fetch.py" <<'PYTHON'
@FETCH@
PYTHON
rm -f "$etc/boot-script.status"
@BOOT_SCRIPT@genuine() { echo "@SHA256@  $1" | sha256sum --check --status 2> /dev/null; }
if ! genuine "$agent"; then
  until "${settings[@]}" python3 -I "$etc/fetch.py" "$etc/controller.json" "$agent.new" &&
    genuine "$agent.new"; do
    sleep $((3 + RANDOM % 5))
  done
  mv "$agent.new" "$agent"
fi
if [ -d "$root/run/systemd/system" ]; then
  cat > "$root/etc/systemd/system/runner-agent.service" <<UNIT
[Unit]
After=network-online.target docker.service containerd.service
Wants=network-online.target
RefuseManualStop=true
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
EnvironmentFile=-$etc/environment
ExecStart=/usr/bin/env python3 -I -S $agent --host-file $etc/host.json
ExecStopPost=/usr/bin/env shutdown -P now
KillMode=mixed
TimeoutStopSec=40
OOMPolicy=continue
OOMScoreAdjust=-900
TasksMax=infinity
LimitNOFILE=1048576
[Install]
WantedBy=multi-user.target
UNIT
  systemctl daemon-reload
  systemctl enable runner-agent.service
  systemctl start --no-block runner-agent.service
else
  ("${settings[@]}" python3 -I -S "$agent" --host-file "$etc/host.json" || true; shutdown -P now) &
fi
"""

# The task runs at every boot as SYSTEM. When the agent ends, cmd runs the shutdown. Windows refuses it (1190)
# while the one of the first line stands, which an agent that does not start has not cancelled.
_WINDOWS = """\
<powershell>
shutdown.exe /s /t 2400 /c 'scheduled at boot; the agent cancels it'
$ErrorActionPreference = 'Stop'
$base = "$env:ProgramData\\runner-agent"
$python = 'C:\\runner-agent\\python\\python.exe'
$agent = "$base\\agent.py"
New-Item -ItemType Directory -Force $base | Out-Null
icacls.exe $base /inheritance:r /grant '*S-1-5-18:(OI)(CI)F' '*S-1-5-32-544:(OI)(CI)F' | Out-Null
Remove-Item -Force "$base\\boot-script.*"
@'
@CONTROLLER@
'@ | Set-Content -Encoding Ascii "$base\\controller.json"
@'
@FETCH@
'@ | Set-Content -Encoding Ascii "$base\\fetch.py"
@BOOT_SCRIPT@function Test-Genuine($file) {
  (Test-Path $file) -and ((Get-FileHash -Algorithm SHA256 $file).Hash -eq '@SHA256@')
}
if (Test-Genuine 'C:\\runner-agent\\agent.py') { Copy-Item 'C:\\runner-agent\\agent.py' $agent }
while (-not (Test-Genuine $agent)) {
  & $python -I "$base\\fetch.py" "$base\\controller.json" $agent
  if (-not (Test-Genuine $agent)) { Start-Sleep -Seconds (Get-Random -Minimum 3 -Maximum 8) }
}
$run = "/c `"`"$python`" -I -S `"$agent`" & shutdown.exe /a & shutdown.exe /s /f /t 0`""
$action = New-ScheduledTaskAction -Execute 'cmd.exe' -Argument $run
$trigger = New-ScheduledTaskTrigger -AtStartup
$who = New-ScheduledTaskPrincipal -UserId 'SYSTEM' -LogonType ServiceAccount -RunLevel Highest
$how = New-ScheduledTaskSettingsSet -ExecutionTimeLimit 0 -Priority 4
Register-ScheduledTask -Force runner-agent -Action $action -Trigger $trigger -Principal $who -Settings $how
Start-ScheduledTask runner-agent
</powershell>
"""

_TEXTS = {OperatingSystem.LINUX: _LINUX, OperatingSystem.WINDOWS: _WINDOWS}


def render_user_data(
    platform: OperatingSystem,
    controller_url: str,
    provider: str,
    agent_sha256: str,
    ca_pem: str | None = None,
    boot_script: str | None = None,
) -> str:
    """Return the user data of a machine, as text, not encoded.

    `controller_url` is the controller's URL without a query, `provider` the provider's name in the
    configuration, `agent_sha256` the hash (hex) of the agent to download and run, `ca_pem` the CA
    certificates for the controller's URL (None: the system's), `boot_script` the text of a script that runs
    before the agent attests (None: none). Raises ValueError if a value has unsafe characters, or if the text
    is longer than EC2 allows.
    """
    url = controller_url.rstrip("/")
    if not _URL.match(url):
        raise ValueError(f"not a plain http or https URL: {controller_url!r}")
    if not _NAME.match(provider):
        raise ValueError(f"not a provider's name: {provider!r}")
    if not _SHA256.match(agent_sha256):
        raise ValueError("agent_sha256 is not 64 lower-case hexadecimal digits")
    if ca_pem is not None and "PRIVATE KEY" in ca_pem:
        raise ValueError("the CA file contains a private key; leave only certificates in it")
    controller = json.dumps({"controller": url, "provider": provider, "ca": ca_pem})
    text = _TEXTS[platform].replace("@FETCH@", _FETCH).replace("@SHA256@", agent_sha256)
    text = text.replace("@CONTROLLER@", controller)
    # Last, because it may contain any text.
    script = boot_script_commands(platform, boot_script) if boot_script is not None else ""
    text = text.replace("@BOOT_SCRIPT@", script)
    if len(text.encode()) > MAX_BYTES:
        raise ValueError(f"user data of {len(text.encode())} bytes; EC2 allows {MAX_BYTES}")
    return text
