"""Typed rows: written by their columns, rolled to history, and read back equal."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparklog
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.roll import roll
from tests.cluster.maintenance.logs import live

SCHEMA = (
    "text string, flag boolean, tiny tinyint, id bigint NOT NULL, part float, amount double, price decimal(20,4), "
    "day date, placed timestamp, raw binary, tags map<string,int>, lines array<struct<sku: string, at: timestamp>>"
)
CONFIGS = {"history.format": "delta", "segment.ms": "60000", "value.format": "json", "value.schema": SCHEMA}
START = datetime(2026, 11, 1, 9, 30)


def row(number: int) -> tuple[Any, ...]:
    at = START + timedelta(minutes=number, microseconds=number)
    lines = [(f"sku {number}", at), (None, None), None]
    tags = {"\u00e9\n": number, "none": None}
    full = (
        f'"text" \\ {number}', bool(number % 2), number - 100, 2**62 + number, number / 3, number / 7,
        Decimal(number).scaleb(-4), date(1, 1, 1) + timedelta(days=number), at, bytes([0, 255, number]), tags, lines,
    )  # fmt: skip
    return tuple(field if index == 3 or (number + index) % 5 else None for index, field in enumerate(full))


@pytest.fixture
def log(tmp_path: Path) -> Coordinator:
    coordinator = create_cluster(str(tmp_path / "log"))
    coordinator.create_topic("orders", 2, configs=CONFIGS)
    return coordinator


@pytest.fixture
def orders(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([row(number) for number in range(60)], SCHEMA.replace(" NOT NULL", ""))


def table(spark: SparkSession, log: Coordinator, orders: DataFrame) -> list[Any]:
    return sparklog.table(spark, log.store.root, "orders").select(orders.columns).orderBy("id").collect()


def test_typed_rows_are_equal_after_they_were_written_and_after_they_became_history(
    spark: SparkSession, log: Coordinator, orders: DataFrame
) -> None:
    expected = orders.orderBy("id").collect()
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")  # collect() above gave times in UTC
    try:
        timed = orders.withColumn("timestamp", F.col("placed")).withColumn("key", F.col("id").cast("string"))
        sparklog.write(timed, log.store.root, topic="orders")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert table(spark, log, orders) == expected
    sparklog.write(orders.limit(0), log.store.root, topic="orders")
    roll(log, InProcess())
    assert any(segment.is_history for segment in live(log, "orders"))
    assert table(spark, log, orders) == expected


def test_a_stream_writes_typed_rows(spark: SparkSession, log: Coordinator, orders: DataFrame, tmp_path: Path) -> None:
    orders.write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema(orders.schema).parquet(str(tmp_path / "rows"))
    sparklog.register(spark)
    query = (
        stream.writeStream.format("sparklog").option("topic", "orders")
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start(log.store.root)
    )  # fmt: skip
    query.awaitTermination(120)
    assert query.exception() is None
    assert table(spark, log, orders) == orders.orderBy("id").collect()


@pytest.mark.parametrize(
    ("column", "expression", "reason"),
    [
        ("amount", "CAST('NaN' AS double)", "field 'amount' cannot be written: JSON has no NaN"),
        ("id", "CAST(NULL AS bigint)", "field 'id' cannot be written: it is NOT NULL"),
        ("id", "'a'", "id is string in the rows and bigint in the schema; cast it"),
        ("more", "1", "column more is not in it; leave it out, or add it to value.schema"),
    ],
)
def test_rows_that_do_not_fit_are_refused_and_none_is_written(
    spark: SparkSession, log: Coordinator, orders: DataFrame, column: str, expression: str, reason: str
) -> None:
    with pytest.raises(PySparkException, match=reason):
        sparklog.write(orders.withColumn(column, F.expr(expression)), log.store.root, topic="orders")
    assert [partition.log_end_offset for partition in log.refresh().topics["orders"].partitions] == [0, 0]


def test_fields_named_like_columns_of_the_log_are_columns_with_a_prefix(spark: SparkSession, log: Coordinator) -> None:
    schema = "timestamp timestamp, value double, key string, offset bigint, topic string, `_unfit` boolean"
    log.create_topic("events", 1, configs={**CONFIGS, "value.schema": schema.replace("`", "")})
    columns = schema.replace("`", "").split(", ")
    given = spark.createDataFrame([(START, 1.5, "k", 7, "t", True)], ", ".join(f"value_{column}" for column in columns))
    hour = timedelta(hours=1)
    for later in (hour, 2 * hour, 3 * hour):  # the first two segments are closed
        own = given.withColumn("key", F.lit("own")).withColumn("timestamp", F.lit(START + later))
        sparklog.write(own, log.store.root, topic="events")

    def check() -> None:
        table = sparklog.table(spark, log.store.root, "events").where("value_offset = 7")
        assert table.select(given.columns).collect() == given.collect() * 3
        own = table.orderBy("offset").selectExpr("CAST(key AS STRING)", "offset", "_unfit", "timestamp")
        assert [tuple(row) for row in own.collect()] == [
            ("own", number, False, START + (number + 1) * hour) for number in range(3)
        ]

    check()
    roll(log, InProcess())
    assert any(segment.is_history for segment in live(log, "events"))
    check()
