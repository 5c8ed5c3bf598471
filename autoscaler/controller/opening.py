"""When what a provider offers is for sale: once its machines have been listed since the start.

What runs there counts in the caps, so nothing is launched before it is known. It never decides what
is launched, and one provider that cannot be opened keeps none of the others from being.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection

from autoscaler.controller.ports.clock import Clock
from autoscaler.model.identifiers import ProviderName, Seconds

AGAIN_FIRST: Seconds = 5.0
AGAIN_RAREST: Seconds = 300.0

LISTED_TOGETHER: Seconds = 30.0
"""For how long what one offers waits for the others' lists: any may prove that the store is old."""


READ_AGAIN_EVERY: Seconds = 86400.0
"""What a provider sells changes in months."""


class Opening:
    """`open_and_list` says whether it could, and raises nothing; `sell` gets all that are open.

    `opened` is to read: whose machines are known.
    """

    def __init__(
        self,
        providers: Collection[ProviderName],
        open_and_list: Callable[[ProviderName], Awaitable[bool]],
        sell: Callable[[Collection[ProviderName]], None],
        clock: Clock,
    ) -> None:
        self.opened: set[ProviderName] = set()
        self._providers = providers
        self._open_and_list = open_and_list
        self._sell = sell
        self._clock = clock
        self._all_listed = asyncio.Event()

    @property
    def left(self) -> list[ProviderName]:
        """Those that could not be opened and listed yet."""
        return sorted(set(self._providers) - self.opened)

    async def run(self) -> None:
        """Open all, each until it could be."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._wait_no_longer())
            for name in self._providers:
                group.create_task(self._open(name))

    async def read_daily(self, read: Callable[[ProviderName], Awaitable[None]]) -> None:
        """Have each open provider read what it sells once a day, and sell that from then on.

        `read` raises nothing. Never ends.
        """
        while True:
            await self._clock.sleep(READ_AGAIN_EVERY)
            for name in sorted(self.opened):
                await read(name)
            self._sell(self.opened)

    async def _open(self, name: ProviderName) -> None:
        wait = AGAIN_FIRST
        while not await self._open_and_list(name):
            await self._clock.sleep(wait)
            wait = min(2.0 * wait, AGAIN_RAREST)
        self.opened.add(name)
        if not self.left:
            self._all_listed.set()
        await self._all_listed.wait()
        self._sell(self.opened)

    async def _wait_no_longer(self) -> None:
        await self._clock.sleep(LISTED_TOGETHER)
        self._all_listed.set()
