"""What lab machines read out of what they are given: controller settings, lab JIT configurations."""

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Whom a machine calls, as its user data says. `ca` is PEM text."""

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
        """Without the token."""
        return f"LabRunner(runner_id={self.runner_id!r})"


def controller_settings(user_data: str) -> ControllerSettings:
    """Find the line of JSON that the user data of either platform writes to the controller file.

    Raises ValueError where there is none.
    """
    for line in user_data.splitlines():
        if not line.startswith("{"):
            continue
        value = _object(line)
        if isinstance(value.get("controller"), str) and isinstance(value.get("provider"), str):
            return ControllerSettings(value["controller"], value["provider"], value.get("ca"))
    raise ValueError("the user data names no controller")


def lab_runner(jit_config: str) -> LabRunner:
    """Decode a lab JIT configuration. Raises ValueError."""
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
