"""How far a search of records goes, and that it goes on where it ended."""

from __future__ import annotations

import pytest

import sparklog.testing
from sparklog.testing.records import Record, append_records
from sparklog.ui import record_search
from sparklog.ui.record_search import Search, search
from sparklog.ui.views.record_filter import RecordFilter

RECORDS = 600


@pytest.mark.parametrize("admits", [RecordFilter(), RecordFilter(key=b"k")])
@pytest.mark.parametrize("backwards", [True, False])
def test_a_search_ends_at_its_bound_and_goes_on_where_it_ended(
    backwards: bool, admits: RecordFilter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_search, "MAX_READ", 100)
    with sparklog.testing.cluster(topics={"orders": 2}) as cluster:
        for number in range(RECORDS // 10):
            values = [b"%d" % (number * 10 + each) for each in range(10)]
            records = [Record(b"k", value, partition=partition) for partition in (0, 1) for value in values]
            append_records(cluster.coordinator, "orders", records)
        state = cluster.coordinator.refresh()
        starts = dict.fromkeys((0, 1), RECORDS if backwards else 0)
        seen: list[tuple[int, int]] = []
        while True:
            found = search(cluster.coordinator, state, Search("orders", starts, backwards, 10_000), admits)
            seen += [(record.partition, record.offset) for record in found.records]
            assert found.read <= 100 + 50
            if not found.stopped:
                break
            assert found.next != starts
            starts = found.next
    offsets = range(RECORDS - 1, -1, -1) if backwards else range(RECORDS)
    assert seen == [(partition, offset) for partition in (0, 1) for offset in offsets]
