"""The HTTP server: puts endpoints on listeners, starts and stops them.

`listen` serves all endpoints. If `webhook_listen` is set, that address alone serves /webhook.
"""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from aiohttp import web

from autoscaler.model.identifiers import Address, Seconds
from autoscaler.server.listening.listener import KeptSockets, Listener
from autoscaler.server.listening.passed_on import Secret, no_secret
from autoscaler.server.listening.settings import ServerSettings


class Endpoint(Protocol):
    """Routes that can be added to a listener, with functions that the listener calls when it stops."""

    def add_to(self, app: web.Application, patience: Seconds, /) -> None:
        """Add routes and shutdown hooks. `patience` limits work that outlasts its request, in seconds."""


class Serving:
    """Both listeners, as an async context manager, or with `start` and `stop`."""

    def __init__(
        self,
        settings: ServerSettings,
        webhook: Endpoint | None,
        others: Sequence[Endpoint],
        kept: KeptSockets | None = None,
        secret: Secret = no_secret,
    ) -> None:
        """`webhook` is None if GitHub sends no webhooks: /webhook then answers 404.

        `kept` has the sockets of the server that this one continues, if there is one. With `secret`, other
        replicas prove that they pass on a client's request.
        """
        kept = kept if kept is not None else KeptSockets()
        self._kept = kept
        of_github = [] if webhook is None else [webhook]
        main = [*of_github, *others] if settings.webhook_listen is None else list(others)
        self._main = Listener(
            _application(main, settings.shutdown),
            ("listen", settings.listen),
            settings.tls,
            settings.max_connections,
            settings,
            kept,
            secret,
        )
        self._webhook = self._main
        if settings.webhook_listen is not None:
            self._webhook = Listener(
                _application(of_github, settings.shutdown),
                ("webhook_listen", settings.webhook_listen),
                settings.webhook_tls,
                settings.webhook_max_connections,
                settings,
                kept,
                secret,
            )

        self._listeners = list(dict.fromkeys([self._main, self._webhook]))

    @property
    def address(self) -> Address:
        """The address of the main listener."""
        return self._main.address

    @property
    def webhook_address(self) -> Address:
        """The address that serves /webhook."""
        return self._webhook.address

    async def start(self) -> None:
        """Listen on all addresses.

        Raises: ListenError. Then no address is bound.
        """
        self._kept.make_room([one.place for one in self._listeners])
        try:
            for listener in self._listeners:
                await listener.start()
        except BaseException:
            await self.stop()
            raise
        for listener in self._listeners:
            listener.accept()

    def keep_listening(self) -> None:
        """Have the addresses stay bound after `stop`, for the server that continues this one."""
        for listener in self._listeners:
            listener.keep_listening()

    async def stop(self) -> None:
        """Stop listening, answer unfinished requests (long polls at once), and close. Idempotent."""
        await asyncio.gather(*(one.stop() for one in self._listeners))

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        await self.stop()


def _application(endpoints: Sequence[Endpoint], patience: Seconds) -> web.Application:
    app = web.Application()
    for endpoint in endpoints:
        endpoint.add_to(app, patience)
    return app
