"""The signals of the process: SIGTERM and SIGINT stop the controller, SIGHUP reloads its configuration."""

import asyncio
import signal
from collections.abc import Callable


class Signals:
    """Passes signals on to the controller that runs. Until one runs, it remembers SIGHUP."""

    def __init__(self, process: asyncio.Task[None]) -> None:
        """Receive signals from now on. `process` is cancelled if it is to stop while no controller runs."""
        self._process = process
        self.stopped = False
        """Whether SIGTERM or SIGINT has come."""
        self._reload_wanted = False
        self._stop: Callable[[], None] | None = None
        self._reload: Callable[[], None] | None = None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._note_stop)
        loop.add_signal_handler(signal.SIGHUP, self._note_reload)

    def use(self, stop: Callable[[], None], reload: Callable[[], None]) -> None:
        """Call `stop` and `reload` for signals from now on, and at once for those that came before."""
        self._stop, self._reload = stop, reload
        if self.stopped:
            stop()
        elif self._reload_wanted:
            self._reload_wanted = False
            reload()

    def use_none(self) -> None:
        """Call nothing until a controller runs."""
        self._stop = self._reload = None

    def reload_later(self) -> None:
        """Remember a SIGHUP for the controller that runs next."""
        self._reload_wanted = True

    def _note_stop(self) -> None:
        self.stopped = True
        if self._stop is not None:
            self._stop()
        else:
            self._process.cancel()

    def _note_reload(self) -> None:
        if self._reload is None:
            self.reload_later()
        else:
            self._reload()
