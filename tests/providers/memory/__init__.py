"""A provider in memory, as small as a provider can be: one folder, and one line that registers it."""

from autoscaler.providers.registry import PROVIDERS

REGISTERED = (*PROVIDERS, "tests.providers.memory.kind:MemoryKind")
"""The registry with the line of this provider."""
