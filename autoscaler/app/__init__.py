"""The composition root: the only room that names concrete classes, and how they are put together."""

from autoscaler.app.running import serve
from autoscaler.app.translation import offering_problems

__all__ = ["offering_problems", "serve"]
