"""Opens each provider for launches once its machines have been listed since the start.

Running machines count against the limits, so nothing is launched before they are known. A provider that
cannot be opened does not delay the others for long.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection

from autoscaler.controller.ports.clock import Clock
from autoscaler.model.backoff import Backoff
from autoscaler.model.identifiers import ProviderName, Seconds

AGAIN = Backoff(5.0, 60.0)

LISTED_TOGETHER: Seconds = 30.0
"""How long a listed provider waits for the other providers' lists, which may prove that the store is a
restored backup."""

READ_AGAIN_EVERY: Seconds = 86400.0
"""Interval between two reads of a provider's offerings, which change over months."""


class ProviderOpener:
    """Opens providers. `opened` are those whose machines are known.

    `open_and_list` returns whether it succeeded, and raises nothing. `use_offerings` gets all open providers.
    """

    def __init__(
        self,
        providers: Collection[ProviderName],
        open_and_list: Callable[[ProviderName], Awaitable[bool]],
        use_offerings: Callable[[Collection[ProviderName]], None],
        clock: Clock,
    ) -> None:
        self.opened: set[ProviderName] = set()
        self._providers = providers
        self._open_and_list = open_and_list
        self._use_offerings = use_offerings
        self._clock = clock
        self._all_listed = asyncio.Event()

    @property
    def unopened(self) -> list[ProviderName]:
        """The providers that are not opened and listed yet."""
        return sorted(set(self._providers) - self.opened)

    async def run(self) -> None:
        """Open all providers that are not open. Retries each until it succeeds."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._wait_no_longer())
            for name in self.unopened:
                group.create_task(self._open(name))

    async def read_daily(self, read: Callable[[ProviderName], Awaitable[None]]) -> None:
        """Read the offerings of each open provider once a day, and use them from then on.

        `read` raises nothing. Runs until cancelled.
        """
        while True:
            await self._clock.sleep(READ_AGAIN_EVERY)
            for name in sorted(self.opened):
                await read(name)
            self._use_offerings(self.opened)

    async def _open(self, name: ProviderName) -> None:
        failures = 0
        while not await self._open_and_list(name):
            await self._clock.sleep(AGAIN.delay(failures))
            failures += 1
        self.opened.add(name)
        if not self.unopened:
            self._all_listed.set()
        await self._all_listed.wait()
        self._use_offerings(self.opened)

    async def _wait_no_longer(self) -> None:
        await self._clock.sleep(LISTED_TOGETHER)
        self._all_listed.set()
