"""Every page of a cluster through HTTP: what it shows of what is in the log."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from html import unescape
from html.parser import HTMLParser
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sparklog
import sparklog.testing
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.errors import StorageUnavailableError
from sparklog.log.layout import FSCK_KEY, boundary_mark_key
from sparklog.maintenance.fsck.check import Scope, check_cluster
from sparklog.maintenance.fsck.kept_report import keep_report
from sparklog.maintenance.fsck.kinds import Finding
from sparklog.protocol.commits import commit_key
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import Call, FaultyStore
from sparklog.testing.records import Record, append_records
from sparklog.ui.app import CLUSTER_THREADS, PAGES
from sparklog.ui.follower import ClusterFollower
from sparklog.ui.site import MAX_DOWNLOADS
from sparklog.ui.views.records import FORMATS
from tests.shown_cluster import CONTROL, HOSTILE_GROUP, OVERRIDE, SCRIPT, commit_group
from tests.web import Web, serving

PATHS = {
    "": "/log",
    "/topics": "/log/topics",
    "/topics/{topic}": "/log/topics/orders",
    "/topics/{topic}/configs": "/log/topics/orders/configs",
    "/topics/{topic}/segments": "/log/topics/orders/segments",
    "/topics/{topic}/history": "/log/topics/orders/history",
    "/topics/{topic}/records": "/log/topics/audit/records",
    "/topics/{topic}/records/download": "/log/topics/audit/records/download",
    "/topics/{topic}/records/{partition:number}/{offset:number}": "/log/topics/audit/records/0/4",
    "/topics/{topic}/records/{partition:number}/{offset:number}/value": "/log/topics/audit/records/0/4/value",
    "/groups": "/log/groups",
    "/group": f"/log/group?name={quote(HOSTILE_GROUP, safe='')}",
    "/brokers": "/log/brokers",
    "/transactions": "/log/transactions",
    "/commits": "/log/commits",
    "/commits/{version:number}": "/log/commits/40",
    "/maintenance": "/log/maintenance",
    "/alerts": "/log/alerts",
    "/configs": "/log/configs",
}
HTML = [path for path in PATHS.values() if not path.endswith(("/download", "/value"))]
VOID = {"meta", "link", "input", "path", "rect", "br"}


class _Page(HTMLParser):
    """Checks that elements are closed in order, and gathers attributes and links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {name for name, _ in attrs}
        values = dict(attrs)
        self.links += [values[name] or "" for name in ("href", "src") if name in values]
        self.ids += [values["id"] or ""] if "id" in values else []
        if tag not in VOID or tag in ("rect", "path"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag in ("rect", "path") or tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_every_page_is_tested() -> None:
    assert set(PATHS) == set(PAGES)


@pytest.mark.parametrize("path", ["/", "/login", *HTML])
def test_a_page_is_whole_loads_nothing_from_elsewhere_and_has_no_inline_code(web: Web, path: str) -> None:
    answer = web.get(path)
    assert answer.status == 200, answer.text
    page = _Page(answer.text)
    assert not {name for name in page.names if name.startswith("on") or name == "style"}
    assert all(link.startswith("/") and not link.startswith("//") for link in page.links if not link.startswith("#"))
    assert len(set(page.ids)) == len(page.ids)
    assert "<script>" not in answer.text
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x08\x0b-\x1f\x7f-\x9f]", answer.text)


def test_every_link_of_every_page_leads_to_a_page(web: Web) -> None:
    links = {link for path in ["/", *HTML] for link in _Page(web.get(path).text).links if not link.startswith("#")}
    for path in sorted({re.sub(r"(sort|page)=[^&]*", r"\1=", link) for link in links}):
        assert web.get(path).status == 200, path


def text_of(web: Web, path: str) -> str:
    answer = web.get(path)
    assert answer.status == 200, answer.text
    return " ".join(re.sub(r"<[^>]*>", " ", answer.text).split())


def test_the_overview_shows_the_facts_of_a_cluster(web: Web, shown: Coordinator) -> None:
    text = text_of(web, "/")
    assert "Topics 12" in text
    assert f"Newest commit {shown.state.version:,}" in text
    assert shown.store.root in text


def test_topics_are_found_sorted_and_paged(web: Web) -> None:
    found = re.findall(r'href="/log/topics/([a-z]+)"', web.get("/log/topics?q=S&sort=-partitions").text)
    assert found[:1] == ["orders"]
    assert "audit" not in found
    assert "No topic has &#39;zzz&#39;" in web.get("/log/topics?q=zzz").text


def test_a_topic_shows_its_partitions_throughput_and_groups(web: Web, shown: Coordinator) -> None:
    text = text_of(web, "/log/topics/orders")
    state = shown.state.partition("orders", 3)
    assert f"3 0 epoch 0 0 0 {state.log_start_offset:,} {state.log_end_offset:,}" in text
    assert "billing" in text
    records = sum(each.log_end_offset for each in shown.state.topic("orders").partitions)
    table = sparklog.system(cluster=shown).read("throughput", topic="orders", since="1h")
    total = sum(table.column("records").to_pylist())
    assert 0 < total <= records
    assert f"{total:,} in all" in text


def test_configs_show_what_differs_from_the_default_or_everything_with_documentation(web: Web) -> None:
    changed, everything = (
        text_of(web, "/log/topics/orders/configs"),
        text_of(web, "/log/topics/orders/configs?show=all"),
    )
    assert "segment.bytes 1048576 1073741824 this topic" in changed
    assert "retention.ms" not in changed
    assert "retention.ms 604800000 604800000 default Age in ms above which segments are deleted" in everything


def test_segments_are_drawn_and_link_to_their_records(web: Web) -> None:
    answer = web.get("/log/topics/orders/segments").text
    assert answer.count('class="strip"') == 6
    assert "/log/topics/orders/records?partition=0&amp;at=0" in answer


def test_the_schema_is_shown(web: Web) -> None:
    assert "value.schema, version 1 current" in text_of(web, "/log/topics/orders/history")


def test_a_group_shows_its_lag_members_and_that_it_is_stuck(web: Web, shown: Coordinator) -> None:
    text = text_of(web, "/log/group?name=billing")
    lag = sum(row["lag"] for row in sparklog.system(cluster=shown).read("lag", group="billing").to_pylist())
    assert f"Lag {lag:,} records" in text
    assert "Stuck: orders-" in text
    assert "billing-1-a1b2c3" in text
    assert "Stuck" not in text_of(web, "/log/group?name=dashboard")


def test_a_group_of_a_cluster_without_commits_gets_later_and_is_stuck() -> None:
    clock = ManualClock()
    with sparklog.testing.cluster(topics={"orders": 1}, clock=clock) as cluster:
        append_records(cluster.coordinator, "orders", [Record(value=b"v")] * 3)
        commit_group(cluster.coordinator, "billing", "orders", 1)
        with serving(cluster.coordinator, clock=clock) as web:
            text = text_of(web, "/log/group?name=billing")
            assert "Behind 0.0 s" in text
            assert "Stuck" not in text
            clock.advance(610)
            text = text_of(web, "/log/group?name=billing")
            assert "Behind 10 min" in text
            assert "Stuck: orders-0" in text


def test_an_address_of_a_group_below_the_groups_leads_to_its_page(web: Web) -> None:
    answer = web.get(f"/log/groups/{quote(HOSTILE_GROUP, safe='')}")
    assert (answer.status, answer.headers["location"]) == (301, PATHS["/group"])
    assert web.get("/log/groups/").headers["location"] == PATHS["/groups"]


def test_a_group_of_any_name_has_a_page(web: Web) -> None:
    answer = web.get(PATHS["/group"])
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;/..%2fabc\\u202etxt.exe" in answer.text


def test_producers_and_transactions_are_shown(web: Web) -> None:
    text = text_of(web, "/log/transactions")
    assert "billing-writer" in text
    assert "4 5" in text  # partitions and records


def test_maintenance_shows_what_ran_and_what_waits(web: Web, shown: Coordinator) -> None:
    text = text_of(web, "/log/maintenance")
    assert "roll" in text
    assert f"Retired files, to be deleted {len(shown.state.removed_files)}" in text


def test_the_last_check_is_shown_with_what_it_found(shown: Coordinator, web: Web) -> None:
    text = text_of(web, "/log/maintenance")
    assert "clean Found nothing. Ran" in text
    assert f"At version {shown.state.version:,} Took 1.5 s Checked everything" in text


def test_a_check_that_never_ran_found_something_or_cannot_be_read_is_told_apart() -> None:
    clock = ManualClock()
    cluster = create_cluster(MemoryStore("checked-page", clock), clock=clock)
    with serving(cluster, clock=clock) as web:
        assert "Never: no report was kept." in text_of(web, "/log/maintenance")
        check = check_cluster(cluster.store, Scope(fast=True), clock=clock)
        finding = Finding(kind="missing-log", severity="error", message=SCRIPT, topic="orders", partition=3)
        check.report.findings = [finding] * 2 + [Finding(kind="orphan-file", severity="info", message="n")]
        keep_report(check, clock.now_ms(), 75)
        clock.advance(60)
        text = text_of(web, "/log/maintenance")
        assert "error Found 1 error, 0 warnings, 1 note. Ran 1 min ago" in text
        assert "Took 1 min 15 s Checked without the batches" in text
        assert "missing-log orders-3 &lt;script&gt;" in text
        cluster.store.put(FSCK_KEY, b"{}")
        assert "missing-log" in text_of(web, "/log/maintenance"), "it is read every ten seconds"
        clock.advance(60)
        assert "meta/fsck.json cannot be read" in text_of(web, "/log/maintenance")
        keep_report(check, clock.now_ms(), 75)
        kept = cluster.store.get(FSCK_KEY, 1 << 20)
        for impossible in (b'"bytes":1' + b"0" * 400, b'"bytes":-1'):
            cluster.store.put(FSCK_KEY, re.sub(rb'"bytes":\d+', impossible, kept))
            clock.advance(60)
            assert "no check counts such numbers" in text_of(web, "/log/maintenance")


def test_the_commit_log_is_filtered_and_read_backwards(web: Web, shown: Coordinator) -> None:
    text = text_of(web, "/log/commits?kind=create_topic")
    assert "Commits" not in text or "create topic" in text
    assert "append," not in text
    newest = shown.state.version
    assert f"Of commits 0 to {newest:,}" in text
    assert "Of commits 0 to 9." in text_of(web, "/log/commits?before=10")


def test_a_commit_says_what_it_changed_and_that_its_digest_is_right(web: Web, shown: Coordinator) -> None:
    row = sparklog.system(cluster=shown).read("configs", topic="clicks").to_pylist()[-1]
    text = text_of(web, f"/log/commits/{row['version']}")
    assert "Configs of topic clicks: set retention.ms to 172800000." in text
    assert f"It names the digest of commit {row['version'] - 1:,}" in text
    assert "first commit" in text_of(web, "/log/commits/0")


def rows_of(web: Web, path: str) -> list[list[str]]:
    """Return the texts of the cells of all tables of a page."""
    rows = re.findall(r"<tr>(<td.*?)</tr>", web.get(path).text, re.DOTALL)
    return [
        [
            " ".join(unescape(re.sub(r"<[^>]*>", " ", cell)).split())
            for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)
        ]
        for row in rows
    ]


def test_a_commit_shows_each_value_before_and_after(web: Web, shown: Coordinator) -> None:
    system = sparklog.system(cluster=shown)
    config = system.read("configs", topic="clicks").to_pylist()[-1]
    assert ["Topic clicks", "configs retention.ms", "86400000", "172800000"] in rows_of(
        web, f"/log/commits/{config['version']}"
    )
    append = system.read("appends", topic="orders").to_pylist()[-1]
    end = append["base_offset"] + append["records"]
    assert [f"orders-{append['partition']}", "log end offset", f"{append['base_offset']:,}", f"{end:,}"] in rows_of(
        web, f"/log/commits/{append['version']}"
    )
    offsets = [row for row in system.read("offsets", group="billing").to_pylist() if row["partition"] == 3]
    before, after = offsets[-2:]
    assert ["Group billing, orders-3", "offset", f"{before['offset']:,}", f"{after['offset']:,}"] in rows_of(
        web, f"/log/commits/{after['version']}"
    )
    created = rows_of(web, "/log/commits/1?d.sort=name")
    assert ["Topic orders", "configs value.format", "–", "json"] in created
    assert ["orders-5", "in sync", "–", "0"] in created


def test_a_commit_whose_past_is_missing_or_that_was_edited_says_so() -> None:
    clock = ManualClock()
    cluster = create_cluster(MemoryStore("edited-page", clock), clock=clock)
    for number in range(6):
        cluster.create_topic(f"t{number}")
    cluster.store.delete(commit_key(1))
    data = bytes(cluster.store.get(commit_key(4)))
    cluster.store.put(commit_key(4), data.replace(b'"t3"', b'"t9"'))
    with serving(cluster, clock=clock) as web:
        text = text_of(web, "/log/commits/2")
        assert "Commit 1 is damaged or missing." in text
        assert "the state before commit 2 is not known: commit 1 is absent" in text
        assert "invalid commit" not in text
        assert "removed behind a checkpoint" not in text + text_of(web, "/log/commits/0"), "it was lost"
        missing = web.get("/log/commits/1")
        assert (missing.status, "`sparklog fsck` says what can be done" in missing.text) == (200, True)
        for page in ("/log", "/log/topics/t5"):
            answer = web.get(page)
            assert (answer.status, "`sparklog fsck` says what can be done" in answer.text) == (200, True)
        assert "invalid" in text_of(web, "/log/commits/4")
        for version, word in ((3, "Commit 4 is damaged or"), (5, "Commit 4 is damaged or")):
            assert word in text_of(web, f"/log/commits/{version}")
        cluster.store.put(boundary_mark_key(1), b"")
        assert "The commit before it was removed behind a checkpoint." in text_of(web, "/log/commits/2")
        assert "commit 1 was removed behind a checkpoint" in web.get("/log/commits/1").text


def records_of(text: str) -> list[tuple[int, int]]:
    found = re.findall(r'class="meta"><a href="/log/topics/[a-z]+/records/(\d+)/(\d+)', text)
    return [(int(partition), int(offset)) for partition, offset in found]


def test_records_are_read_from_the_end_the_start_an_offset_and_a_time(web: Web, shown: Coordinator) -> None:
    end = shown.state.partition("orders", 2).log_end_offset
    path = "/log/topics/orders/records?partition=2&limit=20"
    assert records_of(web.get(path).text) == [(2, end - 1 - number) for number in range(20)]
    assert records_of(web.get(f"{path}&from=start").text) == [(2, number) for number in range(20)]
    assert records_of(web.get(f"{path}&from=offset&at=33").text)[0] == (2, 33)
    assert records_of(web.get(f"{path}&at={end + 5}&from=offset").text) == []
    timed = records_of(web.get(f"{path}&from=time&at=30m").text)
    at = shown.log.clock.now_ms() - 30 * 60_000
    place = sparklog.TopicPartition("orders", 2)
    with sparklog.Consumer(cluster=shown) as consumer:
        expected = consumer.offsets_for_times({place: at})[place]
    assert expected is not None
    assert timed[0] == (2, expected.offset)


def test_all_records_of_a_partition_are_reached_by_older_and_newer(web: Web, shown: Coordinator) -> None:
    end = shown.state.partition("clicks", 0).log_end_offset
    for origin, word, expected in (("start", "Newer", range(end)), ("end", "Older", range(end - 1, -1, -1))):
        path, seen = f"/log/topics/clicks/records?partition=0&limit=200&from={origin}", []
        while path:
            text = web.get(path).text
            seen += [offset for _, offset in records_of(text)]
            link = re.search(rf'<a href="([^"]*)">[← ]*{word}', text)
            path = link[1].replace("&amp;", "&") if link else ""
        assert seen == list(expected)


def test_records_of_several_partitions_are_in_the_order_of_time(web: Web) -> None:
    text = web.get("/log/topics/orders/records?limit=100").text
    times = re.findall(r'<time title="[^"]*">([^<]*)</time>', text)
    assert len(times) == 100
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ("key=tombstone", [2]),
        ("value=hello", [0]),
        ("header=none", [5]),
        ("header=empty=", [5]),
        ("key=x&value=y", []),
    ],
)
def test_records_are_filtered(web: Web, filters: str, expected: list[int]) -> None:
    text = web.get(f"/log/topics/audit/records?from=start&{filters}").text
    assert [offset for _, offset in records_of(text)] == expected


def test_records_are_filtered_by_a_field_of_their_json(web: Web) -> None:
    text = web.get("/log/topics/orders/records?from=start&limit=200&field=order+%3C+3").text
    assert len(records_of(text)) == 3


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("from=start&field=cents+%3E+50", [0, 1]),
        ("from=start&field=payer+%3D+berta", [1]),
        ("from=start&field=paid+%3D+2026-11-01&key=p0", [0]),
        ("from=time&at=2000-01-01T00:00:00Z&header=trace", []),
        ("from=offset&at=1&key=p&field=cents+%3C+100", [1, 2]),
        ("from=end&key=p6", [6]),
    ],
)
def test_records_in_avro_are_filtered_by_their_fields(web: Web, query: str, expected: list[int]) -> None:
    assert [offset for _, offset in records_of(web.get(f"/log/topics/payments/records?{query}").text)] == expected


def test_records_are_found_by_time_key_and_header_together(web: Web, shown: Coordinator) -> None:
    path = "/log/topics/orders/records?from=time&at=30m&key=customer-3&header=trace=3b&field=amount+%3E+10"
    assert records_of(web.get(path).text)
    assert not records_of(web.get(path.replace("trace=3b", "trace=zz")).text)


def test_values_in_avro_are_shown_by_the_schema_of_their_topic(web: Web) -> None:
    text = html.unescape(web.get("/log/topics/payments/records?from=start").text)
    assert '{"payer": "anna", "cents": 1250, "notes": [], "paid": "2026-11-01"}' in text
    assert text.count("not shown as Avro: it does not fit the schema: ") == 2
    assert "not shown as Avro: it has 293 KiB, and here at most 16 KiB are read as Avro" in text
    assert "absent tombstone" in text
    assert "absent empty" in text
    assert '"cents": 99,\n' in html.unescape(web.get("/log/topics/payments/records/0/1").text)
    assert "no Avro schema for its keys" in web.get("/log/topics/payments/records/0/1?format=avro").text


def test_null_empty_and_tombstone_are_told_apart(web: Web) -> None:
    text = web.get("/log/topics/audit/records?from=start").text
    for kind in ("absent empty", "absent tombstone", "absent null"):
        assert f'class="{kind}"' in text


def test_hostile_bytes_are_escaped_and_bounded(web: Web) -> None:
    for path in ("/log/topics/audit/records?from=start", *(f"/log/topics/audit/records/0/{n}" for n in range(10))):
        for form in FORMATS:
            text = web.get(f"{path}{'&' if '?' in path else '?'}format={form}").text
            assert SCRIPT not in text
            assert "<img" not in text
            assert OVERRIDE not in text
            assert CONTROL not in text
            assert len(text) < 2_000_000
    shown = web.get("/log/topics/audit/records?from=start").text
    assert "the beginning of 293 KiB" in shown
    assert len(shown) < 60_000


def test_a_value_of_64_mib_makes_small_pages() -> None:
    large = 64 * 1024 * 1024
    with sparklog.testing.cluster() as cluster:
        cluster.create_topic("large", configs={"max.message.bytes": str(2 * large)})
        append_records(cluster.coordinator, "large", [Record(b"k", b"<" * large), Record(b"k", b"small")])
        with serving(cluster.coordinator) as web:
            download = web.get("/log/topics/large/records/download?from=start&as=parquet")
            rows = pq.read_table(pa.BufferReader(download.content)).to_pylist()
            assert [(len(row["value"]), row["value_bytes"]) for row in rows] == [(1024 * 1024, large)]
            assert download.headers["x-sparklog-stopped"] == "64 MiB were read"
            for path in ("records?from=start&format=avro", "records?from=start&value=small", "records/0/0"):
                answer = web.get(f"/log/topics/large/{path}")
                assert answer.status == 200
                assert len(answer.text) < 1_500_000
            assert len(web.get("/log/topics/large/records/0/0/value").text) == large


def test_a_value_is_downloaded_as_it_is_and_never_opened_as_a_page(web: Web) -> None:
    answer = web.get("/log/topics/audit/records/0/4/value")
    assert answer.text == f"<img src=x onerror=alert(1)>{SCRIPT}"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == 'attachment; filename="audit-0-4.bin"'
    assert web.get("/log/topics/audit/records/0/2/value").status == 400


def test_records_are_downloaded_as_json_and_csv(web: Web) -> None:
    csv.field_size_limit(1_000_000)
    lines = web.get("/log/topics/audit/records/download?from=start").text.splitlines()
    assert [json.loads(line)["offset"] for line in lines] == list(range(10))
    answer = web.get("/log/topics/audit/records/download?from=start&as=csv")
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert rows[9]["value"].startswith("'=cmd")


def test_records_are_downloaded_as_parquet_with_their_bytes_as_they_are(web: Web) -> None:
    answer = web.get("/log/topics/audit/records/download?from=start&as=parquet")
    assert answer.headers["content-type"] == "application/vnd.apache.parquet"
    assert answer.headers["content-disposition"] == 'attachment; filename="audit.parquet"'
    rows = pq.read_table(pa.BufferReader(answer.content)).to_pylist()
    assert [row["offset"] for row in rows] == list(range(10))
    assert [row["value"] for row in rows[:4]] == [b"hello", b"", None, None]
    assert rows[6]["key"] == b"\xff\xfe\x00\x01"
    assert rows[5]["headers"] == [{"key": "none", "value": None}, {"key": "empty", "value": b""}]
    assert rows[8]["value_bytes"] == 300_000


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/log/topics/missing", 404),
        ("/log/group?name=missing", 404),
        ("/other/topics", 404),
        ("/log/nothing", 404),
        ("/log/topics/orders/records/9/0", 404),
        ("/log/topics/orders/records/0/999999999", 400),
        ("/log/commits/999999999", 400),
        ("/log/commits/99999999999999999999999999", 400),
        ("/log/commits/" + "9" * 5000, 404),
        ("/log/topics/orders/records/0/" + "9" * 5000, 404),
        ("/log/topics?page=x", 400),
        ("/log/topics/orders?since=never", 400),
        ("/log/topics/orders/records?partition=6", 400),
        ("/log/topics/orders/records?at=x&from=time", 400),
        ("/log/topics/orders/records?field=nonsense", 400),
        ("/log/topics/orders/records?limit=1000000", 400),
        ("/log/topics?q=" + "x" * 5000, 400),
        ("/log/topics?" + "&".join(f"p{number}=1" for number in range(100)), 400),
    ],
)
def test_an_invalid_request_is_answered_with_its_reason(web: Web, path: str, status: int) -> None:
    answer = web.get(path)
    assert answer.status == status, answer.text
    assert "Traceback" not in answer.text


def test_several_clusters_have_pages_of_their_own(shown: Coordinator) -> None:
    with (
        sparklog.testing.cluster(topics={"alone": 1}) as other,
        serving(shown, other.coordinator, names=("log", "second")) as web,
    ):
        text = web.get("/").text
        assert 'href="/second"' in text
        assert "alone" in web.get("/second/topics").text
        assert "alone" not in web.get("/log/topics").text


def test_pages_show_the_last_state_and_say_so_while_the_storage_fails() -> None:
    clock, failing = ManualClock(), False

    def fail(_: int, call: Call) -> None:
        if failing:
            raise StorageUnavailableError(f"no answer to {call.operation}")

    store = FaultyStore(MemoryStore("failing-page", clock), before=fail)
    cluster = create_cluster(store, clock=clock)
    cluster.create_topic("orders")
    with serving(cluster, clock=clock) as web:
        failing = True
        web.followers["log"].refresh()
        text = text_of(web, "/log/topics")
        assert "orders" in text
        assert "because the storage failed: no answer to" in text
        failing = False
        web.followers["log"].refresh()
        assert "because" not in text_of(web, "/log/topics")


def test_viewers_of_a_quiet_cluster_read_nothing_twice(shown: Coordinator) -> None:
    follower = ClusterFollower("log", shown)
    first = follower.read("groups")
    assert follower.read("groups") is first
    assert follower.read("members") is not first


def test_a_page_does_not_wait_for_commits_that_take_long_to_read(shown: Coordinator) -> None:
    with serving(shown, clock=shown.log.clock, patience=0) as web:
        answer = web.get("/log")
        assert "are being read" in answer.text
        assert answer.headers["refresh"] == "2"
        assert "Topics" in answer.text
        wait_until(lambda: "in all" in web.get("/log").text)
        assert "refresh" not in web.get("/log").headers
        assert web.get("/log/maintenance").status == 200


def test_a_page_does_not_wait_for_the_version_of_a_time_that_takes_long_to_find() -> None:
    clock, answers = ManualClock(), threading.Event()
    answers.set()
    store = FaultyStore(MemoryStore("slow-page", clock), before=lambda number, call: assert_waited(answers))
    cluster = create_cluster(store, clock=clock)
    clock.advance(3600)
    cluster.create_topic("orders")
    with serving(cluster, clock=clock, patience=0.01) as web:
        answers.clear()
        try:
            for path in ("/log/transactions", "/log/maintenance"):
                answer = web.get(path)
                assert (answer.status, answer.headers["refresh"]) == (200, "2")
        finally:
            answers.set()
        wait_until(lambda: "refresh" not in web.get("/log/transactions").headers)


def test_pages_of_a_cluster_whose_storage_hangs_do_not_hold_up_those_of_another() -> None:
    answers, hanging = threading.Event(), threading.Semaphore(0)
    answers.set()

    def hang(number: int, call: Call) -> None:
        if not answers.is_set():
            hanging.release()
            assert_waited(answers)

    clusters = create_cluster(FaultyStore(MemoryStore("hanging-page"), before=hang)), create_cluster(MemoryStore("ok"))
    with serving(*clusters, names=("hanging", "sound")) as web:
        answers.clear()
        visitors = [threading.Thread(target=web.get, args=("/hanging/commits/0",)) for _ in range(60)]
        try:
            for visitor in visitors:
                visitor.start()
            assert all(hanging.acquire(timeout=60) for _ in range(CLUSTER_THREADS))
            assert web.get("/sound/topics").status == 200
            assert not hanging.acquire(blocking=False), "others wait until one of these ends"
        finally:
            answers.set()
            for visitor in visitors:
                visitor.join(60)


def assert_waited(event: threading.Event) -> None:
    assert event.wait(60)


def test_a_follower_reads_new_commits_by_itself() -> None:
    with sparklog.testing.cluster() as cluster:
        follower = ClusterFollower("log", open_cluster(cluster.bootstrap_servers))
        follower.start()
        try:
            cluster.create_topic("orders")
            wait_until(lambda: "orders" in follower.state().topics)
        finally:
            follower.stop()


def test_a_follower_goes_on_after_any_error_and_says_what_it_was(caplog: pytest.LogCaptureFixture) -> None:
    is_out_of_memory = False

    def fail(_: int, call: Call) -> None:
        if is_out_of_memory:
            raise MemoryError("no memory")

    cluster = create_cluster(FaultyStore(MemoryStore("unexpected-error"), before=fail))
    follower = ClusterFollower("log", cluster, watched_seconds=0.01)
    follower.start()
    try:
        is_out_of_memory = True
        wait_until(lambda: follower.state() is not None and follower.status.problem == "MemoryError: no memory")
        is_out_of_memory = False
        wait_until(lambda: follower.state() is not None and not follower.status.problem)
    finally:
        follower.stop()


def test_downloads_at_the_same_time_are_few_since_each_is_in_memory(web: Web) -> None:
    path = "/log/topics/audit/records/download?from=start"
    for _ in range(2 * MAX_DOWNLOADS):
        assert web.get(path).status == 200
        assert web.get(f"{path}&field=nonsense").status == 400
        assert web.get("/log/topics/audit/records/0/4/value").status == 200
        assert web.get("/log/topics/audit/records/0/2/value").status == 400
    with ExitStack() as stack:
        for _ in range(MAX_DOWNLOADS):
            stack.enter_context(web.site.downloads)
        answer = web.get(path)
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert web.get("/log/topics/audit/records").status == 200
    assert web.get(path).status == 200


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
