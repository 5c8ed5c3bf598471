"""Parses what lab machines are given: the controller's settings, and lab JIT configurations."""

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The controller that a machine calls, according to its user data. `ca` is PEM text."""

    url: str
    provider: str
    ca: str | None


@dataclass(frozen=True, slots=True)
class LabRunner:
    """A lab JIT configuration (see `machine_host`)."""

    server: str
    runner_id: str
    token: str
    scale: float

    def __repr__(self) -> str:
        """Return a representation without the token."""
        return f"LabRunner(runner_id={self.runner_id!r})"


def controller_settings(user_data: str) -> ControllerSettings:
    """Return the settings in the line of JSON that the user data of both platforms write to a file.

    Raises ValueError if there is no such line.
    """
    for line in user_data.splitlines():
        if not line.startswith("{"):
            continue
        value = _object(line)
        if isinstance(value.get("controller"), str) and isinstance(value.get("provider"), str):
            return ControllerSettings(value["controller"], value["provider"], value.get("ca"))
    raise ValueError("the user data names no controller")


def lab_runner(jit_config: str) -> LabRunner:
    """Decode a lab JIT configuration. Raises ValueError if it is not one."""
    try:
        value = _object(base64.b64decode(jit_config, validate=True).decode())
        server, token = str(value["server"]), str(value["token"])
        return LabRunner(server, str(value["runner_id"]), token, float(value["scale"]))
    except (binascii.Error, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ValueError("not a lab JIT configuration") from error


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
