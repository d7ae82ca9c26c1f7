"""Metrics for Prometheus; each server has its own."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

__all__ = ["CONTENT_TYPE_LATEST", "Metrics"]


class Metrics:
    """What an operator watches."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "bagcert_requests", "Requests by route and status.", ["route", "status"], registry=self.registry
        )
        self.images = Counter("bagcert_images", "Images answered.", ["certified"], registry=self.registry)
        self.batches = Histogram(
            "bagcert_batch_images",
            "Images per batch.",
            buckets=(1, 2, 4, 8, 16),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "bagcert_request_seconds",
            "Time from the first byte of a request to its answer.",
            ["route"],
            buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
            registry=self.registry,
        )
        self.waiting = Gauge("bagcert_waiting_images", "Images waiting for the model.", registry=self.registry)

    def text(self) -> bytes:
        return generate_latest(self.registry)
