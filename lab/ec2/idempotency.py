"""Client tokens: a repeated request gets the first answer and has no further effect."""

import asyncio
from collections.abc import Awaitable, Callable

from lab.ec2.query import Ec2Error

MAX_TOKEN = 64


class ClientTokens:
    """All used tokens, with their parameters and answers."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], tuple[dict[str, str], asyncio.Future[str]]] = {}

    async def once(self, fields: dict[str, str], work: Callable[[], Awaitable[str]]) -> str:
        """Carry out a request, unless its token already has an answer. Raises Ec2Error.

        The token of a request that failed as a whole can be used again.
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
        # In its own task, because EC2 goes on if the caller disconnects.
        running = asyncio.create_task(self._run(key, work))
        self._first[key] = (fields, running)
        return await asyncio.shield(running)

    async def _run(self, key: tuple[str, str], work: Callable[[], Awaitable[str]]) -> str:
        try:
            return await work()
        except Ec2Error:
            del self._first[key]
            raise
