"""A cluster with something on every page: an hour of records, groups that follow and one that is stuck, transactions,
maintenance, changes of configs, and texts that a hostile client chose. In memory, with a clock of its own."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from contextlib import closing
from datetime import date
from io import BytesIO

from fastavro import parse_schema, schemaless_writer

from sparklog.client.producer.producer import Producer
from sparklog.clock import ManualClock, SystemClock
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.ids import SeededIds
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.fsck.kept_report import keep_report
from sparklog.maintenance.loop import Loop
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.steps import MaintenanceContext, steps
from sparklog.protocol.commits import Action, AlterConfig, CommitOffsets, CommittedOffset, JoinGroup
from sparklog.protocol.decide.decision import Decision
from sparklog.store.memory import MemoryStore
from sparklog.testing.records import Record, append_records

SCRIPT = "<script>alert('x')</script>"
OVERRIDE = "abc\u202etxt.exe"
CONTROL = "bell\x07 escape\x1b[2J"
HOSTILE_GROUP = f"{SCRIPT}/..%2f{OVERRIDE}"
MINUTES = 60
PAYMENT = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "payer", "type": "string"},
        {"name": "cents", "type": "long"},
        {"name": "notes", "type": {"type": "array", "items": "string"}},
        {"name": "paid", "type": ["null", {"type": "int", "logicalType": "date"}]},
    ],
}
ENDLESS_NOTES = b"\x02x\x02" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x1f"
"""A payment whose list of notes claims to have 2^60 - 1 elements, of which none follows."""


def make_shown_cluster(name: str = "", end_ms: int = 0) -> Coordinator:
    """Return the cluster, in the memory of this name, or of one of its own; its hour ends about ``end_ms``, or now."""
    clock = ManualClock((end_ms or SystemClock().now_ms()) - (MINUTES + 2) * 60_000)
    cluster = create_cluster(MemoryStore(name or uuid.uuid4().hex, clock), clock=clock, ids=SeededIds(15))
    typed = {"value.format": "json", "value.schema": "order bigint, customer string, amount double"}
    history = {"history.format": "delta", "segment.bytes": "1048576", "segment.ms": "600000"}
    cluster.create_topic("orders", 6, configs={**typed, **history})
    cluster.create_topic("clicks", 3, configs={"retention.ms": "86400000"})
    cluster.create_topic("customers", 2, configs={"cleanup.policy": "compact"})
    cluster.create_topic("audit", 1)
    cluster.create_topic("payments", 1, configs={"value.format": "avro", "value.schema": json.dumps(PAYMENT)})
    for name in ("invoices", "shipments", "returns", "prices", "stock", "sessions", "emails"):
        cluster.create_topic(name, 4)
    join(cluster, "billing", "orders", 2)
    join(cluster, "dashboard", "clicks", 1)
    for minute in range(MINUTES):
        clock.advance(60)
        _append_minute(cluster, minute)
        commit_group(cluster, "dashboard", "clicks", 0)
        if minute < 38:
            commit_group(cluster, "billing", "orders", 5)
        if minute in (20, 40):
            _maintain(cluster, clock)
        if minute == 45:
            commit(cluster, AlterConfig(topic="clicks", set={"retention.ms": "172800000"}))
    _append_odd_records(cluster)
    _append_payments(cluster)
    _write_transaction(cluster)
    join(cluster, HOSTILE_GROUP, "audit", 1)
    commit_group(cluster, HOSTILE_GROUP, "audit", 3)
    keep_report(check_cluster(cluster.store, clock=clock), clock.now_ms(), 1.5)
    clock.advance(45)
    cluster.refresh()
    return cluster


def commit(cluster: Coordinator, *actions: Action) -> None:
    """Commit actions without the checks of a decision."""
    cluster.submit(lambda _: Decision(list(actions), None))


def join(cluster: Coordinator, group: str, topic: str, members: int) -> None:
    for number in range(members):
        member = JoinGroup(
            group=group,
            member=f"{group}-{number}-a1b2c3",
            client_id=f"{group}-{number}",
            host=f"worker-{number}",
            topics=[topic],
            assignors=["cooperative-sticky"],
            session_timeout_ms=45_000,
        )
        commit(cluster, member)


def commit_group(cluster: Coordinator, group: str, topic: str, behind: int) -> None:
    """Commit the offsets of a group, so many records behind the end of each partition."""
    state = cluster.refresh().topic(topic)
    offsets = [
        CommittedOffset(
            topic=topic, topic_id=state.topic_id, partition=number, offset=max(each.high_watermark - behind, 0)
        )
        for number, each in enumerate(state.partitions)
    ]
    commit(cluster, CommitOffsets(group=group, offsets=offsets))


def _append_minute(cluster: Coordinator, minute: int) -> None:
    wave = 30 + 25 * ((minute // 10) % 3) + minute % 7
    orders = [
        Record(
            f"customer-{(minute * 7 + number) % 40}".encode(),
            json.dumps(
                {"order": minute * 100 + number, "customer": f"c{number % 40}", "amount": number * 1.5}
            ).encode(),
            [("trace", f"{minute:02x}{number:04x}".encode())],
        )
        for number in range(wave)
    ]
    append_records(cluster, "orders", orders)
    append_records(cluster, "clicks", [Record(None, b"/cart?item=%d" % number) for number in range(wave * 2)])


def _append_odd_records(cluster: Coordinator) -> None:
    deep = b"[" * 5000 + b"]" * 5000
    records = [
        Record(b"plain", b"hello"),
        Record(b"empty", b""),
        Record(b"tombstone", None),
        Record(None, None),
        Record(SCRIPT.encode(), f"<img src=x onerror=alert(1)>{SCRIPT}".encode(), [(SCRIPT, SCRIPT.encode())]),
        Record(OVERRIDE.encode(), CONTROL.encode(), [("none", None), ("empty", b"")]),
        Record(b"\xff\xfe\x00\x01", b"\x80\x81\x82" * 20),
        Record(b"deep", deep),
        Record(b"large", b"x" * 300_000),
        Record(b"formula", b"=cmd|' /C calc'!A0"),
    ]
    append_records(cluster, "audit", records)
    append_records(
        cluster,
        "customers",
        [Record(f"c{number}".encode(), None if number % 5 == 0 else b"{}") for number in range(20)],
    )


def encode_payment(payer: str, cents: int, notes: Sequence[str] = ()) -> bytes:
    """Return a payment in Avro, without a prefix."""
    encoded = BytesIO()
    payment = {"payer": payer, "cents": cents, "notes": list(notes), "paid": date(2026, 11, 1)}
    schemaless_writer(encoded, parse_schema(PAYMENT), payment)
    return encoded.getvalue()


def _append_payments(cluster: Coordinator) -> None:
    values = [
        encode_payment("anna", 1250),
        b"\0\0\0\0\7" + encode_payment("berta", 99, ["by card"]),
        encode_payment(SCRIPT, -1, [OVERRIDE, CONTROL]),
        ENDLESS_NOTES,
        b"no payment",
        None,
        b"",
        encode_payment("x" * 300_000, 3),
    ]
    append_records(cluster, "payments", [Record(b"p%d" % number, value) for number, value in enumerate(values)])


def _write_transaction(cluster: Coordinator) -> None:
    with Producer(cluster=cluster, transactional_id="billing-writer") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(5):
            producer.send("invoices", b"invoice %d" % number, partition=number % 4)
        producer.commit_transaction()


def _maintain(cluster: Coordinator, clock: ManualClock) -> None:
    with closing(MaintenanceContext(cluster, lambda _: InProcess(), once=True)) as context:
        Loop(steps(context, ["roll", "publication"]), clock).once()
