"""The registry of the service's metrics, all of whose names begin alike."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

NAMESPACE = "fpet"

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class MetricRegistry(CollectorRegistry):
    """Makes metrics with the names fpet_`name`, and collects them; text: their help; labels: names of labels."""

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """A new counter, of whose series the names end in `_total`."""
        return Counter(name, text, labels, namespace=NAMESPACE, registry=self)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """A new gauge."""
        return Gauge(name, text, labels, namespace=NAMESPACE, registry=self)

    def histogram(self, name: str, text: str, *labels: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
        """A new histogram; buckets: their upper bounds, by default for seconds."""
        return Histogram(name, text, labels, namespace=NAMESPACE, registry=self, buckets=buckets)

    def info(self, name: str, text: str, values: dict[str, str]) -> None:
        """Adds fpet_`name`_info, whose labels are `values`."""
        Info(name, text, namespace=NAMESPACE, registry=self).info(values)
