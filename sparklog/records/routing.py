"""Choose the partition of each row of a topic, by column.

A partition that the row names comes first, then the partitioner's choice for its key. Rows with neither go to one
partition, ``STICKY_ROWS`` at a time, then to the partition that got the fewest of them so far.

Not for: single records (``client.producer.topic_routing``), checking that a named partition exists (``row_checks``).
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.format.plain_arrays import plain_scalar
from sparklog.protocol.plan.partitioner import StickyPartitions, partition_keys

Partitioner = Callable[[pa.Array, int], pa.Array]
"""Binary keys and a number of partitions -> partitions as int32; a null row is placed like a row without a key."""

STICKY_ROWS = 10_000
"""rows without a key that go to the same partition: the default size of Spark's batches."""


class RowRouting:
    """Routes rows to the partitions of one topic. Remembers the next partition of rows without keys. Not thread-safe.

    ``first`` is the partition at which those start; give each writer a different one. ``is_repeatable`` says that
    ``partitioner`` maps a key to the same partition every time; ``varies`` then becomes true once another run of the
    same rows may choose other partitions.
    """

    def __init__(
        self, partitions: int, first: int, partitioner: Partitioner = partition_keys, is_repeatable: bool = True
    ) -> None:
        self.partitions = partitions
        self.varies = False
        self._sticky = StickyPartitions(partitions, first)
        self._partitioner = partitioner
        self._is_repeatable = is_repeatable

    def choose(self, rows: int, keys: pa.Array | None, named: pa.Array | None) -> pa.Array | int:
        """Return one partition for all rows, or one for each. Without ``keys`` the rows stay together."""
        if named is not None and named.null_count == rows:
            named = None
        if named is not None and not named.null_count:
            return named
        chosen = self._by_key(rows, keys)
        return chosen if named is None else pc.coalesce(named, _filled(chosen, rows))

    def _by_key(self, rows: int, keys: pa.Array | None) -> pa.Array | int:
        if self.partitions == 1:
            return 0
        if keys is None:
            self.varies = True
            return self._sticky.next_partition(rows)
        if keys.null_count == rows:
            return self._next(rows)
        self.varies = self.varies or not self._is_repeatable
        chosen = self._partitioner(keys, self.partitions)
        if not chosen.null_count:
            return chosen
        return self._next(rows) if chosen.null_count == rows else pc.coalesce(chosen, _filled(self._next(rows), rows))

    def _next(self, rows: int) -> pa.Array | int:
        """Return partitions for rows without keys: ``STICKY_ROWS`` at a time to the partition with the fewest rows."""
        self.varies = True
        if rows <= STICKY_ROWS:
            return self._sticky.next_partition(rows)
        counts = [min(STICKY_ROWS, rows - start) for start in range(0, rows, STICKY_ROWS)]
        return pa.concat_arrays([_filled(self._sticky.next_partition(count), count) for count in counts])


def _filled(chosen: pa.Array | int, rows: int) -> pa.Array:
    return pa.repeat(plain_scalar(chosen, pa.int32()), rows) if isinstance(chosen, int) else chosen
