"""What a producer counts, under Kafka's names of metrics."""

from __future__ import annotations

from collections.abc import Sequence

from sparklog.client.accumulator import Accumulator, PendingBatch
from sparklog.clock import Clock

GROUP = "producer-metrics"


class ProducerMetrics:
    """Counters since the producer was made. Written by the sender alone; reading from other threads is safe."""

    def __init__(self, clock: Clock, accumulator: Accumulator, buffer_memory: int) -> None:
        self._clock = clock
        self._started = clock.monotonic()
        self._accumulator = accumulator
        self._buffer_memory = buffer_memory
        self.records = 0
        self.batches = 0
        self.bytes = 0
        self.commits = 0
        self.errors = 0
        self.retries = 0

    def committed(self, batches: Sequence[PendingBatch]) -> None:
        """These went into the log with one commit."""
        self.commits += 1
        self.batches += len(batches)
        for batch in batches:
            self.records += batch.rows
            self.bytes += batch.size

    def failed(self, batches: Sequence[PendingBatch]) -> None:
        self.errors += sum(batch.rows or len(batch.values) for batch in batches)

    def retried(self, batches: Sequence[PendingBatch]) -> None:
        self.retries += sum(batch.rows or len(batch.values) for batch in batches)

    def snapshot(self) -> dict[str, float]:
        """Every metric by Kafka's name. Rates are per second since the producer was made."""
        elapsed = max(self._clock.monotonic() - self._started, 1e-9)
        used = self._accumulator.used
        return {
            "record-send-total": self.records,
            "record-send-rate": self.records / elapsed,
            "record-error-total": self.errors,
            "record-retry-total": self.retries,
            "byte-total": self.bytes,
            "byte-rate": self.bytes / elapsed,
            "request-total": self.commits,
            "request-rate": self.commits / elapsed,
            "records-per-request-avg": self.records / self.commits if self.commits else 0.0,
            "batch-size-avg": self.bytes / self.batches if self.batches else 0.0,
            "buffer-total-bytes": self._buffer_memory,
            "buffer-available-bytes": max(self._buffer_memory - used, 0),
            "waiting-threads": self._accumulator.waiting_threads,
        }
