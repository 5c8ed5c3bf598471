"""The agent's log: lines on standard error, which the service's journal keeps."""

from __future__ import annotations

import sys


def log_line(text: str) -> None:
    """Write one line to the service's journal. Never a secret, never a job's output."""
    sys.stderr.write(f"runner-agent: {text}\n")
    sys.stderr.flush()
