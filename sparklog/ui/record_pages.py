"""The record browser: records of a topic from an offset, a time or the end, one record, and downloads.

Rules: bounded (``record_search``); a page says when it did not look at everything. Not for: other pages (``pages``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from sparklog.config.topic_configs import TopicConfig
from sparklog.errors import InvalidConfigurationError, OffsetOutOfRangeError
from sparklog.monitoring.arguments import parse_time
from sparklog.protocol.schema_versions import find_record_schema
from sparklog.ui.follower import StillReading
from sparklog.ui.record_search import FoundRecords, Search, find_starts, read_record, search
from sparklog.ui.shared_searches import TooEarly
from sparklog.ui.site import Site, SitePage, Visit
from sparklog.ui.views.avro import AvroPart
from sparklog.ui.views.downloads import to_csv, to_json_lines, to_parquet
from sparklog.ui.views.query import Query, address
from sparklog.ui.views.record_filter import RecordFilter, parse_record_filter
from sparklog.ui.views.records import FORMATS, AvroParts, FoundRecord, show_record
from sparklog.ui.views.text import number, size

LIMITS = ("20", "50", "100", "200")
MAX_PARTITIONS = 100
"""Partitions that a search over all of them reads; a topic with more is searched one partition at a time."""
DOWNLOAD_RECORDS = 10_000
DOWNLOAD_BYTES = 1024 * 1024
"""Bytes of one key or value in a download; more is cut. ``key_bytes`` and ``value_bytes`` say how many there are."""
RECORD_CHARACTERS = 256 * 1024
RENEW_SECONDS = 3
"""Seconds after which a live page renews itself without scripts; ``page.js`` has its own."""
_FROM = ("end", "start", "offset", "time")
_MAX_OFFSET = 2**62


class Browse(NamedTuple):
    """What the form of the record browser asks for. ``avro`` is how keys and values in Avro are read."""

    partition: int | None
    origin: str
    at: str
    limit: int
    form: str
    admits: RecordFilter
    search: Search
    avro: AvroParts

    @property
    def is_tail(self) -> bool:
        """Whether the newest records are asked for, which a live page follows."""
        return self.origin == "end" and not self.at


def parse_browse(visit: Visit, limit: int = 0, kept_bytes: int = 0) -> Browse:
    """Return what a query asks for. Raises InvalidConfigurationError, UnknownTopicOrPartitionError, StorageError."""
    query, topic = visit.query, visit.state.topic(visit.path["topic"])
    given = query.text("partition")
    partition = query.number("partition", 0, 0, len(topic.partitions) - 1) if given else None
    numbers = [partition] if partition is not None else list(range(len(topic.partitions)))
    if len(numbers) > MAX_PARTITIONS:
        numbers = numbers[:1]
        partition = 0
    at = query.text("at")
    origin = query.choice("from", _FROM, ("offset" if at.isdigit() else "time") if at else "end")
    starts = _starts(visit, topic.name, numbers, origin, at)
    count = limit or int(query.choice("limit", LIMITS, "50"))
    wanted = Search(topic.name, starts, origin == "end", count)
    avro = _avro_parts(visit)
    key, value, header, field = (query.text(name) for name in ("key", "value", "header", "field"))
    return Browse(
        partition,
        origin,
        at,
        count,
        query.choice("format", FORMATS, "auto"),
        parse_record_filter(key, value, header, field, avro.value.documents),
        wanted._replace(kept_bytes=kept_bytes) if kept_bytes else wanted,
        avro,
    )


def _avro_parts(visit: Visit) -> AvroParts:
    topic = visit.state.topic(visit.path["topic"])
    schema = find_record_schema(topic, TopicConfig.resolve(topic.configs, visit.state.configs))
    monotonic = visit.cluster.coordinator.log.clock.monotonic
    return AvroParts(AvroPart("key", schema.key, monotonic), AvroPart("value", schema.value, monotonic))


def _starts(visit: Visit, topic: str, numbers: list[int], origin: str, at: str) -> dict[int, int]:
    """Return the offset at which a search begins in each partition, moved into the log."""
    states = {number: visit.state.partition(topic, number) for number in numbers}
    if origin == "time":
        if not at:
            raise InvalidConfigurationError("invalid at: give a time, such as 2026-11-01T09:30:00Z or 90m", config="at")
        time_ms = parse_time("at", at.replace("Z", "+00:00"), visit.now_ms)
        return find_starts(visit.cluster.coordinator, visit.state, topic, numbers, time_ms)
    if origin == "start":
        return {number: state.log_start_offset for number, state in states.items()}
    offset = visit.query.number("at", _MAX_OFFSET, 0, _MAX_OFFSET) if at else _MAX_OFFSET
    if origin == "offset" and not at:
        offset = 0
    return {number: min(max(offset, state.log_start_offset), state.high_watermark) for number, state in states.items()}


def show_records(visit: Visit) -> SitePage:
    """Return the record browser with the records that its form asks for. Raises StillReading."""
    topic = visit.state.topic(visit.path["topic"])
    browse = parse_browse(visit)
    is_live = browse.is_tail and visit.query.choice("live", ("on", "off"), "off") == "on"
    visit = visit._replace(query=Query(visit.query.path, {**visit.query.parameters, "live": ""}))
    try:
        found = visit.cluster.searches.find(visit.state, browse.search, browse.admits, is_live)
    except TooEarly:
        raise StillReading from None
    records = _in_order(found, browse)
    download = visit.query._replace(path=f"{visit.query.path}/download")
    shown = (
        show_record(record, visit.name, topic.name, browse.form, visit.now_ms, avro=browse.avro) for record in records
    )
    values: dict[str, Any] = {
        "title": topic.name,
        "topic": topic,
        "tab": "records",
        "browse": browse,
        "formats": FORMATS,
        "limits": LIMITS,
        "origins": _FROM,
        "partitions": len(topic.partitions),
        "records": list(shown),
        "found": found,
        "read": f"{number(found.read)} records ({size(found.read_bytes)}) read",
        "older": _older(visit, browse, found, records),
        "newer": _newer(visit, browse, found, records),
        "downloads": {form.title: download.link(**{"as": name}) for name, form in _FILES.items()},
        "live": visit.query.link(live="on") if browse.is_tail else "",
        "still": visit.query.link(),
        "is_live": is_live,
        "renew_seconds": RENEW_SECONDS,
    }
    return SitePage("records.html", values)


def _in_order(found: FoundRecords, browse: Browse) -> list[FoundRecord]:
    """Return the records newest first from the end, else oldest first; of several partitions by time."""
    records = found.records
    if browse.partition is None and len(browse.search.starts) > 1:
        key = lambda record: (record.timestamp_us, record.partition, record.offset)  # noqa: E731
        records = sorted(records, key=key, reverse=browse.search.backwards)
    return records[: browse.limit]


def _one_partition(browse: Browse) -> int | None:
    """Return the partition of a search in one, None for several, which have no next page."""
    return next(iter(browse.search.starts)) if len(browse.search.starts) == 1 else None


def _newer(visit: Visit, browse: Browse, found: FoundRecords, records: list[FoundRecord]) -> str:
    partition = _one_partition(browse)
    if partition is None or browse.search.backwards:
        return ""
    position = found.next[partition]
    if position >= visit.state.partition(browse.search.topic, partition).high_watermark:
        return ""
    return _moved(visit, {"from": "offset", "at": position, "partition": partition})


def _older(visit: Visit, browse: Browse, found: FoundRecords, records: list[FoundRecord]) -> str:
    partition = _one_partition(browse)
    if partition is None:
        return ""
    first = browse.search.starts[partition]
    if browse.search.backwards:
        first = found.next[partition]
    if first <= visit.state.partition(browse.search.topic, partition).log_start_offset:
        return ""
    return _moved(visit, {"from": "end", "at": first, "partition": partition})


def _moved(visit: Visit, changes: Mapping[str, object]) -> str:
    return visit.query.link(**changes)


def show_one_record(visit: Visit) -> SitePage:
    """Return the page of one record."""
    topic = visit.state.topic(visit.path["topic"])
    partition, offset = int(visit.path["partition"]), int(visit.path["offset"])
    state = visit.state.partition(topic.name, partition)
    record = _find_record(visit, partition, offset, RECORD_CHARACTERS)
    form = visit.query.choice("format", FORMATS, "auto")
    values = {
        "title": f"{topic.name}-{partition} at {offset:,}",
        "topic": topic,
        "tab": "records",
        "partition": partition,
        "formats": FORMATS,
        "form": form,
        "record": record
        and show_record(record, visit.name, topic.name, form, visit.now_ms, RECORD_CHARACTERS, _avro_parts(visit)),
        "offset": offset,
        "previous": _record_address(visit, partition, offset - 1) if offset > state.log_start_offset else "",
        "next": _record_address(visit, partition, offset + 1) if offset + 1 < state.high_watermark else "",
        "context": address(visit.name, "topics", topic.name, "records", partition=partition, at=offset),
        "value_href": address(visit.name, "topics", topic.name, "records", partition, offset, "value")
        if record and record.value
        else "",
    }
    return SitePage("record.html", values)


def _record_address(visit: Visit, partition: int, offset: int) -> str:
    form = visit.query.text("format")
    return address(visit.name, "topics", visit.path["topic"], "records", partition, offset, format=form)


def _find_record(visit: Visit, partition: int, offset: int, kept_bytes: int) -> FoundRecord | None:
    """Return the record at an offset, None if it was removed. Raises OffsetOutOfRangeError outside of the log."""
    topic = visit.state.topic(visit.path["topic"]).name
    state = visit.state.partition(topic, partition)
    if not state.log_start_offset <= offset < state.high_watermark:
        raise OffsetOutOfRangeError(
            f"offset {offset} of {topic}-{partition} is out of range: the log has offsets from "
            f"{state.log_start_offset} and ends before {state.high_watermark}",
            topic=topic,
            partition=partition,
            offset=offset,
        )
    return read_record(visit.cluster.coordinator, visit.state, topic, partition, offset, kept_bytes)


# -- downloads


class _File(NamedTuple):
    """A kind of file: how links call it, the end of its name, its media type, and what makes it."""

    title: str
    suffix: str
    media_type: str
    write: Callable[[str, Sequence[FoundRecord]], Iterator[bytes]]


_FILES = {
    "json": _File("JSON", "jsonl", "application/x-ndjson", to_json_lines),
    "csv": _File("CSV", "csv", "text/csv; charset=utf-8", to_csv),
    "parquet": _File("Parquet", "parquet", "application/vnd.apache.parquet", to_parquet),
}


class _Download(Response):
    """A response with records, which is one of the downloads of its site until it has ended."""

    def __init__(self, content: Response, site: Site) -> None:
        self._content = content
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._content(scope, receive, send)
        finally:
            self._site.downloads.release()


def _download(make: Callable[[Visit], Response], visit: Visit) -> Response:
    """Return the file that ``make`` makes, or that there are too many downloads now."""
    if not visit.site.downloads.acquire(blocking=False):
        return PlainTextResponse("Too many downloads at the same time: try again.\n", 503, {"retry-after": "5"})
    try:
        return _Download(make(visit), visit.site)
    except BaseException:
        visit.site.downloads.release()
        raise


def download_records(visit: Visit) -> Response:
    """Return the records that the form asks for, up to ``DOWNLOAD_RECORDS`` of each partition, as a file."""
    return _download(_make_file, visit)


def download_value(visit: Visit) -> Response:
    """Return the bytes of one value as a file, which no browser opens by itself."""
    return _download(_make_value, visit)


def _make_file(visit: Visit) -> Response:
    form = visit.query.choice("as", _FILES, "json")
    browse = parse_browse(visit, DOWNLOAD_RECORDS, DOWNLOAD_BYTES)
    found = search(visit.cluster.coordinator, visit.state, browse.search, browse.admits)
    records = _in_order(found, browse)
    for error in found.unreadable:  # a file that lacks records without saying so helps nobody
        raise error
    topic = browse.search.topic
    headers = _attachment(f"{topic}.{_FILES[form].suffix}")
    if found.stopped:
        headers["x-sparklog-stopped"] = found.stopped
    if form == "parquet":
        headers["content-encoding"] = "identity"  # it is compressed
    content = _FILES[form].write(topic, records)
    return StreamingResponse(content, media_type=_FILES[form].media_type, headers=headers)


def _make_value(visit: Visit) -> Response:
    partition, offset = int(visit.path["partition"]), int(visit.path["offset"])
    record = _find_record(visit, partition, offset, _MAX_OFFSET)
    if record is None or record.value is None:
        raise OffsetOutOfRangeError(f"there is no value at offset {offset}", partition=partition, offset=offset)
    name = f"{visit.path['topic']}-{partition}-{offset}.bin"
    return Response(record.value, media_type="application/octet-stream", headers=_attachment(name))


def _attachment(name: str) -> dict[str, str]:
    safe = "".join(
        character if (character.isalnum() and character.isascii()) or character in "-_." else "_" for character in name
    )
    return {"content-disposition": f'attachment; filename="{safe}"'}
