"""A hole in the commits: whoever opens the cluster notices it, and nothing is written into it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.errors import CorruptMetadataError
from sparklog.log.commits.beyond_end import PROBED_COMMITS
from sparklog.log.layout import COMMITS, REMOVED_COMMITS
from sparklog.log.settings import DEFAULTS
from sparklog.maintenance import check_cluster, repair_cluster
from sparklog.protocol.commits import commit_key
from sparklog.store.base import Store
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import CountingStore


class WithoutStart(MemoryStore):
    """A storage whose listings cannot begin at a key."""

    def keys_after(self, folder: str, key: str) -> None:
        return None


@pytest.fixture(params=[MemoryStore, WithoutStart])
def store(request: pytest.FixtureRequest) -> Store:
    made: Store = request.param(uuid.uuid4().hex)
    return made


def make_topics(store: Store, count: int) -> None:
    client = create_cluster(store)
    for number in range(count):
        client.create_topic(f"t{number}")


def stored_commits(store: Store) -> list[str]:
    return [info.key for info in store.list(COMMITS)]


@pytest.mark.parametrize("missing", [range(7, 8), range(7, 10), range(1, 5), range(1)])
def test_a_cluster_with_a_hole_is_not_opened_and_nothing_is_written(store: Store, missing: range) -> None:
    make_topics(store, 12)
    for version in missing:
        store.delete(commit_key(version))
    before = stored_commits(store)
    with pytest.raises(CorruptMetadataError, match=f"commits? {missing[0]} .*missing.*commit {missing[-1] + 1} is"):
        open_cluster(store)
    assert stored_commits(store) == before


def test_a_hole_that_is_filled_again_is_opened(store: Store) -> None:
    make_topics(store, 12)
    lost = store.get(commit_key(5))
    store.delete(commit_key(5))
    with pytest.raises(CorruptMetadataError):
        open_cluster(store)
    store.put(commit_key(5), lost)
    assert open_cluster(store).state.version == 12


def test_a_checkpoint_beyond_the_end_is_reported_and_a_repair_continues_from_it(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    make_topics(store, 12)
    open_cluster(store).log.write_checkpoint()
    for version in range(7, 13):
        store.delete(commit_key(version))
    assert open_cluster(store, clock=ManualClock()).state.version == 6
    assert "checkpoint of version 12, but its commits end at 6" in caplog.text
    repair_cluster(check_cluster(store))
    caplog.clear()
    assert open_cluster(store).state.version == 12
    assert not caplog.text


def test_a_process_that_was_away_notices_a_hole_before_it_writes() -> None:
    store, clock = MemoryStore(uuid.uuid4().hex), ManualClock()
    client = create_cluster(store, clock=clock)
    other = open_cluster(store, clock=clock)
    for number in range(12):
        other.create_topic(f"t{number}")
    store.delete(commit_key(5))
    clock.sleep(DEFAULTS.away_seconds + 1)
    with pytest.raises(CorruptMetadataError, match="commit 5 is missing"):
        client.create_topic("into-the-hole")
    assert client.state.version == 4


class Growing(MemoryStore):
    """A storage to which another process appends right before each listing of commits is answered."""

    writer: Coordinator

    def keys_after(self, folder: str, key: str) -> Sequence[str] | None:
        for _ in range(2):
            self.writer.create_topic(f"late-{uuid.uuid4().hex}")
        return super().keys_after(folder, key)


def test_commits_that_others_append_meanwhile_are_no_hole() -> None:
    name = uuid.uuid4().hex
    make_topics(MemoryStore(name), 3)
    store = Growing(name)
    store.writer = open_cluster(MemoryStore(name))
    assert open_cluster(store).state.version == store.writer.state.version == 5


class Withdrawn(MemoryStore):
    """A storage where a stalled writer's commit is withdrawn after it was listed for the first time."""

    def keys_after(self, folder: str, key: str) -> Sequence[str] | None:
        found = super().keys_after(folder, key)
        self.delete(commit_key(30))
        return found


def test_a_commit_that_its_writer_withdraws_is_no_hole() -> None:
    name = uuid.uuid4().hex
    make_topics(MemoryStore(name), 3)
    store = MemoryStore(name)
    store.put(commit_key(30), store.get(commit_key(3)))
    assert open_cluster(Withdrawn(name), clock=ManualClock()).state.version == 3


def test_opening_takes_one_request_more_and_a_refresh_none() -> None:
    name = uuid.uuid4().hex
    make_topics(MemoryStore(name), 3)
    store = CountingStore(MemoryStore(name))
    client = open_cluster(store)
    assert [call.key for call in store.calls if call.operation == "list"].count(COMMITS) == 1
    store.reset_counts()
    client.refresh()
    client.create_topic("another")
    assert store.counts["list"] == 0


def test_other_files_beside_commits_are_no_hole(store: Store) -> None:
    make_topics(store, 3)
    store.put(f"{COMMITS}00000000000000000009.json~", b"x")
    store.put(f"{COMMITS}99999999999999999999.json", b"x")
    assert open_cluster(store).state.version == 3


def test_a_hole_wider_than_what_is_probed_is_found_by_its_checkpoint() -> None:
    store = WithoutStart(uuid.uuid4().hex)
    make_topics(store, PROBED_COMMITS + 20)
    open_cluster(store).log.write_checkpoint()
    open_cluster(store).create_topic("last")
    for version in range(3, PROBED_COMMITS + 21):
        store.delete(commit_key(version))
    with pytest.raises(CorruptMetadataError):
        open_cluster(store)


def test_a_listing_that_still_names_a_withdrawn_commit_is_no_hole() -> None:
    class Outdated(MemoryStore):
        def keys_after(self, folder: str, key: str) -> Sequence[str] | None:
            return [commit_key(9)]

    name = uuid.uuid4().hex
    make_topics(MemoryStore(name), 3)
    assert open_cluster(Outdated(name), clock=ManualClock()).state.version == 3


def test_a_commit_that_was_written_into_a_hole_is_kept_when_a_mirror_puts_the_lost_one_back() -> None:
    store, mirror = MemoryStore(uuid.uuid4().hex), MemoryStore(uuid.uuid4().hex)
    client = create_cluster(store)
    for number in range(5):
        client.create_topic(f"t{number}")
    for info in store.list():
        mirror.put(info.key, store.get(info.key))
    later = {commit_key(version): store.get(commit_key(version)) for version in range(3, 6)}
    for key in later:
        store.delete(key)
    open_cluster(store).create_topic("into-the-hole")  # by a client that could not know
    written = store.get(commit_key(3))
    for version in (4, 5):
        store.put(commit_key(version), later[commit_key(version)])
    check = check_cluster(store)
    assert "do not overwrite" in " ".join(finding.action for finding in check.report.findings)
    repair_cluster(check, mirrors=[mirror])
    assert open_cluster(store).state.version == 5
    assert written in [store.get(info.key) for info in store.list(REMOVED_COMMITS)]
