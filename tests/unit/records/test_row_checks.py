"""Checks by column refuse the same records as checks of single records, and name the row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparklog.config.topic_configs import TopicConfig
from sparklog.errors import (
    InvalidPartitionError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageSizeTooLargeError,
    RefusedRecordError,
)
from sparklog.format.plain_arrays import binary_column, headers_array, timestamp_array
from sparklog.format.schema import record_schema
from sparklog.records import record_checks
from sparklog.records.record_checks import check_headers, check_request_size, check_timestamp, topic_limit_error
from sparklog.records.row_checks import check_partitions, check_rows
from sparklog.records.topic_rules import TopicRules

NOW_MS = 1_700_000_000_000
Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]


def rules(max_request_size: int = 2**63 - 1, **configs: str) -> TopicRules:
    config = TopicConfig.resolve({name.replace("_", "."): value for name, value in configs.items()}, {})
    return TopicRules.resolve("t", config, "none", None, max_request_size=max_request_size)


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    keys, values, headers, stamps = zip(*rows, strict=True)
    columns = [binary_column(keys).array, binary_column(values).array]
    columns += [timestamp_array([stamp * 1000 for stamp in stamps]), headers_array([part or None for part in headers])]
    return pa.RecordBatch.from_arrays(columns, schema=record_schema(("key", "value", "timestamp", "headers")))


def refusal(check: Callable[[], Any]) -> type[Exception] | None:
    try:
        check()
    except RefusedRecordError as error:
        return type(error)
    return None


def check_one(row: Row, topic: TopicRules) -> None:
    key, value, headers, stamp = row
    size = len(key or b"") + len(value or b"") + check_headers(headers, "t")[1]
    check_request_size(size, topic)
    error = topic_limit_error(size, key, value, headers, topic)
    if error is not None:
        raise error
    check_timestamp(stamp, topic, NOW_MS)


Bytes = st.none() | st.binary(max_size=40)
Rows = st.lists(
    st.tuples(
        Bytes,
        Bytes,
        st.lists(st.tuples(st.text(max_size=5), Bytes), max_size=3),
        st.integers(-2, 2) | st.integers(NOW_MS - 1002, NOW_MS + 1002),
    ),
    min_size=1,
    max_size=12,
)


@given(
    rows=Rows,
    limit=st.integers(0, 130),
    request=st.integers(0, 130),
    append_time=st.booleans(),
    codec=st.sampled_from(["uncompressed", "zstd"]),
)
@example(
    rows=[(None, b"x" * 40, [], 0), (b"k", b"x" * 40, [], 0)], limit=52, request=41, append_time=True, codec="zstd"
)
def test_checks_by_column_match_checks_of_single_records(
    rows: list[Row], limit: int, request: int, append_time: bool, codec: str
) -> None:
    kind = "LogAppendTime" if append_time else "CreateTime"
    bounds = {"message_timestamp_before_max_ms": "1000", "message_timestamp_after_max_ms": "1000"}
    configs = {"max_message_bytes": str(limit), "message_timestamp_type": kind, "compression_type": codec, **bounds}
    topic = rules(request, **configs)
    each = [refusal(lambda row=row: check_one(row, topic)) for row in rows]  # type: ignore[misc]
    together = refusal(lambda: check_rows(batch(rows), topic, NOW_MS))
    assert (together is None) == (set(each) == {None})
    assert together in each
    if together is MessageSizeTooLargeError:
        with pytest.raises(MessageSizeTooLargeError) as raised:
            check_rows(batch(rows), topic, NOW_MS)
        assert raised.value.index == each.index(MessageSizeTooLargeError)


def test_a_row_over_the_limit_is_accepted_if_it_is_not_once_compressed() -> None:
    rows = batch([(b"k", bytes(10_000), [("h", bytes(10_000))], NOW_MS)])
    check_rows(rows, rules(max_message_bytes="1000", compression_type="zstd"), NOW_MS)
    with pytest.raises(MessageSizeTooLargeError, match="20,014 bytes"):
        check_rows(rows, rules(max_message_bytes="1000", compression_type="uncompressed"), NOW_MS)


def test_a_record_over_what_one_may_have_is_refused_however_small_it_is_compressed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its segment may be written again with further columns, and would be over the limit of a record batch."""
    monkeypatch.setattr(record_checks, "MAX_RECORD_BYTES", 10_000)
    topic = rules(max_message_bytes="1000", compression_type="zstd")
    check_rows(batch([(b"k", bytes(9_999), [], NOW_MS)]), topic, NOW_MS)
    row: Row = (b"k", bytes(10_000), [], NOW_MS)
    for check in (lambda: check_rows(batch([row]), topic, NOW_MS), lambda: check_one(row, topic)):
        with pytest.raises(MessageSizeTooLargeError, match="10,001 bytes, and none may have more than 10,000 before"):
            check()


def test_a_row_without_a_key_for_a_compacted_topic_is_named() -> None:
    topic = rules(cleanup_policy="compact")
    check_rows(batch([(b"k", b"v", [], 0)]), topic, NOW_MS)
    with pytest.raises(InvalidRecordError, match="'t' is compacted") as raised:
        check_rows(batch([(b"k", b"v", [], 0), (None, b"v", [], 0)]), topic, NOW_MS)
    assert raised.value.index == 1
    with pytest.raises(InvalidRecordError, match="'t' is compacted"):
        check_rows(batch([(b"k", b"v", [], 0)]).drop_columns(["key"]), topic, NOW_MS)


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_timestamp_before_1970_is_refused_for_any_timestamp_type(kind: str) -> None:
    with pytest.raises(InvalidTimestampError, match="since 1970"):
        check_rows(batch([(None, b"v", [], -1)]), rules(message_timestamp_type=kind), NOW_MS)


def test_timestamps_not_given_by_rows_are_not_checked() -> None:
    check_rows(batch([(None, b"v", [], -1)]), rules(), NOW_MS, stamped=False)


@pytest.mark.parametrize(("named", "wrong"), [([None, 3, 1], 3), ([0, -1], -1), ([2, 1, 0], None), ([None], None)])
def test_a_partition_that_does_not_exist_is_refused(named: list[int | None], wrong: int | None) -> None:
    column = pa.array(named, pa.int32())
    if wrong is None:
        return check_partitions(column, "t", 3)
    with pytest.raises(InvalidPartitionError, match=f"partitions 0 to 2, not {wrong}") as raised:
        check_partitions(column, "t", 3)
    assert raised.value.partition == wrong
    return None
