"""Random histories of a topic with a table: the steps, what each of them has to leave in the log, and what every reader
has to return of it.

    topic = TopicUnderTest(folder, compacted=True)
    for step in random_steps(Random(7)):
        topic.run(step)
    assert rows_with_types(sparklog.scan("t", topic.root).to_arrow()) == ...  # the records of topic.check_log()
    topic.check_table([read_with_deltalake])

The truth is kept here, without the package's help: the records that were committed, by offset; what may be missing of
them; and which typed columns a value has under each of the schemas.

Not for: timing and concurrency (``tests/simulation``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

import sparklog
from sparklog import TopicPartition
from sparklog.delta.publication import application_id
from sparklog.errors import StaleWriteError
from sparklog.maintenance.segments.retention import retain
from sparklog.protocol.history import history_of
from sparklog.testing.records import Record, append_records
from tests.cluster.maintenance.published_tables import (
    DELTA,
    FAULTS,
    JOBS,
    Row,
    alter,
    cluster_in,
    delete_share,
    fail_job,
)

TOPIC = "t"
PARTITIONS = 2
COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")
KEPT = "_value_kept"
CONFIGS = {**DELTA, "internal.segment.bytes": "3000", "min.cleanable.dirty.ratio": "0.01"}
MAINTENANCE = tuple(JOBS)
ENDS = ("commit", "abort", "open")

Step = tuple[Any, ...]
"""A step's name and its arguments: ``append`` and ``transaction`` a partition, files or records, and a number that
chooses the values; ``delete`` a partition and a share of its records; ``expire`` a share; ``fail`` a maintenance step,
the storage call that fails, and how."""

# -- values and their typed columns

BASE = "name string, number bigint, total bigint, amount decimal(9,2), placed timestamp, tags array<string>"
SCHEMAS = (
    "",
    BASE,
    f"{BASE}, channel string",
    f"{BASE}, channel string".replace("number bigint", "number bigint NOT NULL"),
    f"{BASE}, channel string, place struct<city: string, zip: int>".replace("number bigint", "number bigint NOT NULL"),
    f"{BASE}, channel string, place struct<city: string, zip: int>",
)
"""The schemas that a topic has one after the other, none at first."""

ADDED = {"channel": 2, "place": 4}
"""Fields that are not in the first schema, and the number of the schema that adds them."""

REQUIRED = (3, 4)
"""Schemas in which ``number`` is required."""

Typed = dict[str, Any]
"""The typed columns of a record that its reader returns, by name."""

_FIRST = datetime(2026, 11, 1, tzinfo=timezone.utc)


class Value(NamedTuple):
    """A value, its fields as Python objects (None: it is not an object of these fields), and the fields that are of a
    wrong type."""

    data: bytes | None
    fields: Typed | None
    wrong: frozenset[str] = frozenset()

    def fits(self, schema: int) -> bool:
        if self.data is None:
            return True
        if self.fields is None or any(ADDED.get(name, 1) <= schema for name in self.wrong):
            return False
        return schema not in REQUIRED or self.fields.get("number") is not None

    def typed(self, schema: int) -> Typed:
        """Return the typed columns under a schema."""
        names = names_of(schema)
        if not names:
            return {}
        fields = self.fields if self.fits(schema) and self.fields is not None else {}
        return {**{name: fields.get(name) for name in names}, "_unfit": not self.fits(schema)}


def names_of(schema: int) -> list[str]:
    """Return the fields of a schema, by its number."""
    first = ["name", "number", "total", "amount", "placed", "tags"] if schema else []
    return first + [name for name, since in ADDED.items() if since <= schema]


def value_of(number: int, kind: int) -> Value:
    """Return one of the kinds of values that fit, or do not, under some of the schemas."""
    full = {
        "name": f"n{number}",
        "number": number,
        "total": 10 * number + 1,
        "amount": Decimal(number) + Decimal("0.25"),
        "placed": _FIRST + timedelta(seconds=number),
        "tags": [f"t{number}", None],
        "channel": f"c{number}",
        "place": {"city": f"p{number}", "zip": number},
    }
    some = {"number": number, "name": f"n{number}"}
    stated = {"name": f"n{number}", "number": number, "tags": ["\n", None]}
    kinds: tuple[Callable[[], Value], ...] = (
        lambda: Value(encode(full), full),
        lambda: Value(encode({**some, "unknown": [1]}), some),
        lambda: Value(encode({"channel": f"c{number}"}), {"channel": f"c{number}"}),
        lambda: Value(encode({**full, "channel": number}), full, frozenset(["channel"])),
        lambda: Value(encode({**full, "number": "one"}), full, frozenset(["number"])),
        lambda: Value(encode({**full, "place": {"zip": 2**31}}), full, frozenset(["place"])),
        lambda: Value(b"no %d" % number, None),
        lambda: Value(b"", None),
        lambda: Value(None, None),
        lambda: Value(encode(stated), stated),
    )
    return kinds[kind % len(kinds)]()


def encode(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, default=str, separators=(",", ":")).encode()


# -- steps


def random_steps(random: Random, count: int = 30) -> list[Step]:
    """Return steps as the property test chooses them, for tests that run few histories."""
    steps: list[Step] = []
    for _ in range(count):
        partition, many, kind = random.randrange(PARTITIONS), random.randint(1, 5), random.randrange(100)
        steps.append(
            random.choice(
                [
                    ("append", partition, many, kind),
                    ("append", partition, many, kind),
                    ("transaction", partition, many, kind, random.choice(ENDS)),
                    ("finish", random.choice(ENDS[:2])),
                    ("delete", partition, random.random()),
                    ("expire", random.random()),
                    ("schema",),
                    ("roll",),
                    (random.choice(MAINTENANCE),),
                    ("fail", random.choice(MAINTENANCE), random.randrange(25), random.choice(FAULTS)),
                ]
            )
        )
    return steps


class Written(NamedTuple):
    """A record that was committed."""

    key: bytes | None
    value: Value
    timestamp_us: int
    headers: tuple[tuple[str, bytes | None], ...]


class TopicUnderTest:
    """A topic on a disk, what was committed to it, and the history that its table has to show.

    ``shown``: by version of the log, the records of the history after the step that ended at this version, None if
    records wait to be deleted by a rewrite; ``ends`` are the partitions' end offsets. ``open``: a transaction that is
    neither committed nor aborted, and its records by partition. ``kept``: without it the history leaves out values.
    """

    def __init__(self, folder: Path, compacted: bool, schema: int = 0, kept: bool = True) -> None:
        self.folder = folder
        self.kept = kept
        self.root = str(folder)
        self.cluster = cluster_in(folder)
        self.compacted = compacted
        self.schema = 0
        policy = {"cleanup.policy": "compact,delete"} if compacted else {}
        self.cluster.create_topic(TOPIC, PARTITIONS, configs={**CONFIGS, **policy})
        self.written: list[list[Written]] = [[] for _ in range(PARTITIONS)]
        self.shown: dict[int, list[Row] | None] = {}
        self.ends: dict[int, list[int]] = {}
        self.open: tuple[sparklog.Producer, dict[int, list[Written]]] | None = None
        self.minutes = self.numbers = self.producers = 0
        for _ in range(schema):
            self.run(("schema",))

    def run(self, step: Step) -> None:
        kind, *arguments = step
        if kind in JOBS:
            JOBS[kind](self.cluster)
        else:
            getattr(self, f"_{kind}")(*arguments)
        state = self.cluster.refresh()
        self.ends[state.version] = list(map(len, self.written))
        self.shown[state.version] = None if self._is_inexact() else self.history(self.log_rows())

    def close(self) -> None:
        if self.open is not None:
            self._finish("abort")

    # -- the steps

    def _new(self, count: int, kind: int) -> list[Written]:
        """Return records of a new minute, by which the segments before are closed."""
        self.minutes += 1
        records = []
        for _ in range(count):
            self.numbers += 1
            value = value_of(self.numbers, kind + self.numbers)
            needs_key = self.compacted or value.data is None
            key = b"k%d" % (self.numbers % 4) if needs_key or self.numbers % 3 else None
            headers = (("h", b"%d" % self.numbers), ("n", None)) if self.numbers % 5 == 0 else ()
            stamp = self.minutes * 60_000_000 + self.numbers * 1000
            records.append(Written(key, value, stamp, headers))
        return records

    def _append(self, partition: int, files: int, kind: int) -> None:
        for number in range(files):
            records = self._new(1 + (kind + number) % 3, kind)
            rows = [Record(each.key, each.value.data, each.headers, each.timestamp_us, partition) for each in records]
            append_records(self.cluster, TOPIC, rows)
            self.written[partition] += records

    def _transaction(self, partition: int, count: int, kind: int, end: str) -> None:
        """Send to two partitions in a transaction, which ends now or later."""
        if self.open is not None:
            self._finish("commit")
        self.producers += 1
        producer = sparklog.Producer(bootstrap_servers=self.root, transactional_id=f"tx{self.producers % 2}")
        producer.init_transactions()
        producer.begin_transaction()
        sent: dict[int, list[Written]] = {}
        for number in (partition, (partition + 1) % PARTITIONS):
            sent[number] = self._new(count, kind)
            for each in sent[number]:
                producer.send(
                    TOPIC, key=each.key, value=each.value.data, headers=list(each.headers), partition=number,
                    timestamp_ms=each.timestamp_us // 1000,
                )  # fmt: skip
        producer.flush()
        self.open = producer, sent
        if end != "open":
            self._finish(end)

    def _finish(self, end: str) -> None:
        if self.open is None:
            return
        producer, sent = self.open
        self.open = None
        if end == "commit" and _commit(producer):
            for partition, records in sent.items():
                self.written[partition] += records
        else:
            producer.abort_transaction()
        producer.close()
        self.cluster.refresh()

    def _delete(self, partition: int, share: float) -> None:
        delete_share(self.cluster, partition, share)

    def _expire(self, share: float) -> None:
        segments = self.cluster.segments(TOPIC, self.cluster.refresh())
        size = max(sum(each.size_bytes for each in segments.partition(number)) for number in range(PARTITIONS))
        alter(self.cluster, retention_bytes=str(int(share * size)))
        retain(self.cluster)
        alter(self.cluster, retention_bytes="-1")

    def _schema(self) -> None:
        if self.schema + 1 < len(SCHEMAS):
            self.schema += 1
            keep = "true" if self.kept else "false"
            alter(self.cluster, value_format="json", value_schema=SCHEMAS[self.schema], value_keep=keep)

    def _fail(self, job: str, step: int, kind: str) -> None:
        fail_job(self.root, job, step, kind)

    # -- what has to be there

    def log_rows(self) -> list[Row]:
        """Return the records of the log as ``Consumer`` returns them, times in milliseconds."""
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        rows: list[Row] = []
        with sparklog.Consumer(bootstrap_servers=self.root, auto_offset_reset="earliest") as consumer:
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            consumer.seek_to_beginning(*partitions)
            while any(consumer.position(partition) < end for partition, end in ends.items()):
                for records in consumer.poll(timeout_ms=1000).values():
                    rows += [
                        Row(each.partition, each.offset, each.timestamp * 1000, each.key, each.value, (*each.headers,))
                        for each in records
                    ]
        return sorted(rows, key=position)

    def check_log(self) -> list[Row]:
        """Check the log, as ``Consumer`` reads it, against what was committed; return its records."""
        rows = self.log_rows()
        for number, written in enumerate(self.written):
            state = self.cluster.refresh().partition(TOPIC, number)
            found = [row for row in rows if row.partition == number]
            offsets = [row.offset for row in found]
            assert state.log_end_offset == len(written), "a commit is lost, or there twice"
            assert offsets == sorted({*offsets}), "records twice, or out of order"
            assert [row for row in found if row.offset < state.log_start_offset] == []
            for row in found:
                assert row == self._row(number, row.offset)
            for offset in {*range(state.log_start_offset, len(written))} - {*offsets}:
                record = written[offset]
                newer = (each for each in written[offset + 1 :] if each.key == record.key)
                assert self.compacted, f"offset {offset} is missing"
                assert record.value.data is None or any(newer), f"offset {offset} is missing"
        return rows

    def _row(self, partition: int, offset: int) -> Row:
        record = self.written[partition][offset]
        return Row(partition, offset, record.timestamp_us, record.key, record.value.data, record.headers)

    def history(self, rows: Iterable[Row]) -> list[Row]:
        """Return those of the log's records that its history has now."""
        return [row for row in rows if row.offset < self._history_ends()[row.partition]]

    def _history_ends(self) -> list[int]:
        return [max((each.end_offset for each in self._history(number)), default=0) for number in range(PARTITIONS)]

    def _history(self, partition: int) -> list[Any]:
        state = self.cluster.refresh()
        start = state.partition(TOPIC, partition).log_start_offset
        return list(history_of(self.cluster.segments(TOPIC, state).partition(partition), start))

    def _is_inexact(self) -> bool:
        state = self.cluster.refresh()
        return any(
            segment.begins_before(state.partition(TOPIC, number).log_start_offset)
            for number in range(PARTITIONS)
            for segment in self._history(number)
        )

    def typed_in_log(self) -> dict[tuple[int, int], list[Typed]]:
        """Return the typed columns that each record of the log may have now, by partition and offset: those of the
        schema that its history file was written with, else those of the newest."""
        paths = {
            number: [(segment.base_offset, segment.end_offset, self.folder / segment.path) for segment in history]
            for number, history in enumerate(map(self._history, range(PARTITIONS)))
        }
        allowed = {}
        for number, written in enumerate(self.written):
            schemas = [[self.schema] for _ in written]
            for base, end, path in paths[number]:
                schemas[base:end] = [self.schemas_of(path)] * (end - base)
            for offset, record in enumerate(written):
                allowed[number, offset] = [self._shown_as(record.value.typed(schema)) for schema in schemas[offset]]
        return allowed

    def _shown_as(self, typed: Typed, schema: int | None = None) -> Typed:
        """Return typed columns as a table of the newest schema shows them."""
        names = names_of(self.schema if schema is None else schema)
        return {name: typed.get(name) for name in [*names, *(["_unfit"] if names else [])]}

    def schemas_of(self, path: Path) -> list[int]:
        """Return the schemas that a history file may have been written with."""
        names = {*pq.read_schema(path).names} - {*COLUMNS} - {"_unfit", KEPT}
        return [schema for schema in range(self.schema + 1) if {*names_of(schema)} == names]

    # -- what a Delta reader has to return

    def check_table(self, readers: Sequence[Callable[[Path], pa.Table]]) -> None:
        """Check what independent readers return of the Delta table, against the version of the log that it shows."""
        actions = [json.loads(line) for line in delta_lines(self.folder / "tables" / TOPIC)]
        if not actions:
            return
        application = application_id(self.cluster.state.cluster_id, TOPIC)
        version = [each["txn"]["version"] for each in actions if each.get("txn", {}).get("appId") == application][-1]
        files = listed_files(self.folder / "tables" / TOPIC)
        missing = [path.name for path in files if not path.exists()]
        assert not missing, f"the table lists files that are gone: {missing}"
        (*_, metadata) = [each["metaData"] for each in actions if "metaData" in each]
        columns = [field["name"] for field in json.loads(metadata["schemaString"])["fields"]]
        expected = self._table_typed(files, [name for name in columns[len(COLUMNS) :] if name != KEPT])
        for reader in readers:
            read = self.with_values(rows_with_types(reader(self.folder / "tables" / TOPIC), columns[len(COLUMNS) :]))
            rows = [row for row, _ in read]
            assert len({position(row) for row in rows}) == len(rows), f"{reader.__name__}: a record is there twice"
            for row, typed in read:
                assert row == self._row(row.partition, row.offset), reader.__name__
                assert typed in expected[position(row)], f"{reader.__name__}: {typed} of {row}"
            if self.shown.get(version) is not None:
                assert rows == self.shown[version], f"{reader.__name__}: not the log at version {version}"

    def with_values(self, read: Iterable[tuple[Row, Typed]]) -> list[tuple[Row, Typed]]:
        """Return what a reader of the files found, with the values that the files say are left out."""
        rows = []
        for row, typed in read:
            if typed.get(KEPT) is False:
                value = self.written[row.partition][row.offset].value
                assert not self.kept
                assert row.value is None
                assert value.fields is not None
                row = row._replace(value=value.data)
            rows.append((row, {name: field for name, field in typed.items() if name != KEPT}))
        return rows

    def _table_typed(self, files: Iterable[Path], names: Sequence[str]) -> dict[tuple[int, int], list[Typed]]:
        """Return the typed columns that each record of these files may have, as a table of these columns shows them."""
        found: dict[tuple[int, int], list[Typed]] = {}
        for path in files:
            schemas = self.schemas_of(path)
            (number,) = (int(part.partition("=")[2]) for part in path.parts if part.startswith("partition="))
            for offset in pq.ParquetFile(path).read(columns=["offset"]).column("offset").to_pylist():
                value = self.written[number][offset].value
                allowed = [{name: value.typed(schema).get(name) for name in names} for schema in schemas]
                found.setdefault((number, offset), []).extend(allowed)
        return found


def _commit(producer: sparklog.Producer) -> bool:
    """Commit a transaction; return whether it was committed: not if a vacuum has fenced its files."""
    try:
        producer.commit_transaction()
    except StaleWriteError:
        return False
    return True


# -- what readers return


def position(row: Row) -> tuple[int, int]:
    return row.partition, row.offset


def rows_with_types(table: pa.Table, names: Sequence[str] = ()) -> list[tuple[Row, Typed]]:
    """Return the records of a reader in order, each with its typed columns of these names."""
    stamp = table.schema.get_field_index("timestamp")
    unit = pa.timestamp("us", table.schema.field(stamp).type.tz)
    plain = table.set_column(stamp, "timestamp", table.column("timestamp").cast(unit).cast(pa.int64()))
    rows = [
        (
            Row(
                int(row["partition"]),
                row["offset"],
                row["timestamp"],
                row["key"],
                row["value"],
                tuple((header["key"], header["value"]) for header in row["headers"] or ()),
            ),
            {name: row.get(name) for name in names},
        )
        for row in plain.to_pylist()
    ]
    return sorted(rows, key=lambda row: position(row[0]))


def delta_lines(table: Path) -> list[str]:
    """Return the actions of all commits of a Delta table, in order."""
    commits = sorted((table / "_delta_log").glob("*.json"))
    return [line for commit in commits for line in commit.read_text().splitlines()]


def listed_files(table: Path) -> list[Path]:
    """Return the files that the log of a Delta table lists now, read by code of this test."""
    listed: set[str] = set()
    for line in delta_lines(table):
        action = json.loads(line)
        listed -= {action["remove"]["path"]} if "remove" in action else set()
        listed |= {action["add"]["path"]} if "add" in action else set()
    return sorted(table / unquote(path) for path in listed)
