"""What is known of the values of columns without reading them: of a segment, or of one of its record batches.

Rules: bounds need not be tight, but hold for every record.
Not for: whether a filter can pass (``client.scan.row_filter``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import pyarrow as pa


class ColumnBounds(NamedTuple):
    """The values of a column lie between these, of the column's type; without them all are null. ``may_be_null``: some
    may be null."""

    smallest: pa.Scalar | None
    largest: pa.Scalar | None
    may_be_null: bool = False


Bounds = Mapping[str, ColumnBounds]
"""What is known of some columns."""

Admits = Callable[[Bounds], bool]
"""Whether records with these bounds may be wanted."""

ALL_NULL = ColumnBounds(None, None, True)
