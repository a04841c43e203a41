"""The values of metrics at one moment."""

from __future__ import annotations

from prometheus_client.registry import Collector

from service.metric_registry import NAMESPACE

# By the type of a metric, what the names of its series add to its own.
_SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "info": ("_info",)}


class MetricsSnapshot:
    """The values of all series. They are collected once: a registry itself does so for every single value."""

    def __init__(self, collector: Collector) -> None:
        metrics = list(collector.collect())
        self._names = {metric.name + suffix for metric in metrics for suffix in _SUFFIXES.get(metric.type, ("",))}
        self._values = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for metric in metrics
            for sample in metric.samples
        }

    def value(self, name: str, **labels: str) -> float:
        """The value of the series fpet_`name` with these labels; 0 if the metric has no series with them.

        Raises:
            KeyError: if there is no metric whose series have that name.
        """
        if (full_name := f"{NAMESPACE}_{name}") not in self._names:
            raise KeyError(full_name)
        return self._values.get((full_name, frozenset(labels.items())), 0.0)
