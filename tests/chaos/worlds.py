"""The kinds of worlds that seeds play."""

from enum import StrEnum

from autoscaler.simulator.world.schedule import Schedule
from tests.chaos.mix import schedule_of
from tests.chaos.replica_mix import schedule_of_replicas


class Worlds(StrEnum):
    """Which worlds: the same seed gives another world in each of them."""

    EC2 = "ec2"
    CLUSTERS = "clusters"  # with Kubernetes clusters, every other with EC2
    REPLICAS = "replicas"  # two or three replicas of the controller on one store

    def schedule(self, seed: int) -> Schedule:
        """Return the schedule of a seed, always the same."""
        if self is Worlds.REPLICAS:
            return schedule_of_replicas(seed)
        return schedule_of(seed, clusters=self is Worlds.CLUSTERS)
