"""The fleet.yaml that Terraform writes."""

import subprocess
import sys
from pathlib import Path


def check(file: Path) -> tuple[int, str]:
    """Run `autoscaler check --skip-files`. Return its exit status and its output."""
    command = [sys.executable, "-m", "autoscaler.cli", "check", "--skip-files", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr
