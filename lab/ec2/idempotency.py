"""Client tokens: a repeated request is answered as it was the first time, and does nothing more.

Decides whether a request is a repetition. Never what it does.
"""

import asyncio
from collections.abc import Awaitable, Callable

from lab.ec2.query import Ec2Error

MAX_TOKEN = 64


class ClientTokens:
    """Every token ever used, with the parameters and the answer that it stands for."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], tuple[dict[str, str], asyncio.Future[str]]] = {}

    async def once(self, fields: dict[str, str], work: Callable[[], Awaitable[str]]) -> str:
        """Do the work of a request, unless its token has had its answer. Raises Ec2Error.

        A request that failed as a whole leaves its token free.
        """
        token = fields.get("ClientToken", "")
        if not token:
            return await work()
        if len(token) > MAX_TOKEN or not token.isascii():
            raise Ec2Error("InvalidParameterValue", "ClientToken is limited to 64 ASCII characters")
        key = (fields["Action"], token)
        first = self._first.get(key)
        if first is not None:
            if first[0] != fields:
                raise Ec2Error(
                    "IdempotentParameterMismatch",
                    "The client token was used before with other parameters",
                )
            return await asyncio.shield(first[1])
        # A task of its own: the caller may hang up, EC2 goes on.
        running = asyncio.create_task(self._run(key, work))
        self._first[key] = (fields, running)
        return await asyncio.shield(running)

    async def _run(self, key: tuple[str, str], work: Callable[[], Awaitable[str]]) -> str:
        try:
            return await work()
        except Ec2Error:
            del self._first[key]
            raise
