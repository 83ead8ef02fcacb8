"""The commit log has a mirror elsewhere that can become the root at any time; then there is one root, and no fork."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparklog import limits
from sparklog.client.producer.producer import Producer
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.controller import Controller
from sparklog.coordinator.take_over import take_over
from sparklog.errors import (
    ClusterAlreadyExistsError,
    ClusterMovedError,
    ClusterNotFoundError,
    CorruptMetadataError,
    DuplicateBrokerRegistrationError,
    FeatureLevelError,
    InvalidRequestError,
    SparklogError,
    StorageUnavailableError,
)
from sparklog.ids import Ids, RandomIds
from sparklog.log.broker_files import read_allowed, write_allowed
from sparklog.log.checkpoints import checkpoint
from sparklog.log.commits.cleanup import CleanUp, Times, clean_up
from sparklog.log.layout import CHECKPOINTS, CLUSTER_KEY, COMMITS, Boundary, read_boundary, write_boundary
from sparklog.log.owner_files import EPOCHS
from sparklog.log.settings import LogSettings
from sparklog.maintenance import mirror as mirror_module
from sparklog.maintenance import promotion
from sparklog.maintenance.mirror import Copier, mirror, mirror_cluster, read_mirror_file
from sparklog.maintenance.promotion import promote
from sparklog.protocol.commits import commit_key
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.base import Store
from sparklog.store.memory import MemoryStore
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import Call, CountingStore, FaultyStore
from sparklog.testing.substitutes import substituted
from tests.cluster.maintenance.replicas import TOPIC, Replicas
from tests.controllers import check_once
from tests.sample import STRIDE


def with_mirror(tmp_path: Path) -> tuple[Replicas, Store]:
    replicas = Replicas(tmp_path)
    replicas.produce()
    target = open_store(str(tmp_path / "mirror"))
    mirror(replicas.cluster.store, target)
    return replicas, target


def remove_commits(root: Store, version: int) -> None:
    write_boundary(root, Boundary(boundary=version))
    for old in range(version + 1):
        root.delete(commit_key(old))


def root_of(replicas: Replicas) -> str:
    return replicas.cluster.store.root


def values(cluster: Coordinator) -> list[bytes | None]:
    replicas = Replicas.__new__(Replicas)
    replicas.cluster = cluster
    return replicas.read()


def test_a_mirror_has_every_commit_and_is_not_a_cluster(tmp_path: Path) -> None:
    replicas, target = with_mirror(tmp_path)
    mirror_file = read_mirror_file(target)
    assert mirror_file is not None
    assert mirror_file.version == replicas.cluster.state.version
    with pytest.raises(ClusterNotFoundError):
        open_cluster(target)


def test_only_new_commits_are_copied(tmp_path: Path) -> None:
    replicas, target = with_mirror(tmp_path)
    replicas.produce(1)
    counted = CountingStore(target)
    result = mirror(replicas.cluster.store, counted)
    assert (result.commits, result.version) == (2, replicas.cluster.state.version)  # a producer's id, and its record
    assert (counted.counts["put_if_absent"], counted.counts["put"]) == (2, 1)  # the commits and mirror.json
    idle = CountingStore(target)
    assert mirror(replicas.cluster.store, idle).commits == 0
    assert idle.counts["put"] == 0


def test_a_mirror_continues_after_removed_commits(tmp_path: Path) -> None:
    replicas, target = with_mirror(tmp_path)
    replicas.produce(3)
    replicas.cluster.log.write_checkpoint()
    boundary = replicas.cluster.state.version
    replicas.produce(2)
    root = open_store(root_of(replicas))
    remove_commits(root, boundary)
    result = mirror(root, target)
    assert result.commits == 4
    promoted = promote(target.root, root.root)
    assert not promoted.may_have_lost
    assert values(open_cluster(target.root)) == replicas.sent[0]


def test_a_mirror_that_ended_at_a_checkpoint_is_continued_after_an_interrupted_pass(tmp_path: Path) -> None:
    """The mirror does not have the commit at which it ended, which the root still has, nor is its newest checkpoint of
    that version any more."""
    replicas, target = with_mirror(tmp_path)
    replicas.produce(3)
    replicas.cluster.log.write_checkpoint()
    root, end = open_store(root_of(replicas)), replicas.cluster.state.version
    remove_commits(root, end - 1)
    assert mirror(root, target).version == end
    assert commit_key(end) not in {info.key for info in target.list(COMMITS)}
    replicas.produce(3)
    replicas.cluster.log.write_checkpoint()

    def interrupt(step: int, call: Call) -> None:
        if call.operation == "put_if_absent":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mirror(root, FaultyStore(target, before=interrupt))
    assert mirror(root, target).version == replicas.cluster.state.version
    promote(target.root, root.root)
    assert values(open_cluster(target.root)) == replicas.sent[0]


def test_a_promotion_finishes_an_interrupted_pass_before_it_judges_the_mirror(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    replicas, target = with_mirror(tmp_path)
    replicas.produce(3)
    replicas.cluster.log.write_checkpoint()
    boundary = replicas.cluster.state.version
    replicas.produce(2)
    root = open_store(root_of(replicas))
    remove_commits(root, boundary)

    def interrupt(step: int, call: Call) -> None:
        if call.operation == "put_if_absent":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mirror(root, FaultyStore(target, before=interrupt))
    promoted = promote(target.root, root.root)
    assert not promoted.may_have_lost
    assert values(open_cluster(target.root)) == replicas.sent[0]
    assert "are lost" not in caplog.text


def test_a_checkpoint_that_is_written_while_the_log_is_mirrored_is_not_beyond_the_mirrors_end(tmp_path: Path) -> None:
    replicas, target = with_mirror(tmp_path)
    replicas.produce(2)
    root = open_store(root_of(replicas))
    done: list[Call] = []

    def go_on(step: int, call: Call) -> None:
        has_read = Call("list", COMMITS) in mirrored.calls  # up to the end of the log
        if call != Call("list", CHECKPOINTS) or not has_read or done:
            return
        done.append(call)
        replicas.produce(1)
        replicas.cluster.log.write_checkpoint()
        end = replicas.cluster.state.version
        remove_commits(root, end - 2)

    mirrored = FaultyStore(root, before=go_on)
    mirror(mirrored, target)
    assert done
    mirror(root, target)
    replicas.produce(1)
    mirror(root, target)
    assert not promote(target.root, root.root).may_have_lost
    assert values(open_cluster(target.root)) == replicas.sent[0]


def restored_meanwhile(tmp_path: Path, backup: Path, number: int) -> bool:
    """Mirror a root that has gone on; before the ``number``-th call to the mirror, restore the root from a backup, and
    let new clients write more. Return whether the pass made that call."""
    replicas = Replicas.__new__(Replicas)
    replicas.sent = {0: []}
    calls: list[Call] = []

    def restore(step: int, call: Call) -> None:
        calls.append(call)
        if len(calls) == number + 1:
            (tmp_path / "root").rename(tmp_path / "former")
            shutil.copytree(backup, tmp_path / "root")
            replicas.cluster = open_cluster(str(tmp_path / "root"))
            replicas.produce(12)

    with suppress(SparklogError):
        mirror(open_store(str(tmp_path / "root")), FaultyStore(open_store(str(tmp_path / "mirror")), before=restore))
    return len(calls) > number


@pytest.mark.sampled
def test_a_mirror_never_has_commits_of_two_histories(tmp_path: Path) -> None:
    number = 0
    while True:
        folder = tmp_path / str(number)
        replicas = Replicas(folder, locations=0, assignment=((0,),))
        replicas.produce(1)
        shutil.copytree(folder / "root", folder / "backup", ignore=shutil.ignore_patterns("leases"))
        replicas.produce(2)
        target = open_store(str(folder / "mirror"))
        mirror(replicas.cluster.store, target)
        replicas.produce(2)
        replicas.cluster.log.write_checkpoint()
        version = replicas.cluster.state.version
        if not restored_meanwhile(folder, folder / "backup", number):
            break
        with pytest.raises(CorruptMetadataError, match="older copy"):
            mirror(open_store(str(folder / "root")), target)
        (folder / "root").rename(folder / "lost")
        promote(target.root, str(folder / "root"), force=True)
        assert open_cluster(target.root).state.version <= version + 2  # and so of the former timeline
        number += STRIDE
    assert number >= 10


def test_a_mirror_does_not_go_on_with_another_timeline_whose_commits_were_removed(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, locations=0, assignment=((0,),))
    replicas.produce(1)
    shutil.copytree(tmp_path / "root", tmp_path / "backup")  # a snapshot, with leases
    replicas.produce(2)
    target = open_store(str(tmp_path / "mirror"))
    mirror(replicas.cluster.store, target)
    kept = {info.key: target.get(info.key) for info in target.list()}
    (tmp_path / "root").rename(tmp_path / "former")
    (tmp_path / "backup").rename(tmp_path / "root")
    replicas.cluster = open_cluster(str(tmp_path / "root"))
    replicas.produce(9)
    replicas.cluster.log.write_checkpoint()
    boundary = replicas.cluster.state.version
    replicas.produce(1)
    root = open_store(root_of(replicas))
    remove_commits(root, boundary)
    for _ in range(2):
        with pytest.raises(CorruptMetadataError, match="older copy"):
            mirror(root, target)
    assert {info.key: target.get(info.key) for info in target.list()} == kept


def test_a_copy_of_the_root_does_not_continue_the_mirror_of_the_original(tmp_path: Path) -> None:
    replicas, target = with_mirror(tmp_path)
    shutil.copytree(tmp_path / "root", tmp_path / "copy")
    copy = open_cluster(str(tmp_path / "copy"))
    copy.create_topic("test")
    with pytest.raises(InvalidRequestError, match=f"mirror of {tmp_path}/root .*is a copy"):
        mirror_cluster(copy, target.root)
    replicas.produce(1)
    mirror_cluster(replicas.cluster, target.root)
    (tmp_path / "root").rename(tmp_path / "retired")
    shutil.copytree(tmp_path / "retired", tmp_path / "new")
    mirror(open_store(str(tmp_path / "new")), target)  # the root was moved
    (tmp_path / "retired").rename(tmp_path / "root")
    take_over(open_cluster(str(tmp_path / "new")), force=True)
    mirror(open_store(str(tmp_path / "new")), target)
    (tmp_path / "new").rename(tmp_path / "away")
    with pytest.raises(InvalidRequestError, match="was replaced by it"):
        mirror(open_store(str(tmp_path / "root")), target)


def test_a_target_that_is_not_a_mirror_of_this_cluster_is_left_unchanged(tmp_path: Path) -> None:
    replicas, target = with_mirror(tmp_path)
    other = create_cluster(str(tmp_path / "other"))
    with pytest.raises(InvalidRequestError, match="mirror of cluster"):
        mirror(other.store, target)
    with pytest.raises(ClusterAlreadyExistsError):
        mirror_cluster(replicas.cluster, str(tmp_path / "other"))
    with pytest.raises(InvalidRequestError, match="not a mirror"):
        promote(str(tmp_path / "empty"), root_of(replicas))


def test_an_edited_commit_is_not_mirrored(tmp_path: Path) -> None:
    replicas, target = with_mirror(tmp_path)
    replicas.produce(2)
    root = open_store(root_of(replicas))
    key = commit_key(replicas.cluster.state.version)
    root.put(key, root.get(key).replace(b'"records":1', b'"records":2'))
    with pytest.raises(CorruptMetadataError):
        mirror(root, target)
    mirror_file = read_mirror_file(target)
    assert mirror_file is not None
    assert mirror_file.version < replicas.cluster.state.version


def test_a_promoted_mirror_has_every_commit_and_the_old_root_accepts_no_more(tmp_path: Path) -> None:
    replicas, target = with_mirror(tmp_path)
    replicas.produce(2)
    with Producer(cluster=replicas.cluster) as writer:
        writer.send(TOPIC, b"before").get(10)
        replicas.sent[0].append(b"before")
        promoted = promote(target.root, root_of(replicas))
        assert not promoted.may_have_lost
        future = writer.send(TOPIC, b"after")
        with pytest.raises(ClusterMovedError, match="mirror"):
            future.get(10)
    with pytest.raises(ClusterMovedError, match="mirror"):
        open_cluster(root_of(replicas))
    cluster = open_cluster(target.root)
    assert cluster.state.brokers[0].url == root_of(replicas)
    assert values(cluster) == replicas.sent[0]
    cluster.create_topic("new", assignment=[[0, 1]])
    assert {finding.health.value for finding in Controller(cluster).check().findings} == {"ok"}
    with Producer(cluster=cluster) as writer:
        writer.send("new", b"x").get(10)
    assert (tmp_path / "root" / "new-0").exists()
    assert promote(target.root, root_of(replicas)).version == cluster.refresh().version


def test_a_mirror_behind_a_lost_root_is_promoted_only_when_forced(tmp_path: Path) -> None:
    replicas, target = with_mirror(tmp_path)
    mirror_file = read_mirror_file(target)
    assert mirror_file is not None
    replicas.produce(2)
    (tmp_path / "root").rename(tmp_path / "lost")
    with pytest.raises(InvalidRequestError, match=f"from {mirror_file.version + 1} on is lost"):
        promote(target.root, root_of(replicas))
    promoted = promote(target.root, root_of(replicas), force=True)
    assert promoted.may_have_lost
    cluster = open_cluster(target.root, clock=ManualClock())
    assert values(cluster) == replicas.sent[0][:3]
    assert not (tmp_path / "root").exists()

    # The old root comes back: it is closed, and an ordinary location.
    (tmp_path / "lost").rename(tmp_path / "root")
    check_once(cluster)
    with pytest.raises(ClusterMovedError):
        open_cluster(root_of(replicas))
    with pytest.raises(ClusterMovedError):
        replicas.produce(1)
    assert cluster.refresh().brokers[0].online


def older_copy_of_root(replicas: Replicas, tmp_path: Path) -> Callable[[], Coordinator]:
    """Copy the root; return a function that restores it from the copy."""
    shutil.copytree(tmp_path / "root", tmp_path / "older")

    def restore_root() -> Coordinator:
        shutil.rmtree(tmp_path / "root")
        (tmp_path / "older").rename(tmp_path / "root")
        return open_cluster(root_of(replicas), clock=ManualClock())

    return restore_root


@pytest.mark.parametrize("commits_since", [0, 3, 8])
def test_a_restored_older_root_does_not_overwrite_its_mirror(tmp_path: Path, commits_since: int) -> None:
    replicas, target = with_mirror(tmp_path)
    restore_root = older_copy_of_root(replicas, tmp_path)
    replicas.produce(3)
    mirror(replicas.cluster.store, target)
    before = {info.key: target.get(info.key) for info in target.list("")}
    older = restore_root()
    for number in range(commits_since):
        older.create_topic(f"since-{number}")
    with pytest.raises(CorruptMetadataError, match="older copy"):
        mirror(older.store, target)
    assert {info.key: target.get(info.key) for info in target.list("")} == before
    with pytest.raises(InvalidRequestError, match="force"):
        promote(target.root, root_of(replicas))
    promote(target.root, root_of(replicas), force=True)
    assert values(open_cluster(target.root)) == replicas.sent[0]


def test_a_late_mirror_run_does_not_overwrite_commits_of_the_promoted_cluster(tmp_path: Path) -> None:
    replicas, target = with_mirror(tmp_path)
    replicas.produce(1)
    (tmp_path / "root").rename(tmp_path / "away")
    promote(target.root, root_of(replicas), force=True)
    (tmp_path / "away").rename(tmp_path / "root")
    cluster = open_cluster(target.root)
    late = Copier(open_store(root_of(replicas)), target)
    with pytest.raises(CorruptMetadataError, match="not the same commit"):
        late.commit(cluster.state.version, "")
    assert open_cluster(target.root).state.version == cluster.state.version


@pytest.mark.parametrize(("since", "looked"), [(1, True), (0, True), (0, False)])
def test_a_mirror_whose_promotion_was_begun_is_not_continued_after_removed_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since: int, looked: bool
) -> None:
    """The new root's first commit would stand before a hole, and nobody could open it. ``looked`` is False for a pass
    that was killed right after it ended in the mirror, before it looked once more."""
    replicas, target = with_mirror(tmp_path)
    newest = replicas.cluster.state.version
    root = open_store(root_of(replicas))

    def suspend(step: int, call: Call) -> None:
        if call == Call("put_if_absent", CLUSTER_KEY):
            raise KeyboardInterrupt

    (tmp_path / "root").rename(tmp_path / "away")
    with substituted(FaultyStore(target, before=suspend)), pytest.raises(KeyboardInterrupt):
        promote(target.root, root.root, force=True)
    (tmp_path / "away").rename(tmp_path / "root")
    replicas.produce(3)
    replicas.cluster.log.write_checkpoint()
    boundary = replicas.cluster.state.version
    replicas.produce(since)
    remove_commits(root, boundary)
    if not looked:
        with monkeypatch.context() as patch:
            patch.setattr(Copier, "check_not_promoted", lambda copier: None)
            mirror(root, target)
        replicas.produce(1)
    with pytest.raises(ClusterAlreadyExistsError, match="its promotion was begun"):
        mirror(root, target)
    promote(target.root, root.root, force=True)
    assert open_cluster(target.root).state.version > newest


def test_a_promotion_states_which_commits_a_pass_of_the_mirror_left_out_meanwhile(tmp_path: Path) -> None:
    replicas, target = with_mirror(tmp_path)
    root, done = open_store(root_of(replicas)), list[str]()

    def jump(step: int, call: Call) -> None:
        if call.operation == "put_if_absent" and call.key.startswith(EPOCHS) and not done:
            done.append(call.key)
            (tmp_path / "away").rename(tmp_path / "root")
            replicas.produce(3)
            replicas.cluster.log.write_checkpoint()
            newest = replicas.cluster.state.version
            remove_commits(root, newest)
            replicas.produce(1)
            mirror(root, target)
            (tmp_path / "root").rename(tmp_path / "away")

    (tmp_path / "root").rename(tmp_path / "away")
    with substituted(FaultyStore(target, before=jump)):
        promote(target.root, root.root, force=True)
    assert done
    newest = open_cluster(target.root).state.version
    for version in range(read_boundary(target) + 1, newest + 1):
        assert target.get(commit_key(version))


@pytest.mark.parametrize("late", [False, True])
def test_a_checkpoint_that_a_promotion_needs_is_not_withdrawn(tmp_path: Path, late: bool) -> None:
    """By a pass of the mirror that was suspended after it had stored it; ``late``: when it had looked already."""
    replicas, target = with_mirror(tmp_path)
    replicas.produce(1)
    replicas.cluster.log.write_checkpoint()
    manifest = checkpoint.read_newest_listed(replicas.cluster.store)
    assert manifest is not None

    def need(step: int, call: Call) -> None:
        if late and call.operation == "delete":
            write_boundary(target, Boundary(boundary=manifest.version))

    def refuse() -> str:
        raise CorruptMetadataError("the root was restored")

    if not late:
        write_boundary(target, Boundary(boundary=manifest.version))
    copier = Copier(replicas.cluster.store, FaultyStore(target, before=need))
    with pytest.raises(CorruptMetadataError, match="was restored"):
        copier.checkpoint(manifest, refuse)
    assert checkpoint.read_newest_listed(target) == manifest


def test_a_mirror_that_learns_late_that_another_one_is_the_root_is_not_promoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old root failed when it was asked, and answered when its last commit was mirrored."""
    replicas, first = with_mirror(tmp_path)
    root, second = open_store(root_of(replicas)), open_store(str(tmp_path / "second"))
    mirror(root, second)

    def suspend(step: int, call: Call) -> None:
        if call.operation == "put_if_absent" and call.key.startswith(EPOCHS):
            raise KeyboardInterrupt

    with substituted(FaultyStore(first, before=suspend)), pytest.raises(KeyboardInterrupt):
        promote(first.root, root.root)
    calls: list[int] = []

    def fail_once(*arguments: Any) -> object:
        calls.append(1)
        if len(calls) == 1:
            raise StorageUnavailableError("not now")
        return mirror(*arguments)

    monkeypatch.setattr(promotion, "mirror", fail_once)
    with pytest.raises(InvalidRequestError, match=f"closed for {first.root}"):
        promote(second.root, root.root, force=True)
    promote(first.root, root.root)
    assert values(open_cluster(first.root)) == replicas.sent[0]


@pytest.mark.parametrize("force", [False, True])
def test_a_live_cluster_is_not_promoted_by_mistake(tmp_path: Path, force: bool) -> None:
    replicas, target = with_mirror(tmp_path)
    before = replicas.cluster.refresh()
    root = root_of(replicas)
    for mirror_given, root_given in ((root, target.root), (root, str(tmp_path / "nowhere")), (root, root)):
        with pytest.raises(InvalidRequestError, match="not a mirror"):
            promote(mirror_given, root_given, force=force)
    assert replicas.cluster.refresh() == before
    assert not (tmp_path / "root" / "broker.json").exists()


def test_a_mirror_lies_apart_from_the_root_and_from_every_broker(tmp_path: Path) -> None:
    replicas, _ = with_mirror(tmp_path)
    for folder in (replicas.disk(1), replicas.disk(2) / "mirror", tmp_path / "root" / "inside"):
        with pytest.raises(DuplicateBrokerRegistrationError, match=r"another location|nested"):
            mirror_cluster(replicas.cluster, str(folder))
        assert not (folder / "mirror.json").exists()


def test_a_mirror_run_with_a_clock_that_is_ahead_removes_no_commits_early(tmp_path: Path) -> None:
    clock, ahead = ManualClock(), ManualClock()
    ahead.advance(10 * 86_400)
    root, target = MemoryStore(f"{tmp_path}/root", clock), MemoryStore(f"{tmp_path}/mirror", clock)
    cluster = create_cluster(root, clock=clock)
    cluster.create_topic(TOPIC)
    for number in range(2 * limits.MIN_COMMITS_KEPT):
        cluster.submit(partial(alter_configs, topic=TOPIC, changes={"retention.ms": str(10**9 + number)}))
    cluster.log.write_checkpoint()
    mirror(root, target, ahead)
    assert len(list(target.list(COMMITS))) == cluster.state.version + 1


def test_allowed_locations_are_mirrored_in_the_first_pass_and_withdrawn_in_a_later_one(tmp_path: Path) -> None:
    root, target = create_cluster(str(tmp_path / "root")).store, open_store(str(tmp_path / "mirror"))
    write_allowed(root, ["s3://bucket"], RandomIds())
    mirror(root, target)
    assert read_allowed(target) == ("s3://bucket",)
    write_allowed(root, [], RandomIds())
    mirror(root, target)
    assert read_allowed(target) == ()


def test_a_pass_that_was_suspended_over_a_promotion_keeps_what_the_new_root_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, target = create_cluster(str(tmp_path / "root")).store, open_store(str(tmp_path / "mirror"))
    mirror(root, target)
    write_allowed(target, ["s3://mirror"], RandomIds())
    write_allowed(root, ["s3://root"], RandomIds())
    written: list[tuple[str, ...]] = []

    def promote_before(store: Store, allowed: Iterable[str], ids: Ids) -> None:
        if not written:
            store.put(CLUSTER_KEY, root.get(CLUSTER_KEY))
        written.append(tuple(sorted(allowed)))
        write_allowed(store, written[-1], ids)

    monkeypatch.setattr(mirror_module, "write_allowed", promote_before)
    mirror(root, target)
    assert read_allowed(target) == ("s3://mirror", "s3://root")


def test_a_cluster_that_is_only_read_has_no_mirror(tmp_path: Path) -> None:
    """It could not be promoted."""
    shutil.copytree(Path(__file__).parents[2] / "golden/cluster-v1/written/root", tmp_path / "root")
    with pytest.raises(FeatureLevelError, match="features upgrade"):
        mirror(open_store(str(tmp_path / "root")), open_store(str(tmp_path / "mirror")))
    assert not (tmp_path / "mirror").exists()


@pytest.mark.parametrize("is_raised", [True, False])
def test_a_mirror_keeps_the_commits_that_the_settings_keep_by_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_raised: bool
) -> None:
    """A pass is suspended before it removes old commits, whose limits are raised."""
    replicas, target = with_mirror(tmp_path)
    alter = partial(alter_configs, topic="")
    replicas.cluster.submit(partial(alter, changes={"metadata.max.retention.bytes": "0"}))
    replicas.cluster.log.write_checkpoint()

    def clean_up_late(of: Store, times: Times, configs: Mapping[str, str], **more: Any) -> CleanUp:
        if is_raised:
            replicas.cluster.submit(partial(alter, changes={"metadata.max.retention.bytes": "-1"}))
        return clean_up(of, times, configs, LogSettings(min_commit_age_ms=0, min_commits_kept=0), **more)

    monkeypatch.setattr(mirror_module, "clean_up", clean_up_late)
    mirror(replicas.cluster.store, target)
    assert (read_boundary(target) < 0) == is_raised
