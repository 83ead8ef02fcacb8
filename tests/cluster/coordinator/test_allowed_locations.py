"""The location of a broker in the commit log is contacted only if the root's owner allowed it."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparklog.clock import SystemClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.brokers import add_broker, move_broker, remove_broker, replace_location
from sparklog.coordinator.health import Health
from sparklog.errors import SparklogError, StoragePermissionError
from sparklog.ids import RandomIds
from sparklog.log.broker_files import LOCATIONS_FORMAT, LOCATIONS_KEY, allow_location, read_allowed
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.mirror import mirror
from sparklog.maintenance.promotion import promote
from sparklog.protocol.commits import Action, RegisterBroker
from sparklog.protocol.decide.decision import Decision
from sparklog.spark.broker_stores import broker_stores, readable_stores
from sparklog.store.base import Store
from sparklog.store.local import LocalStore
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import Call, FaultyStore
from sparklog.testing.substitutes import substituted
from tests.controllers import check_once

ELSEWHERE = "s3://other-bucket/log"


class RemoteStore(MemoryStore):
    """A space in memory with a remote address."""

    def __init__(self, root: str) -> None:
        super().__init__(uuid.uuid4().hex)
        self.root = root


@contextmanager
def counted(root: str = ELSEWHERE) -> Iterator[list[Call]]:
    """Records every request to this address; the requests succeed."""
    calls: list[Call] = []
    with substituted(FaultyStore(RemoteStore(root), before=lambda step, call: calls.append(call))):
        yield calls


@pytest.fixture
def root() -> Store:
    return MemoryStore(uuid.uuid4().hex)


@pytest.fixture
def calls() -> Iterator[list[Call]]:
    with counted() as recorded:
        yield recorded


def commit(coordinator: Coordinator, *actions: Action) -> None:
    """Commit as another user of the root, who has the right to commit."""
    coordinator.submit(lambda state: Decision(list(actions), None))


def hostile(root: Store) -> Coordinator:
    coordinator = create_cluster(root)
    commit(coordinator, RegisterBroker(broker=1, url=ELSEWHERE))
    return coordinator


def test_a_location_that_another_user_registered_is_not_contacted(root: Store, calls: list[Call]) -> None:
    coordinator = hostile(root)
    with pytest.raises(StoragePermissionError) as refused:
        coordinator.store_of(1)
    assert refused.value.broker == 1
    for part in (
        f"is at {ELSEWHERE}, which is not contacted",
        "broker 1",
        f"sparklog brokers allow --bootstrap-server {root.root} --location {ELSEWHERE}",
    ):
        assert part in refused.value.message
    assert readable_stores(coordinator).keys() == {0}
    stores = broker_stores(coordinator)
    assert stores[0] is root
    with pytest.raises(StoragePermissionError, match="brokers allow"):
        stores[1]
    with pytest.raises(StoragePermissionError):
        replace_location(coordinator, 1)
    check = check_cluster(root)
    assert "brokers allow" in check.unreachable[1]
    remove_broker(coordinator, 1)
    assert 1 not in coordinator.state.brokers
    assert calls == []


def test_the_suggested_command_quotes_what_another_user_chose(root: Store) -> None:
    coordinator = create_cluster(root)
    commit(coordinator, RegisterBroker(broker=1, url="s3://x/$(touch y);rm -r z\n"))
    with pytest.raises(StoragePermissionError) as refused:
        coordinator.store_of(1)
    assert "--location 's3://x/$(touch y);rm -r z\\n'`" in refused.value.message


def test_the_controller_does_not_contact_a_location_that_is_not_allowed(root: Store, calls: list[Call]) -> None:
    coordinator = hostile(root)
    check = check_once(coordinator)
    assert [(finding.broker, finding.health) for finding in check.findings] == [(1, Health.UNKNOWN)]
    assert coordinator.refresh().brokers[1].online
    assert calls == []


def test_a_location_is_contacted_once_it_is_allowed(root: Store, calls: list[Call]) -> None:
    coordinator = hostile(root)
    with pytest.raises(StoragePermissionError):
        coordinator.store_of(1)
    assert coordinator.brokers.allow("s3://other-bucket", coordinator.log.ids)
    assert not coordinator.brokers.allow("s3://other-bucket/log", coordinator.log.ids)
    assert coordinator.store_of(1).list() is not None
    assert json.loads(root.get(LOCATIONS_KEY)) == {"format": LOCATIONS_FORMAT, "allowed": ["s3://other-bucket"]}


def test_registering_a_location_allows_it_before_the_commit(root: Store, calls: list[Call]) -> None:
    coordinator = create_cluster(root)
    assert add_broker(coordinator, ELSEWHERE) == 1
    assert read_allowed(root) == (ELSEWHERE,)
    assert calls
    assert open_cluster(root).store_of(1).get("broker.json")


def test_a_user_who_may_not_allow_a_location_registers_nothing(root: Store) -> None:
    create_cluster(root)

    def refuse(step: int, call: Call) -> None:
        if call.key == LOCATIONS_KEY and call.operation == "put":
            raise StoragePermissionError("AccessDenied")

    coordinator = open_cluster(FaultyStore(root, before=refuse))
    location = RemoteStore(ELSEWHERE)
    with substituted(location), pytest.raises(StoragePermissionError, match=r"only the root's owner.*brokers allow"):
        add_broker(coordinator, ELSEWHERE)
    assert coordinator.refresh().brokers.keys() == {0}
    assert list(location.list()) == []


def test_moving_a_location_allows_its_new_url(root: Store, tmp_path: Path) -> None:
    coordinator = create_cluster(root)
    add_broker(coordinator, str(tmp_path))
    assert LOCATIONS_KEY not in [info.key for info in root.list()]
    location = RemoteStore(ELSEWHERE)
    location.put("broker.json", (tmp_path / "broker.json").read_bytes())
    with substituted(location):
        assert move_broker(coordinator, 1, ELSEWHERE)
        assert coordinator.store_of(1).get("broker.json")
    assert read_allowed(root) == (ELSEWHERE,)


def test_a_damaged_list_allows_nothing(root: Store, calls: list[Call]) -> None:
    coordinator = hostile(root)
    for damaged in (b"", b"[", b'{"format":99,"allowed":["s3://other-bucket"]}', b'{"allowed":["s3://other-bucket"'):
        root.put(LOCATIONS_KEY, damaged)
        with pytest.raises(SparklogError):
            coordinator.store_of(1)
    assert calls == []


def test_a_promoted_root_may_contact_the_locations_of_the_old_one() -> None:
    """Its bucket is another one, so locations beside the old root are no longer beside the root."""
    stores = {
        url: RemoteStore(url) for url in ("s3://a/log", "s3://a/disk", "s3://b/mirror", "s3://c/disk", "s3://d/x")
    }
    clock, ids = SystemClock(), RandomIds()
    with substituted(stores["s3://a/log"]), substituted(stores["s3://b/mirror"]):
        coordinator = create_cluster("s3://a/log", clock=clock, ids=ids)
        for number, url in ((1, "s3://a/disk"), (2, "s3://c/disk"), (3, "s3://d/x")):
            commit(coordinator, RegisterBroker(broker=number, url=url))
        allow_location(coordinator.store, "s3://c/disk", ids)
        mirror(stores["s3://a/log"], stores["s3://b/mirror"], clock)
        promote("s3://b/mirror", "s3://a/log")
        promoted = open_cluster("s3://b/mirror")
    assert read_allowed(promoted.store) == ("s3://a/disk", "s3://a/log", "s3://c/disk")


# -- on a local disk the file must belong to the owner

ONLY_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@pytest.fixture
def folder(tmp_path: Path) -> LocalStore:
    folder = LocalStore(str(tmp_path / "root"))
    create_cluster(folder)
    return folder


@ONLY_ROOT
def test_a_list_written_by_another_user_is_refused(folder: LocalStore, calls: list[Call]) -> None:
    coordinator = open_cluster(folder)
    commit(coordinator, RegisterBroker(broker=1, url=ELSEWHERE))
    path = Path(folder.root, LOCATIONS_KEY)
    path.write_text('{"format":2,"allowed":["s3://other-bucket"]}')
    os.chown(path, 65534, 65534)
    with pytest.raises(StoragePermissionError, match="another owner"):
        coordinator.store_of(1)
    assert calls == []
    assert allow_location(folder, ELSEWHERE, RandomIds())  # the owner corrects it
    assert read_allowed(folder) == (ELSEWHERE,)


def test_a_list_that_others_may_write_is_refused(folder: LocalStore) -> None:
    os.chmod(folder.root, 0o2770)
    allow_location(folder, ELSEWHERE, RandomIds())
    path = Path(folder.root, LOCATIONS_KEY)
    assert path.stat().st_mode & 0o777 == 0o640
    assert read_allowed(folder) == (ELSEWHERE,)
    path.chmod(0o660)
    with pytest.raises(StoragePermissionError, match="others may write"):
        read_allowed(folder)


def test_a_link_instead_of_the_list_is_refused(folder: LocalStore) -> None:
    allow_location(folder, ELSEWHERE, RandomIds())
    path = Path(folder.root, LOCATIONS_KEY)
    path.rename(path.with_name("elsewhere.json"))
    path.symlink_to("elsewhere.json")
    with pytest.raises(StoragePermissionError, match="link"):
        read_allowed(folder)
