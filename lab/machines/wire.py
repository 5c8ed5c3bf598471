"""HTTP requests and time of the machines of a crowd, and the errors that say what a machine does next."""

import asyncio
from dataclasses import dataclass
from typing import Any, NamedTuple

import aiohttp


class TryAgain(Exception):  # noqa: N818 - an instruction, as in the agent
    """Try again later: after `retry_after` lab seconds if that is not None."""

    def __init__(self, why: str, retry_after: float | None = None) -> None:
        super().__init__(why)
        self.retry_after = retry_after


class AttestAgain(Exception):  # noqa: N818
    """Attest again, with a fresh proof of identity."""


class PowerOff(Exception):  # noqa: N818
    """Power the machine off."""


class ExitCause(NamedTuple):
    """How a runner ended, as the agent reports it (docs/bootstrap.md, "Exit reasons")."""

    reason: str
    detail: str


@dataclass(slots=True)
class Wire:
    """The connections that all machines of a crowd share. `scale` is lab seconds per real second."""

    session: aiohttp.ClientSession
    scale: float

    async def sleep(self, seconds: float) -> None:
        """Sleep for lab seconds."""
        await asyncio.sleep(max(0.0, seconds) / self.scale)

    def now(self) -> float:
        """Return lab seconds since an arbitrary moment."""
        return asyncio.get_running_loop().time() * self.scale

    async def post(
        self, url: str, token: str, body: dict[str, Any], **options: Any
    ) -> tuple[int, dict[str, Any], float | None]:
        """Return the answer's status, JSON object and Retry-After. Raises TryAgain if no answer came."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            async with self.session.post(url, json=body, headers=headers, **options) as answer:
                text: Any = None
                if answer.content_type == "application/json":
                    text = await answer.json()
                after = answer.headers.get("Retry-After", "")
                delay = min(300.0, float(after)) if after.isdigit() else None
                return answer.status, text if isinstance(text, dict) else {}, delay
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise TryAgain(type(error).__name__) from error
