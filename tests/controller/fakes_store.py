"""The simulator's store, under the name that tests know it by."""

from autoscaler.simulator.world.store import INSTALLATION as INSTALLATION
from autoscaler.simulator.world.store import MemoryStore as FakeStore

__all__ = ["INSTALLATION", "FakeStore"]
