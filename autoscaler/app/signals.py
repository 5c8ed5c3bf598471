"""The signals of the process: SIGTERM and SIGINT stop the controller, SIGHUP reloads its configuration."""

import asyncio
import signal
from collections.abc import Callable


class Signals:
    """Stops the controller that runs, or one that is about to run because it starts again."""

    def __init__(self) -> None:
        self.stopped = False
        """Whether SIGTERM or SIGINT has come."""
        self._stop: Callable[[], None] = lambda: None

    def use(self, stop: Callable[[], None], reload: Callable[[], None]) -> None:
        """Call `stop` and `reload` for signals from now on. If the process is to stop already: at once."""
        self._stop = stop
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._note_stop)
        loop.add_signal_handler(signal.SIGHUP, reload)
        if self.stopped:
            stop()

    def _note_stop(self) -> None:
        self.stopped = True
        self._stop()
