"""Writes what a supporter needs to see into one file, without secrets: the checks, fleet.yaml and the log."""

import io
import json
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from autoscaler.model.identifiers import Seconds
from autoscaler.observability.redaction import REDACTED, is_secret_key, remove_secrets
from autoscaler.setup.private_files import write_new

MOST_LINES = 5000
MAX_LOG = 4 * 1024 * 1024
"""The newest lines of the controller's log that are exported, and their bytes."""

_LOG = ("journalctl", "-u", "autoscaler", "--no-pager", "-o", "cat", "-n", str(MOST_LINES))
_LOG_WITHIN: Seconds = 10.0


def export(path: Path, checks: Mapping[str, Any], fleet: bytes) -> None:
    """Write a zip for its owner alone. Raises NotWrittenError, also if the file exists."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("checks.json", remove_secrets(json.dumps(checks, indent=2)))
        archive.writestr("fleet.yaml", without_secrets(fleet.decode(errors="replace")))
        archive.writestr("controller.log", remove_secrets(controller_log()))
    write_new(path, made.getvalue())


def without_secrets(text: str) -> str:
    """Return a fleet.yaml without comments, values of secret keys, and values of environment variables."""
    return yaml.safe_dump(_cleaned("", yaml.safe_load(text)), sort_keys=False, allow_unicode=True)


def controller_log(command: tuple[str, ...] = _LOG) -> str:
    """Return the newest part of the controller's log in systemd's journal, or why there is none."""
    try:
        done = subprocess.run(  # noqa: S603 - a command of ours
            command, capture_output=True, timeout=_LOG_WITHIN, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no log: {command[0]}: {error}\n"
    if done.returncode:
        return f"no log: {command[0]}: {done.stderr[-500:].decode(errors='replace')}\n"
    return done.stdout[-MAX_LOG:].decode(errors="replace")


def _cleaned(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _cleaned(str(name), one) for name, one in value.items()}
    if isinstance(value, list):
        return [_cleaned(key, one) for one in value]
    # Names of files are no secrets. `value` is that of an environment variable in a pod's overlay.
    if key == "value" or (is_secret_key(key) and not key.endswith("_file")):
        return REDACTED
    return remove_secrets(value) if isinstance(value, str) else value
