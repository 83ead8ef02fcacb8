"""The types of the columns that facts have in system tables.

    class TopicFacts(NamedTuple):
        topic: Text
        partitions: Number

    columns_of(TopicFacts)          # {"topic": pa.string(), "partitions": pa.int32()}

Not for: the columns of what commits changed (``schemas``).
"""

from __future__ import annotations

from typing import Annotated, Any, get_type_hints

import pyarrow as pa

TIME = pa.timestamp("ms", "UTC")

Text = Annotated[str, pa.string()]
NullableText = Annotated["str | None", pa.string()]
Texts = Annotated["list[str]", pa.list_(pa.string())]
TextPairs = Annotated["list[tuple[str, str]]", pa.map_(pa.string(), pa.string())]
Count = Annotated[int, pa.int64()]
NullableCount = Annotated["int | None", pa.int64()]
Number = Annotated[int, pa.int32()]
NullableNumber = Annotated["int | None", pa.int32()]
Numbers = Annotated["list[int]", pa.list_(pa.int32())]
Flag = Annotated[bool, pa.bool_()]
Time = Annotated[int, TIME]
"""ms since 1970, UTC"""
NullableTime = Annotated["int | None", TIME]


def columns_of(kind: type[Any]) -> dict[str, pa.DataType]:
    """Return the columns of a kind of facts: name and type of its fields, in their order."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}
