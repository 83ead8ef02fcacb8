"""How far a search of records goes, and that it goes on where it ended."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

import sparklog.testing
from sparklog.clock import ManualClock
from sparklog.coordinator import create_cluster
from sparklog.store.memory import MemoryStore
from sparklog.testing.records import Record, append_records
from sparklog.ui import record_search
from sparklog.ui.record_search import Search, search
from sparklog.ui.views.record_filter import RecordFilter, parse_record_filter
from tests.cluster.maintenance.damaged_clusters import DamagedCluster
from tests.web import serving

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


@pytest.mark.parametrize("backwards", [True, False])
def test_a_search_with_a_filter_that_takes_long_ends_in_time_and_goes_on(backwards: bool) -> None:
    clock = ManualClock()
    cluster = create_cluster(MemoryStore(uuid.uuid4().hex, clock), clock=clock)
    cluster.create_topic("orders")
    append_records(cluster, "orders", [Record(b"k", b"%d" % number) for number in range(RECORDS)])
    state = cluster.refresh()

    def take_long(value: bytes) -> object:
        clock.advance(record_search.MAX_SECONDS / 100)
        return {"n": int(value)}

    admits = parse_record_filter("", "", "", "n >= 0", take_long)
    starts, seen, searches = {0: RECORDS if backwards else 0}, list[int](), 0
    while len(seen) < RECORDS:
        found = search(cluster, state, Search("orders", starts, backwards, 10_000), admits)
        assert found.read_bytes  # it reads on where it ended
        seen += [record.offset for record in found.records]
        starts, searches = found.next, searches + 1
        assert searches <= RECORDS // 50
    assert seen == [*(range(RECORDS - 1, -1, -1) if backwards else range(RECORDS))]
    assert searches > 4


@pytest.mark.parametrize("damage", ["batch", "index", "log"])
def test_what_lies_before_damage_in_the_direction_of_a_search_is_shown_with_the_error(
    damage: str, tmp_path: Path
) -> None:
    cluster = DamagedCluster(tmp_path)
    for number in range(30):  # batches of five, each in a file of its own; that at 60 to 64 is damaged
        records = [Record(b"k", b"value-%03d" % (number * 5 + each), partition=0) for each in range(5)]
        append_records(cluster.coordinator, "orders", records)
    append_records(cluster.coordinator, "orders", [Record(b"k", b"other", partition=1)])
    (file,) = (file for file in (cluster.root / "orders-0").glob("*.log") if b"value-062" in file.read_bytes())
    if damage == "batch":
        file.write_bytes(file.read_bytes().replace(b"value-062", b"valuf-062"))
    else:
        file.with_suffix(f".{damage}").unlink()
    coordinator = cluster.reopened()

    def offsets(backwards: bool, start: int) -> list[int]:
        found = search(
            coordinator, coordinator.state, Search("orders", {0: start, 1: 1}, backwards, 1000), RecordFilter()
        )
        assert len(found.unreadable) == (0 if start == 65 and not backwards else 1)
        assert [record.value for record in found.records if record.partition == 1] == ([b"other"] if backwards else [])
        return [record.offset for record in found.records if record.partition == 0]

    assert offsets(backwards=True, start=150) == list(range(149, 64, -1))
    assert offsets(backwards=False, start=0) == list(range(60))
    assert offsets(backwards=False, start=65) == list(range(65, 150))


def test_the_page_of_a_damaged_topic_shows_newer_records_and_the_error(tmp_path: Path) -> None:
    cluster = DamagedCluster(tmp_path)
    for value in (b"old", b"damaged", b"newest"):
        append_records(cluster.coordinator, "orders", [Record(b"k", value, partition=0)])
    (file,) = (file for file in (cluster.root / "orders-0").glob("*.log") if b"damaged" in file.read_bytes())
    file.write_bytes(file.read_bytes().replace(b"damaged", b"Damaged"))
    with serving(cluster.reopened()) as web:
        (name,) = web.followers
        for query, status, words in (
            ("?from=end", 200, ("newest", "checksum")),
            ("?from=start", 200, ("old", "checksum")),
            ("?from=offset&at=2", 200, ("newest",)),
            ("/download?from=end&as=json", 500, ("checksum",)),
        ):
            answer = web.get(f"/{name}/topics/orders/records{query}")
            assert answer.status == status
            assert all(word in answer.text for word in words)
