"""The composition root: the only package that creates and connects concrete classes."""

from autoscaler.app.preflight import load_for_service, preflight
from autoscaler.app.running import serve

__all__ = ["load_for_service", "preflight", "serve"]
