"""The simulator's store, under the name that the tests use."""

from autoscaler.simulator.world.controller.store import INSTALLATION as INSTALLATION
from autoscaler.simulator.world.controller.store import MemoryStore as FakeStore

__all__ = ["INSTALLATION", "FakeStore"]
