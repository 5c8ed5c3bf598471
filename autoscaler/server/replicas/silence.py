"""Whether the leader answers nothing that this replica passes on, although it leads."""

from autoscaler.model.identifiers import Seconds


class Silence:
    """Failed requests since the last answer. Times are seconds of one clock."""

    def __init__(self, after: Seconds) -> None:
        """The leader is silent once requests have failed for so long."""
        self._after = after
        self._epoch = 0
        self._since: Seconds | None = None
        self._last: Seconds = 0.0

    def note_failure(self, epoch: int, now: Seconds) -> None:
        """Note a request that the leader of this epoch did not answer."""
        if self._since is None or epoch != self._epoch:
            self._epoch, self._since = epoch, now
        self._last = now

    def note_answer(self) -> None:
        """Note a request that was answered."""
        self._since = None

    def lasts(self, epoch: int, now: Seconds) -> bool:
        """Return whether the leader of this epoch is silent.

        A failure counts as long as it took to notice the silence. Then this replica gets requests again, and
        finds out.
        """
        if self._since is None or epoch != self._epoch:
            return False
        return self._last - self._since >= self._after > now - self._last
