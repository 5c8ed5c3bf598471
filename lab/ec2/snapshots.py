"""Snapshots of images. They remain when their image is deregistered.

Answers DescribeSnapshots and DeleteSnapshot.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from lab.ec2.filters import Filters
from lab.ec2.query import Ec2Error, Tree, answer, element, tag_set, timestamp

FILTERS = frozenset({"description", "owner-id", "snapshot-id", "status", "volume-size"})


@dataclass(slots=True)
class Snapshot:
    """A snapshot of a root volume. `ready_at` is when it is completed, in Unix seconds of lab time."""

    id: str
    size_gb: int
    created_at: float
    ready_at: float
    description: str = ""
    tags: dict[str, str] = field(default_factory=dict)


class Snapshots:
    """The account's snapshots. `user` returns the image that uses a snapshot, or None."""

    def __init__(
        self, account: str, now: Callable[[], float], user: Callable[[str], str | None]
    ) -> None:
        self._account = account
        self._now = now
        self._user = user
        self._by_id: dict[str, Snapshot] = {}

    def add(self, snapshot: Snapshot) -> None:
        """Add the snapshot of an image."""
        self._by_id[snapshot.id] = snapshot

    def left(self) -> tuple[str, ...]:
        """Return the IDs of all snapshots."""
        return tuple(self._by_id)

    def find(self, snapshot_id: str) -> Snapshot:
        """Return the snapshot with this ID. Raises Ec2Error if it does not exist."""
        snapshot = self._by_id.get(snapshot_id)
        if snapshot is None:
            raise Ec2Error(
                "InvalidSnapshot.NotFound", f"The snapshot '{snapshot_id[:60]}' does not exist."
            )
        return snapshot

    def describe(self, params: Tree) -> str:
        """Answer DescribeSnapshots, for snapshots of this account. Raises Ec2Error."""
        filters = Filters(params, FILTERS)
        wanted = params.texts("SnapshotId") or list(self._by_id)
        found = [self.find(one) for one in wanted]
        owners = set(params.texts("Owner") or ["self"])
        if not owners & {"self", self._account}:
            found = []
        chosen = [one for one in found if filters.admit(self._attributes(one), one.tags)]
        return answer("DescribeSnapshots", element("snapshotSet", list(map(self._shown, chosen))))

    def delete(self, params: Tree) -> str:
        """Answer DeleteSnapshot. Raises Ec2Error for the snapshot of a registered image."""
        snapshot = self.find(params.text("SnapshotId"))
        user = self._user(snapshot.id)
        if user is not None:
            raise Ec2Error(
                "InvalidSnapshot.InUse", f"The snapshot {snapshot.id} is currently in use by {user}"
            )
        del self._by_id[snapshot.id]
        return answer("DeleteSnapshot", element("return", True))

    def _status(self, one: Snapshot) -> str:
        return "completed" if self._now() >= one.ready_at else "pending"

    def _attributes(self, one: Snapshot) -> dict[str, str]:
        return {
            "description": one.description,
            "owner-id": self._account,
            "snapshot-id": one.id,
            "status": self._status(one),
            "volume-size": str(one.size_gb),
        }

    def _shown(self, one: Snapshot) -> dict[str, object]:
        ready = self._status(one) == "completed"
        return {
            "snapshotId": one.id,
            "status": self._status(one),
            "startTime": timestamp(one.created_at),
            "progress": "100%" if ready else "0%",
            "ownerId": self._account,
            "volumeSize": one.size_gb,
            "description": one.description,
            "encrypted": False,
            "tagSet": tag_set(one.tags),
        }
