"""What ``sparklog.spark.consume`` refuses before Spark starts anything."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import sparklog.spark
from sparklog.coordinator import create_cluster
from sparklog.errors import (
    ClusterNotFoundError,
    InvalidRequestError,
    SparklogError,
    StorageUnavailableError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.layout import exists
from sparklog.spark.group.consume import STOP_PREFIX, stopping
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import Call, FaultyStore
from tests.cluster.client.consumers import until
from tests.cluster.spark.helpers import cluster

KEY = f"{STOP_PREFIX}of-a-test"

NO_SPARK: Any = SimpleNamespace(conf={})


def test_wrong_arguments_are_refused_before_a_task_starts(tmp_path: Path) -> None:
    cluster(tmp_path, orders=2)
    good: dict[str, Any] = {"root": str(tmp_path), "group": "g", "topics": ["orders"], "process": print}
    for wrong, what in (
        ({"topics": []}, "topics is empty"),
        ({"process": "print"}, "process is of type str"),
        ({"records": "polars"}, "arrow, pandas"),
        ({"auto_offset_reset": "newest"}, "earliest, latest, none"),
        ({"assignor": "moon"}, "cooperative-sticky"),
        ({"members": 0}, "invalid value 0 for members"),
        ({"max_records": True}, "invalid value True for max_records"),
        ({"group": ""}, "group id"),
        ({"root": None}, "no cluster given"),
    ):
        with pytest.raises(InvalidRequestError, match=what):
            sparklog.spark.consume(NO_SPARK, **{**good, **wrong})


@pytest.mark.parametrize(
    ("wrong", "error"),
    [({"topics": "gone"}, UnknownTopicOrPartitionError), ({"root": "nowhere"}, ClusterNotFoundError)],
)
def test_the_error_names_what_does_not_exist(
    tmp_path: Path, wrong: dict[str, Any], error: type[SparklogError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cluster(tmp_path / "log", orders=2)
    good: dict[str, Any] = {"root": str(tmp_path / "log"), "group": "g", "topics": ["orders"], "process": print}
    with pytest.raises(error):
        sparklog.spark.consume(NO_SPARK, **{**good, **wrong})


def test_no_task_is_started_without_records_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster(tmp_path, orders=2)
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP_SERVER", str(tmp_path))
    assert sparklog.spark.consume(NO_SPARK, group="g", topics="orders", process=print) == []


def test_a_request_to_stop_is_written_again_until_the_storage_takes_it() -> None:
    refusals = [StorageUnavailableError("503")]

    def refuse_once(number: int, call: Call) -> None:
        if call.key == KEY and call.operation == "put" and refusals:
            raise refusals.pop()

    store = FaultyStore(MemoryStore(uuid.uuid4().hex), before=refuse_once)
    coordinator, stop = create_cluster(store), threading.Event()
    with stopping(coordinator, KEY, stop):
        stop.set()
        until(lambda: exists(store, KEY))
    assert not refusals
    assert not exists(store, KEY)
