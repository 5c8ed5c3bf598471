"""The simulator's store, under the name that the tests use."""

from autoscaler.simulator.world.store import INSTALLATION as INSTALLATION
from autoscaler.simulator.world.store import MemoryStore as FakeStore

__all__ = ["INSTALLATION", "FakeStore"]
