"""The data source as Spark makes it, without a session: schemas, options of SQL tables, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import IntegerType, StructField, StructType

from pyspark_sparklog import DefaultSource
from sparklog.errors import InvalidOptionError, InvalidRecordError, InvalidRequestError
from sparklog.spark.data_source import SparklogDataSource
from sparklog.spark.options import Options
from sparklog.spark.source.rows import read_schema
from sparklog.spark.stream.reader import RefusedStreamReader
from sparklog.spark.table_options import METADATA_KEY, effective_options
from sparklog.spark.versions.api import ReadAllAvailable, arrow_schema
from tests.cluster.spark.helpers import across, cluster, schema_of, values, write_rows

TABLE = {"provider": "sparklog", "owner": "me", "location": "file:/warehouse/t", "path": "file:/warehouse/t"}


def test_spark_discovers_the_source() -> None:
    assert DefaultSource is SparklogDataSource
    assert DefaultSource.name() == "sparklog"


def test_the_schema_is_kafkas_and_headers_are_opt_in() -> None:
    options = {"path": "/data/log", "subscribe": "a"}
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert SparklogDataSource(options).schema().names == names
    assert SparklogDataSource({**options, "includeHeaders": "true"}).schema().names == [*names, "headers"]


def test_invalid_options_are_refused_for_streams_and_batches() -> None:
    options = {"path": "/data/log", "subscribe": "a", "endingOffsets": "earliest"}
    with pytest.raises(
        InvalidOptionError, match=r"in a streaming query option endingOffsets does not apply.*in a batch"
    ):
        SparklogDataSource(options).schema()
    with pytest.raises(InvalidOptionError, match=r"^exactly one of the options"):
        SparklogDataSource({"path": "/data/log"}).schema()


def test_the_options_of_a_table_are_kept_in_its_schema() -> None:
    options = {**TABLE, "bootstrap.servers": "/data/log", "subscribe": "a", "option.subscribe": "a"}
    kept = SparklogDataSource(options).schema()
    arrived = StructType.fromJson(json.loads(kept.json()))
    assert dict(effective_options({}, arrived)) == {"bootstrap.servers": "/data/log", "subscribe": "a"}
    reader = SparklogDataSource({}).reader(arrived)
    assert reader.options.address.root == "/data/log"


def test_a_table_has_the_columns_of_its_option() -> None:
    options = {**TABLE, "bootstrap.servers": "/data/log", "subscribe": "a", "columns": "Value, partition"}
    kept = SparklogDataSource(options).schema()
    assert kept.names == ["value", "partition"]
    assert SparklogDataSource({}).reader(kept).columns == ("value", "partition")
    with pytest.raises(InvalidOptionError, match=r"unknown column 'price'; choose from key, value.*; sparklog.table"):
        SparklogDataSource({**options, "columns": "price"}).schema()


def altered(folder: Path) -> StructType:
    """A table whose first column was dropped, another one renamed, and one added."""
    options = {**TABLE, "bootstrap.servers": str(folder), "subscribe": "a", "topic": "a"}
    kept = SparklogDataSource(options).schema().fields
    renamed = StructField("body", kept[1].dataType, True, kept[1].metadata)
    return StructType([renamed, StructField("price", IntegerType()), kept[4]])


def test_an_altered_table_keeps_its_options_and_the_meaning_of_columns(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    write_rows(tmp_path, "value string", [{"value": "v"}, {"value": "w"}], topic="a")
    reader = SparklogDataSource({}).reader(altered(tmp_path))
    rows = [row for part in reader.partitions() for batch in across(reader).read(part) for row in batch.to_pylist()]
    assert rows == [{"body": b"v", "price": None, "offset": 0}, {"body": b"w", "price": None, "offset": 1}]


def test_an_insert_into_an_altered_table_refuses_columns_that_a_log_cannot_keep(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    job = SparklogDataSource({}).writer(altered(tmp_path), overwrite=False)
    arrow = arrow_schema(altered(tmp_path))

    def batch(price: int | None) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([{"body": b"v", "price": price, "offset": None}], schema=arrow)

    with pytest.raises(InvalidRecordError, match="column price was added to the table and is not in the log"):
        across(job).write(iter([batch(7)]))
    job.commit([across(job).write(iter([batch(None)]))])
    assert values(tmp_path, subscribe="a") == [b"v"]


def test_the_error_for_a_table_without_options_says_how_to_create_it(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidOptionError, match=r"no cluster given.*created with a list of columns.*option such as columns"
    ):
        SparklogDataSource({}).reader(schema_of("value binary, partition int"))


def test_options_of_a_query_override_those_of_the_table() -> None:
    kept = SparklogDataSource({**TABLE, "bootstrap.servers": "/data/log", "subscribe": "a"}).schema()
    found = effective_options({"SUBSCRIBE": "b"}, kept)
    assert found["subscribe"] == "b"
    assert found["bootstrap.servers"] == "/data/log"
    assert effective_options({"path": "/elsewhere", "topic": "a"}, kept) == Options(
        {"path": "/elsewhere", "topic": "a"}
    )


def test_a_write_only_table_needs_no_subscription() -> None:
    kept = SparklogDataSource({**TABLE, "topic": "a"}).schema()
    assert effective_options({}, kept)["path"] == "file:/warehouse/t"


def test_secrets_are_not_stored_in_column_metadata() -> None:
    options = {**TABLE, "bootstrap.servers": "s3://b/log", "subscribe": "a", "storage.secret": "hush"}
    with pytest.raises(InvalidOptionError, match=r"option storage\.secret of a table would be visible to everyone"):
        SparklogDataSource(options).schema()


@pytest.mark.parametrize("text", ["", "{", "[1]", "5", '{"path": 5}'])
def test_foreign_column_metadata_is_not_read_as_options(text: str) -> None:
    schema = read_schema(False)
    schema.fields[0].metadata = {METADATA_KEY: text}
    assert dict(effective_options({}, schema)) == {}


def test_overwriting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be overwritten"):
        SparklogDataSource({"path": str(tmp_path), "topic": "a"}).writer(schema_of("value string"), True)


def test_a_source_can_be_pickled_by_spark(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    source = across(SparklogDataSource({"path": str(tmp_path), "subscribe": "a", "topic": "a"}))
    assert source.reader(read_schema(False)).partitions() == []
    assert across(source.writer(schema_of("value string"), False)).target.topic == "a"


def test_a_relative_folder_is_made_absolute_for_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster(tmp_path / "log", a=1)
    monkeypatch.chdir(tmp_path)
    job = SparklogDataSource({"path": "log", "topic": "a"}).writer(schema_of("value string"), False)
    assert job.options.address.root == str(tmp_path / "log")


def test_a_stream_that_is_refused_raises_the_reason_in_each_call(tmp_path: Path) -> None:
    options = {"path": str(tmp_path), "subscribe": "a", "endingOffsets": "latest"}
    reader = SparklogDataSource(options).streamReader(read_schema(False))
    assert isinstance(reader, RefusedStreamReader)
    for call in (
        reader.initialOffset,
        reader.prepareForTriggerAvailableNow,
        reader.getDefaultReadLimit,
        lambda: reader.latestOffset({}, ReadAllAvailable()),
        lambda: reader.partitions({}, {}),
        lambda: reader.read(InputPartition(0)),
    ):
        with pytest.raises(InvalidOptionError, match="endingOffsets does not apply to a streaming query"):
            call()
