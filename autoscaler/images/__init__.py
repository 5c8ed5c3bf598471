"""The versions of what images contain, and the commands that check and print them."""

from autoscaler.images.commands import images

__all__ = ["images"]
