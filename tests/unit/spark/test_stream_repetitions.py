"""How listeners recognize batches that were stored before their query started."""

from __future__ import annotations

import logging

import pytest
from immutables import Map

from sparklog.protocol.commits import WrittenRange
from sparklog.protocol.state import ApplicationState, State
from sparklog.spark.stream.lag_listener import find_lag
from sparklog.spark.stream.skipped_batch_report import (
    MAX_RUNS,
    WrittenBefore,
    find_last_batch,
    is_repetition,
    remember,
    report,
)


def remembered(version: int, topic: str) -> ApplicationState:
    written = WrittenRange(topic=topic, topic_id="t", partition=0, base_offset=0, records=1)
    return ApplicationState(version=version, commit_version=40 + version, ranges=(written,))


def test_stored_batches_are_found_under_the_topic_or_the_former_name() -> None:
    state = State(
        cluster_id="c",
        applications=Map({"query:q": remembered(3, "copies"), "query:q:others": remembered(5, "others")}),
    )
    assert find_last_batch(state, "q", "copies") == WrittenBefore(3, 43)
    assert find_last_batch(state, "q", "others") == WrittenBefore(5, 45)
    assert find_last_batch(state, "q", "new") is None
    assert find_last_batch(state, "q", "") == WrittenBefore(3, 43)


def test_batches_up_to_the_last_stored_one_are_repetitions(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    remember("run", WrittenBefore(3, 43))
    assert [is_repetition("run", number) for number in (2, 3, 4)] == [True, True, False]
    assert not is_repetition("another", 0)
    for number in (3, 4):
        report("run", number)
    assert caplog.text.count("it added nothing") == 1
    ids = {"cluster": "c", "topics": {"a": "x"}}
    progress = {"id": "q", "runId": "run", "sources": [{"endOffset": {"a": {"0": 5}, "$ids": ids}}]}
    found = [find_lag({**progress, "batchId": number}) for number in (3, 4)]
    assert [one is not None and one.is_repetition for one in found] == [True, False]


def test_a_bounded_number_of_runs_is_remembered() -> None:
    for number in range(MAX_RUNS + 1):
        remember(f"run-{number}", WrittenBefore(0, 1))
    assert not is_repetition("run-0", 0)
    assert is_repetition(f"run-{MAX_RUNS}", 0)
