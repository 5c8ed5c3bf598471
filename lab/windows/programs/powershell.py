"""The lab's stand-in for powershell.exe, which Wine does not have: runs a script of a few known statements.

It also lists the machine's devices, and plays the script with which the build of an image installs Python.

Like Windows PowerShell, it exits with 0 at the end of the script, and with 1 after `throw`.
"""

import hashlib
import os
import re
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

USAGE = ["-NoLogo", "-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass", "-File"]
LISTING = ["-NoLogo", "-NoProfile", "-NonInteractive", "-Command"]
DEVICES = Path("C:\\lab\\devices")
"""What the machine's Plug and Play manager lists, if the machine has any device."""

ANY = ssl._create_unverified_context()  # noqa: S323, SLF001 - PowerShell fetches roots on demand
UNKNOWN = 64
"""Exit status for what the lab does not know."""

WRITE = re.compile(r"Write-Output '((?:[^']|'')*)'")
ADD = re.compile(r"Add-Content '([^']+)' '([^']*)'")
CALL = re.compile(r"& ((?:'[^']*' ?)+)")
SLEEP = re.compile(r"Start-Sleep -Seconds (\d+)")
EXIT = re.compile(r"exit (\d+)")
THROW = re.compile(r"throw '([^']*)'")


def run(line: str) -> "int | None":
    """Run a statement. Return the exit status if it ends the script."""
    if found := WRITE.fullmatch(line):
        print(found[1].replace("''", "'"), flush=True)
    elif found := ADD.fullmatch(line):
        with Path(found[1]).open("a", encoding="utf-8") as file:
            file.write(found[2] + "\n")
    elif found := CALL.fullmatch(line):
        subprocess.run(re.findall("'([^']*)'", found[1]), check=False)
    elif found := SLEEP.fullmatch(line):
        time.sleep(float(found[1]))
    elif found := EXIT.fullmatch(line):
        return int(found[1])
    elif found := THROW.fullmatch(line):
        print(found[1], flush=True)
        return 1
    elif line:
        print(f"the lab cannot run this PowerShell: {line}", flush=True)
        return UNKNOWN
    return None


def bring_python() -> int:
    """Do as `bring-python.ps1`, but find Python installed: it runs this program. Return the exit status."""
    with urllib.request.urlopen(os.environ["PYTHON_URL"], timeout=30, context=ANY) as answer:
        found = hashlib.sha256(answer.read()).hexdigest()
    if found != os.environ["PYTHON_SHA256"]:
        print(f"{os.environ['PYTHON_URL']} has the SHA-256 {found}", flush=True)
        return 1
    return 0


def main() -> int:
    """Run the script, or list the devices; return the exit status."""
    *options, script = sys.argv[1:]
    if options == USAGE and Path(script).name == "bring-python.ps1":
        return bring_python()
    if options == LISTING and script.startswith("Get-CimInstance Win32_PnPEntity "):
        print(DEVICES.read_text("utf-8") if DEVICES.exists() else "")
        return 0
    if options != USAGE:
        return UNKNOWN
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    # Windows PowerShell reads UTF-8 only after a byte order mark, and otherwise its code page.
    raw = Path(script).read_bytes()
    text = raw.decode("utf-8-sig" if raw.startswith(b"\xef\xbb\xbf") else "cp1252")
    for line in text.splitlines():
        status = run(line.strip())
        if status is not None:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
