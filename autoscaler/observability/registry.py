"""Creates metrics in a registry of their own, and renders them."""

import platform
from collections.abc import Iterable, Iterator

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


class Registry:
    """Metrics with the prefix `autoscaler_`, and those of the process."""

    def __init__(self, version: str) -> None:
        """`version` is the version of this program."""
        self._registry = CollectorRegistry()
        build = Info(
            "autoscaler_build", "Version of this program and of Python.", registry=self._registry
        )
        build.info({"version": version, "python": platform.python_version()})
        ProcessCollector(registry=self._registry)

    def render(self) -> Iterator[bytes]:
        """Yield all metrics in Prometheus' text format, one metric at a time."""
        for metric in self._registry.collect():
            yield generate_latest(_WithoutCreated(metric))

    def gauge(self, name: str, text: str, labels: tuple[str, ...]) -> Gauge:
        """Return a new gauge."""
        return Gauge(f"autoscaler_{name}", text, labels, registry=self._registry)

    def counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        """Return a new counter. The library adds `_total` to its name."""
        return Counter(f"autoscaler_{name}", text, labels, registry=self._registry)

    def histogram(
        self, name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...]
    ) -> Histogram:
        """Return a new histogram with these upper bounds, and one without a bound."""
        return Histogram(
            f"autoscaler_{name}", text, labels, registry=self._registry, buckets=buckets
        )


class _WithoutCreated(Collector):
    """A metric without its `_created` samples, a third of all series, which nothing here uses.

    The library can only disable them for the whole process.
    """

    def __init__(self, metric: Metric) -> None:
        metric.samples = [s for s in metric.samples if not s.name.endswith("_created")]
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)
