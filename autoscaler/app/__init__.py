"""The composition root: the only room that names concrete classes, and how they are put together."""

from autoscaler.app.preflight import load_for_service, preflight
from autoscaler.app.running import serve

__all__ = ["load_for_service", "preflight", "serve"]
