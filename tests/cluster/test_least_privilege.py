"""Each role works with the rights that docs/storage.md lists for it, and requests no others."""

from __future__ import annotations

import os
import re
import tempfile
import uuid
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from sparklog.client.admin.client import AdminClient
from sparklog.client.admin.types import NewPartitions, NewTopic
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer
from sparklog.clock import Clock, ManualClock
from sparklog.coordinator import coordinator as coordinators
from sparklog.coordinator.brokers import add_broker
from sparklog.coordinator.reader_leases import take_reader_lease
from sparklog.errors import StoragePermissionError
from sparklog.log.settings import LogSettings
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.maintenance.loop import Loop
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.roll import roll
from sparklog.maintenance.steps import MaintenanceContext, steps
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.base import Store
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import Call, FaultyStore
from sparklog.types import OffsetAndMetadata, TopicPartition
from tests.cluster.client.consumers import read, until, values
from tests.stores.test_local import NOBODY
from tests.stores.test_local_modes import as_user

DOCUMENT = Path(__file__).parents[2] / "docs" / "storage.md"
VERBS = ("reads", "creates", "overwrites", "deletes")
VERB_OF = {
    **dict.fromkeys(("get", "get_range", "info", "list", "open_input", "read_at"), "reads"),
    "put_if_absent": "creates",
    **dict.fromkeys(("put", "open_output", "write", "close"), "overwrites"),
    "delete": "deletes",
}

Right = tuple[str, str]
"""A verb and a pattern of keys, spelled as in the document."""


WIDTH = 60
"""partitions, too many for the commit of one flush here."""


class Role:
    """The documented rights of a role: needed, inherited from other roles, and optional."""

    def __init__(self, own: set[Right], may: set[Right], base: Role | None) -> None:
        self.own = own
        self.needs: set[Right] = own | (base.needs if base else set())
        self.may: set[Right] = (may | (base.may if base else set())) - self.needs


def parse_roles() -> dict[str, Role]:
    """The roles in the document's table, each with its inherited rights."""
    table = DOCUMENT.read_text().partition("## Who needs which rights")[2]
    roles: dict[str, Role] = {}
    for line in re.findall(r"^\| \*\*.+\|$", table, re.M):
        name, base, *cells, more = (cell.strip() for cell in line.strip("|").split("|"))
        own = {(verb, key) for verb, cell in zip(VERBS, cells, strict=True) for key in re.findall(r"`(.+?)`", cell)}
        may = {(part.split()[0], key) for part in more.split(";") if part for key in re.findall(r"`(.+?)`", part)}
        roles[name.strip("*")] = Role(own, may, roles[base] if base else None)
    return roles


ROLES = parse_roles()


def covers(pattern: str, key: str) -> bool:
    """Whether a pattern matches a key, or the listed folder."""
    if pattern == "*":
        return True
    if pattern == "<topic>-N/":
        return re.match(r"[^/]+-[0-9]+/", key) is not None
    return key.startswith(pattern) if pattern.endswith("/") else key == pattern


class Guard:
    """A store that enforces the rights of one role and records its requests."""

    def __init__(self, store: MemoryStore, role: Role, with_may: bool = False) -> None:
        self.granted = role.needs | (role.may if with_may else set())
        self.asked: set[Right] = set()
        self.store = FaultyStore(store, before=self._check)

    def _check(self, step: int, call: Call) -> None:
        verb = VERB_OF.get(call.operation)
        if verb is None:  # releasing a file is not a request
            return
        self.asked.add((verb, call.key))
        if not any(verb == granted and covers(pattern, call.key) for granted, pattern in self.granted):
            raise StoragePermissionError(f"AccessDenied: {call.operation} {call.key}", path=call.key)

    def not_in(self, rights: set[Right]) -> set[Right]:
        return {(verb, key) for verb, key in self.asked if not any(verb == v and covers(k, key) for v, k in rights)}

    def unused(self, rights: set[Right]) -> set[Right]:
        return {(verb, k) for verb, k in rights if not any(verb == v and covers(k, key) for v, key in self.asked)}


class ProbedStore(MemoryStore):
    """A storage with a clock of its own, behind a server that has to be probed."""

    is_private = False

    @property
    def endpoint_to_probe(self) -> str:
        return "http://127.0.0.1:1"


SETTINGS = LogSettings(checkpoint_interval_commits=3, max_inline_actions=WIDTH - 1)
"""Every committer meets a checkpoint, and a flush to many partitions has actions beside it."""

create_cluster = partial(coordinators.create_cluster, settings=SETTINGS)
open_cluster = partial(coordinators.open_cluster, settings=SETTINGS)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    """A root that its owner created, with a topic, records and a group."""
    return fill(ProbedStore(uuid.uuid4().hex, clock), clock)


AnyStore = TypeVar("AnyStore", bound=Store)


def fill(store: AnyStore, clock: Clock) -> AnyStore:
    """Create a cluster with topics and records, as its owner, and return its root."""
    owner = create_cluster(store, clock=clock)
    owner.create_topic("orders", 2)
    owner.create_topic("wide", WIDTH)
    owner.create_topic("events", configs={"history.format": "delta", "segment.ms": "1"})
    add_broker(owner, f"memory://{uuid.uuid4().hex}")
    owner.brokers.allow("s3://other-bucket/logs", owner.log.ids)
    with Producer(cluster=owner) as producer:
        for number in range(3):
            producer.send("orders", b"%d" % number, partition=0).get()
            producer.send("events", b"%d" % number, timestamp_ms=number * 1000).get()
    roll(owner, InProcess())  # two of the records are history then
    owner.log.wait_for_checkpoint()
    return store


# -- the operations of each role


def be_reader(root: Store, clock: ManualClock) -> None:
    cluster = open_cluster(root, clock=clock)
    with Consumer(cluster=cluster, auto_offset_reset="earliest", group_id=None) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        assert values(read(consumer, 3)) == [b"0", b"1", b"2"]
        consumer.assign([TopicPartition("events", 0)])
        assert values(read(consumer, 3)) == [b"0", b"1", b"2"]
        assert consumer.end_offsets([TopicPartition("orders", 0)]) == {TopicPartition("orders", 0): 3}
    take_reader_lease(cluster, cluster.state.version, 600_000)  # as a Spark job does
    cluster.brokers.open_registered(9, "s3://other-bucket/logs/9")  # which checks whether it is allowed
    with AdminClient(cluster=cluster) as admin:
        assert admin.list_topics() == ["events", "orders", "wide"]
        admin.describe_cluster()


def be_committer(root: Store, clock: ManualClock) -> None:
    """Any process that changes something, such as the offsets of a group."""
    cluster = open_cluster(root, clock=clock)
    for offset in range(4):
        cluster.submit(
            partial(
                commit_group_offsets, commit=GroupCommit(group="g", offsets={("orders", 0): OffsetAndMetadata(offset)})
            )
        )
    cluster.log.wait_for_checkpoint()


def be_group_member(root: Store, clock: ManualClock) -> None:
    """Uses the real clock, because its threads wait."""
    cluster = open_cluster(root)
    settings: dict[str, Any] = {
        "auto_offset_reset": "earliest",
        "group_id": "g",
        "heartbeat_interval_ms": 50,
        "session_timeout_ms": 6000,
    }
    with Consumer("orders", cluster=cluster, **settings) as consumer:
        assert values(read(consumer, 3)) == [b"0", b"1", b"2"]
        for _ in range(4):
            consumer.commit()
        with Consumer("orders", cluster=open_cluster(root), **settings) as other:
            until(
                lambda: len(consumer.assignment()) == len(other.assignment()) == 1,
                lambda: [each.poll(10) for each in (consumer, other)],
            )
    cluster.log.wait_for_checkpoint()


def be_producer(root: Store, clock: ManualClock) -> None:
    cluster = open_cluster(root, clock=clock)
    with Producer(cluster=cluster, enable_idempotence=True, linger_ms=60_000) as producer:
        sent = [producer.send("wide", b"v", partition=number) for number in range(WIDTH)]
        producer.flush()
        assert [one.get().offset for one in sent] == [0] * WIDTH
        for number in range(4):
            sent = [producer.send("orders", b"%d" % number, partition=1)]
            producer.flush()
            assert sent[0].get().offset == number
    cluster.log.wait_for_checkpoint()


def be_transactional_producer(root: Store, clock: ManualClock) -> None:
    cluster = open_cluster(root, clock=clock)
    with Producer(cluster=cluster, transactional_id="tx") as producer:
        producer.init_transactions()
        for ends in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            producer.send("orders", b"t", partition=0)
            producer.flush()
            ends()
    assert cluster.refresh().partition("orders", 0).log_end_offset == 5
    cluster.log.wait_for_checkpoint()


def be_topic_admin(root: Store, clock: ManualClock) -> None:
    cluster = open_cluster(root, clock=clock)
    with AdminClient(cluster=cluster) as admin:
        admin.create_topics([NewTopic("audit", 1, 1)])
        admin.create_partitions({"audit": NewPartitions(2)})
        admin.delete_records({TopicPartition("orders", 0): 2})
        admin.list_consumer_groups()
        admin.delete_topics(["orders"])
        assert admin.list_topics() == ["audit", "events", "wide"]
    cluster.log.wait_for_checkpoint()


def be_maintainer(root: Store, clock: ManualClock) -> None:
    cluster = open_cluster(root, clock=clock)
    with Producer(cluster=cluster) as producer:
        for number in range(3, 6):
            producer.send("events", b"%d" % number, timestamp_ms=number * 1000).get()
    for topic in ("orders", "events"):
        changes = {"retention.ms": "1000", "file.delete.delay.ms": "0"}
        cluster.submit(partial(alter_configs, topic=topic, changes=changes))
    for _ in range(2):
        clock.advance(30 * 86_400.0)
        with closing(MaintenanceContext(cluster, lambda _: InProcess())) as context:
            reports = list(Loop(steps(context), clock).once())
            problems = [problem for report in reports for problem in report.problems]
            assert not problems, "\n".join(problems)
    cluster.log.wait_for_checkpoint()
    vacuum(cluster)


def be_owner(root: Store, clock: ManualClock) -> None:
    cluster = create_cluster(root, clock=clock)
    add_broker(cluster, f"memory://{uuid.uuid4().hex}")
    cluster.brokers.allow("s3://other-bucket/logs", cluster.log.ids)


ACTS: dict[str, Callable[[Store, ManualClock], None]] = {
    "reader": be_reader,
    "committer": be_committer,
    "group member": be_group_member,
    "producer": be_producer,
    "transactional producer": be_transactional_producer,
    "topic admin": be_topic_admin,
    "maintainer": be_maintainer,
    "owner": be_owner,
}


def test_every_documented_role_is_tested() -> None:
    assert list(ROLES) == list(ACTS)


@pytest.mark.parametrize("name", ACTS)
def test_a_role_works_with_its_needed_rights(name: str, store: MemoryStore, clock: ManualClock) -> None:
    role = ROLES[name]
    guard = Guard(root_of(name, store, clock), role)
    ACTS[name](guard.store, clock)
    assert guard.not_in(role.needs | role.may) == set(), "it requests more than the document says"
    assert guard.unused(role.own) == set(), "it needs less than the document says"


@pytest.mark.parametrize("name", ACTS)
def test_a_role_with_all_optional_rights_requests_nothing_else(
    name: str, store: MemoryStore, clock: ManualClock
) -> None:
    role = ROLES[name]
    guard = Guard(root_of(name, store, clock), role, with_may=True)
    ACTS[name](guard.store, clock)
    assert guard.not_in(role.needs | role.may) == set()


def root_of(name: str, store: MemoryStore, clock: ManualClock) -> MemoryStore:
    """The root of a role: the owner creates a new one."""
    return ProbedStore(uuid.uuid4().hex, clock) if name == "owner" else store


# -- with the permissions of an operating system


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_reads_a_local_root_without_writing_anything() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        root = Path(folder, "root")
        root.mkdir(mode=0o755)
        owner = create_cluster(str(root))
        owner.create_topic("orders", 2)
        with Producer(cluster=owner) as producer:
            for number in range(3):
                producer.send("orders", b"%d" % number, partition=0).get()
        owner.log.wait_for_checkpoint()
        before = sorted((str(path), path.stat().st_mtime_ns) for path in root.rglob("*"))
        as_user(NOBODY, NOBODY, lambda: be_local_reader(str(root)))
        assert sorted((str(path), path.stat().st_mtime_ns) for path in root.rglob("*")) == before


def be_local_reader(root: str) -> None:
    assert os.getuid() == NOBODY
    cluster = open_cluster(root)
    with Consumer(cluster=cluster, auto_offset_reset="earliest", group_id=None) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        assert values(read(consumer, 3)) == [b"0", b"1", b"2"]
    assert take_reader_lease(cluster, cluster.state.version, 600_000) is None  # it cannot, and reads nevertheless
    with pytest.raises(StoragePermissionError):
        cluster.create_topic("audit")
    with pytest.raises(StoragePermissionError, match="owner"):
        cluster.brokers.allow("s3://other-bucket/logs", cluster.log.ids)
